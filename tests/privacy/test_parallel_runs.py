"""However many runs go together, each has the answers, noise and books of its own."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.privacy.helpers import Given, batch_of, released
from torch import nn

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.api.privacy_cost import PrivacyCost
from oso_dp.errors import OsoError
from oso_dp.gradients import BatchGradients, GradientEngine
from oso_dp.models.losses import cross_entropy
from oso_dp.privacy.batch_rng import (
    BLOCK,
    MAX_MICROBATCH,
    MAX_SHORT,
    SHORT_BLOCK,
    BatchRNG,
    Microbatches,
    padded_length,
)
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.noise_composition import LayerGroup
from oso_dp.privacy.queries import (
    QUERIES,
    AutomaticGradient,
    ClippedDirection,
    ClippedGradient,
    PlainGradient,
    Query,
    Runs,
    UnclippedCount,
)
from oso_dp.privacy.rng_sources import Seeded, SystemEntropy
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.privacy.unnoised_sums import unnoised_sums

RUNS = [f"run {i}" for i in range(6)]


EXAMPLES, EXPECTED, STEPS, FEATURES = 2000, 512, range(1, 13), 700


# Of the norms, so that about these shares of a batch are clipped: near the share at which the layer
# leaves out who has no weight in a sum, the padded width could decide.
SHARES = torch.tensor([0.1, 0.5, 0.72, 0.76, 0.8, 1.0])


@pytest.fixture(scope="module")
def problem():
    """A network with a layer of more weights than are summed run by run, and one of fewer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 3))
    code = GradientEngine(model, cross_entropy)
    flats = 0.1 * torch.randn(len(RUNS), code.size)
    inputs, targets = torch.rand(EXAMPLES, FEATURES), torch.randint(3, (EXAMPLES,))
    norms = code(flats, inputs.expand(6, -1, -1), targets.expand(6, -1)).norms()
    thresholds = torch.stack(
        [one.quantile(share) for one, share in zip(norms, SHARES, strict=True)]
    )
    return code, flats, inputs, targets, thresholds


def asked(thresholds: torch.Tensor, direction: bool):
    """The direction is made of the same parts as the clipped gradient: two sums of a layer."""
    return [
        ClippedGradient(1.0, thresholds),
        *([ClippedDirection(2.0, thresholds)] if direction else []),
        UnclippedCount(3.0, thresholds),
    ]


def answers_of(mechanism: Mechanism, runs: slice, step: int, problem, direction: bool):
    code, flats, inputs, targets, thresholds = problem

    def gradients(some: Runs, rows: torch.Tensor) -> BatchGradients:
        return code(flats[some], inputs[rows], targets[rows])

    return mechanism.release(runs, step, asked(thresholds, direction), gradients)


@pytest.mark.parametrize(
    ("direction", "microbatch_size", "first", "expected"),
    [
        *((True, None, 0, EXPECTED), (True, None, 2, EXPECTED), (True, 200, 0, EXPECTED)),
        *((False, None, 0, EXPECTED), (False, 200, 1, EXPECTED)),
        *((True, None, 0, 37), (False, 16, 0, 37), (False, None, 1, MAX_SHORT)),
    ],
)
def test_mechanism_runs_together_bitwise_equal_alone(
    problem, direction, microbatch_size, first, expected
) -> None:
    """The batches need different widths, which would show in the last bits of products.

    first: the first of the runs that are released together.
    """
    together, alone = (
        Mechanism(RUNS, EXAMPLES, expected, microbatch_size=microbatch_size) for _ in "ab"
    )
    widths = []
    for step in STEPS:
        batches = together.random_numbers.batches_by_width(RUNS[first:], step)
        widths.append(len(batches))
        several = answers_of(together, slice(first, len(RUNS)), step, problem, direction)
        for run in range(first, len(RUNS)):
            own = answers_of(alone, slice(run, run + 1), step, problem, direction)
            for key, answer in own.items():
                assert torch.equal(several[key][run - first], answer[0])
    assert max(widths) > 1  # or nothing was tested


@pytest.mark.parametrize("length", [0, 1, 8, 9, 383, 384, 385, 448, 449, 10**6 + 1])
def test_padded_length_rounds_to_next_block(length: int) -> None:
    for device, block in (("cpu", 8 if length <= 384 else 64), ("meta", 64)):
        width = padded_length(length, torch.device(device))
        assert width % block == 0
        assert 0 <= width - length < block


@pytest.mark.parametrize(("expected", "block"), [(EXPECTED, BLOCK), (40, SHORT_BLOCK)])
def test_batches_by_width_match_batches(problem, expected: int, block: int) -> None:
    """Batches match also at the lengths where the padded width changes."""
    numbers = Mechanism(RUNS, EXAMPLES, expected).random_numbers
    drawn: set[int] = set()
    for step in range(1, 301):
        indices, present = numbers.batches(RUNS, step)
        parts = numbers.batches_by_width(RUNS, step)
        assert sorted(place for part in parts for place in part.members) == list(range(len(RUNS)))
        for part in parts:
            for place, row, own in zip(part.members, part.indices, part.present, strict=True):
                drawn.add(len(row[own]) % block)
                assert torch.equal(row[own], indices[place][present[place]])
                assert len(row) == padded_length(int(own.sum()), row.device)
    assert {0, 1, block - 1} <= drawn


@pytest.mark.parametrize("most", [None, 1, 7, 16, 24, 1000, 1024, 5000])
def test_microbatches_leave_place_for_one_more(most: int | None) -> None:
    """Where all records are in the batch, one more does not change the number of microbatches."""
    for records in [*range(1, 300), *range(1000, 1100), 4095, 4096, 10**6]:
        microbatches = Microbatches.of(records, 1.0, most)
        places = microbatches.padded(records)
        assert microbatches.padded(records + 1) == places > records
        assert places % microbatches.size == 0
        assert microbatches.size <= min(most or MAX_MICROBATCH, MAX_MICROBATCH)
        assert microbatches.padded(0) == places


@pytest.mark.parametrize(("size", "count"), [(16, 1), (16, 3), (5, 2)])
def test_batches_private_records_keep_places(size: int, count: int) -> None:
    """One record more takes an empty place; its places are equally likely, and in no order."""
    numbers = BatchRNG(
        Seeded(), PoissonSampling(1.0), 9, torch.device("cpu"), None, Microbatches(size, count)
    )
    places = size * count
    taken = np.zeros((places, places))
    for step in range(1, 2001):
        most = numbers._draw_places("run", step, places)
        assert sorted(most) == list(range(places))
        for length in (0, 1, places // 2, places - 1):
            assert (numbers._draw_places("run", step, length) == most[:length]).all()
        taken[np.arange(places), most] += 1
    spread = ((taken - 2000 / places) ** 2 / (2000 / places)).sum() / (places - 1) ** 2
    assert spread == pytest.approx(1, abs=0.5)
    drawn = numbers.batches_by_width(["run"], 1)[0]
    assert drawn.indices[drawn.present].sort().values.tolist() == list(range(9))
    assert drawn.indices.shape == (1, places)
    assert drawn.indices[drawn.present].tolist() != list(range(9))


@pytest.mark.parametrize(("source", "together"), [(Seeded(), 1), (SystemEntropy(), 3)])
def test_batches_by_width_private_runs_alone(source, together: int) -> None:
    """The batch of one private run must not choose the products of another."""
    numbers = Mechanism(RUNS[:3], 9, 9, 0.0, source).random_numbers
    assert len(numbers.batches_by_width(RUNS[:3], 1)) == together


def test_weighted_sums_mixed_runs_equal_alone(problem) -> None:
    """One run has its examples in both sums, and the other runs do not."""
    code, flats, inputs, targets, _ = problem
    rows = torch.arange(EXAMPLES).expand(len(RUNS), -1)
    weights = torch.zeros(len(RUNS), 2, EXAMPLES)
    weights[:, 0, ::3], weights[:, 1, 1::3] = 0.3, 0.7
    weights[2] = 0.5
    several = code(flats, inputs[rows], targets[rows]).weighted_sums(weights)
    for run in range(len(RUNS)):
        one = slice(run, run + 1)
        own = code(flats[one], inputs[rows[one]], targets[rows[one]]).weighted_sums(weights[one])
        assert torch.equal(several[run], own[0])


def test_unnoised_sums_listed_runs_keep_order(problem) -> None:
    """`unnoised_sums` of a list of runs is that of each of them, in its order."""
    code, flats, inputs, targets, thresholds = problem
    rows = torch.arange(2 * BLOCK).view(2, BLOCK)
    everybody = torch.ones(2, BLOCK, dtype=torch.bool)
    query = ClippedGradient(1.0, thresholds)
    some = [4, 1]
    (sums,) = unnoised_sums(
        [query], some, code(flats[some], inputs[rows], targets[rows]), everybody
    )
    for place, run in enumerate(some):
        mine = code(flats[run, None], inputs[rows[place, None]], targets[rows[place, None]])
        (own,) = unnoised_sums([query], slice(run, run + 1), mine, everybody[:1])
        assert torch.equal(sums[place], own[0])


THRESHOLDED = [kind for kind in QUERIES if kind is not PlainGradient]


NORMS = [0.0, 1e-40, 1e-12, 0.3, 1.0, 7.0, 1e17, 1e35, math.inf, math.nan]


THRESHOLDS = [0.0, 1e-40, 1e-13, 1e-12, 0.5, 1.0, 1e6, 1e30, 1e38, math.inf]


batches = st.integers(1, 5).flatmap(
    lambda runs: st.tuples(
        st.lists(st.sampled_from(THRESHOLDS), min_size=runs, max_size=runs),
        st.integers(0, 4).flatmap(
            lambda size: st.lists(
                st.lists(st.sampled_from(NORMS), min_size=size, max_size=size),
                min_size=runs,
                max_size=runs,
            )
        ),
    )
)


@pytest.mark.parametrize("kind", THRESHOLDED)
@given(batches)
def test_query_weights_sensitivities_equal_alone(kind, batch) -> None:
    """Runs together equal runs alone for any thresholds and norms, also nonfinite ones."""
    thresholds, norms = torch.tensor(batch[0]), torch.tensor(batch[1])
    query, runs = kind(1.0, thresholds), slice(0, len(thresholds))
    weights = query.weights(norms, runs)
    together = torch.as_tensor(query.sensitivity(runs)).expand(len(thresholds))
    assert weights.isfinite().all()
    assert not weights[~norms.isfinite()].any()
    for run in range(len(thresholds)):
        alone = slice(run, run + 1)
        assert torch.equal(weights[alone], query.weights(norms[alone], alone))
        assert float(together[run]) == float(query.sensitivity(alone))
        assert math.isfinite(together[run])


# A run's threshold, and the length of its examples' gradients.
FAR = [(0.0, 1.0), (1e-13, 1e-3), (0.5, 3.0), (1e6, 1.0), (math.inf, 1.0), (2.0, math.nan)]


def queries(thresholds: torch.Tensor) -> list:
    return [
        ClippedGradient(0.7, thresholds),
        AutomaticGradient(0.9, thresholds),
        ClippedDirection(0.8, thresholds),
        UnclippedCount(0.6, thresholds),
    ]


class Uneven(Given):
    """Some examples are not finite: of those the gradient code keeps nothing but the norm."""

    def norms(self) -> torch.Tensor:
        return self.gradients.norm(dim=-1).nan_to_num(nan=math.inf)

    def weighted_sums(self, weights: torch.Tensor, layers: None = None) -> torch.Tensor:
        return weights @ self.gradients.nan_to_num(nan=0.0)


@pytest.mark.parametrize("batch_size", [1, 30])  # of 200 examples: some batches are empty
@pytest.mark.parametrize("microbatch_size", [None, 4, 33])  # batches are padded to 64
def test_mechanism_extreme_runs_match_alone(batch_size, microbatch_size) -> None:
    """Runs match also if microbatches split their batches and the last one is shorter."""
    steps = (1, 2, 3)
    thresholds = torch.tensor([threshold for threshold, _ in FAR])
    lengths = torch.tensor([length for _, length in FAR])
    names = [f"run {i}" for i in range(len(FAR))]
    directions = torch.nn.functional.normalize(torch.randn(200, 8), dim=1)
    directions[1::7] = math.nan  # not the first, whose index pads the shorter batches
    together, alone = (
        Mechanism(names, 200, batch_size, microbatch_size=p) for p in (microbatch_size, None)
    )
    sizes = set()
    for step in steps:

        def all_of(runs: Runs, batches: torch.Tensor) -> Uneven:
            return Uneven(lengths[runs, None, None] * directions[batches])

        several = together.release(slice(0, len(FAR)), step, queries(thresholds), all_of)
        for run in range(len(FAR)):

            def one_of(batch: torch.Tensor, run=run) -> Uneven:
                return Uneven(lengths[run] * directions[batch])

            sizes.add(len(batch_of(alone.random_numbers, names[run], step)))
            one = released(alone, run, step, queries(thresholds), one_of)
            for query in queries(thresholds):
                answer = one[query.name]
                assert answer.isfinite().all()
                torch.testing.assert_close(
                    several[query.key][run],
                    answer,
                    rtol=1e-4,
                    atol=1e-5 * float(answer.abs().max()),
                )
    assert (0 in sizes) == (batch_size == 1)
    assert [ledger.step_count for ledger in together.ledgers] == [len(steps)] * len(FAR)


@pytest.mark.parametrize("batch_size", [1, 500])
def test_mechanism_noise_follows_run_threshold(batch_size: int) -> None:
    """Each run gets the noise of its own threshold, also for an empty batch."""
    thresholds = torch.tensor([0.0, 1e-6, 0.5, 3.0, 1e6, math.inf])
    runs = slice(0, len(thresholds))
    mechanism = Mechanism([f"run {i}" for i in range(len(thresholds))], 1000, batch_size)
    asked = queries(thresholds)
    answers = mechanism.release(
        runs, 1, asked, lambda _, batch: Given(torch.zeros(*batch.shape, 20_000))
    )
    for query in asked[:-1]:
        noise = answers[query.key] * batch_size
        for run in range(len(thresholds)):
            deviation = query.noise_multiplier * query.sensitivity(slice(run, run + 1))
            assert (noise[run] / deviation).std().item() == pytest.approx(1.0, rel=0.03)
            assert (noise[run] / deviation).mean().item() == pytest.approx(0.0, abs=0.04)


def test_mechanism_mean_divides_by_expected_size() -> None:
    """With gradients of one and almost no noise, a mean is the realised over the expected size."""
    names = [f"run {i}" for i in range(6)]
    mechanism = Mechanism(names, 300, 30)
    query, count = ClippedGradient(1e-6, torch.ones(6)), UnclippedCount(1e-6, torch.ones(6))
    for step in range(1, 30):
        sizes = [len(batch_of(mechanism.random_numbers, name, step)) for name in names]
        answers = mechanism.release(
            slice(0, 6), step, [query, count], lambda _, b: Given(torch.ones(*b.shape, 1))
        )
        assert (answers[query.key][:, 0] * 30).tolist() == pytest.approx(sizes, abs=1e-4)
        # What pads the shorter batches casts no vote.
        assert (answers[count.key] * 30).tolist() == pytest.approx(
            [size / 2 for size in sizes], abs=1e-4
        )


MANY = 150


ALL = slice(0, MANY)


FEW_EXAMPLES, WIDTH = 40, 400


@pytest.fixture
def mechanism() -> Mechanism:
    return Mechanism([f"run {number}" for number in range(MANY)], FEW_EXAMPLES, 20)


def nothing(_, batches: torch.Tensor) -> Given:
    return Given(torch.zeros(*batches.shape, WIDTH))


def test_mechanism_many_runs_draw_independently(mechanism) -> None:
    thresholds = torch.logspace(-4, 4, MANY)
    drawn = []

    def of_batch(_, batches: torch.Tensor) -> Given:
        drawn.append(batches)
        return nothing(_, batches)

    answers = mechanism.release(ALL, 1, [ClippedGradient(0.7, thresholds)], of_batch)
    noise = answers[ClippedGradient] * 20 / (0.7 * thresholds[:, None])
    for run in range(MANY):
        assert noise[run].std().item() == pytest.approx(1.0, abs=0.2)
    alike = torch.corrcoef(noise) - torch.eye(MANY)
    assert alike.abs().max() < 7 / math.sqrt(WIDTH)
    assert len({tuple(row.tolist()) for batches in drawn for row in batches}) == MANY


def test_mechanism_many_runs_booked_once(mechanism) -> None:
    query = [ClippedGradient(0.7, torch.ones(MANY))]
    mechanism.release(ALL, 2, query, nothing)
    booked = [((SumQuery("clipped_gradient", 0.7),), 1)]
    assert [ledger.steps for ledger in mechanism.ledgers] == [booked] * MANY
    for run in range(MANY):
        with pytest.raises(ValueError, match="released before"):
            mechanism.release(slice(run, run + 1), 2, query, nothing)


@pytest.mark.parametrize("place", [0, 70, MANY - 1])
def test_mechanism_resume_one_bad_ledger_rejected(place: int, mechanism) -> None:
    one = (SumQuery("clipped_gradient", 0.7),)
    ledgers = [Ledger(mechanism.sampling, [(one, 4)]) for _ in range(MANY)]
    ledgers[place] = Ledger(mechanism.sampling, [(one, 3)])
    with pytest.raises(ValueError, match="must be those of 4 steps"):
        mechanism.resume(ledgers, 4)
    ledgers[place].steps[:] = [((SumQuery("clipped_gradient", 1e-300),), 4)]
    with pytest.raises(OsoError, match="ledger: "):
        mechanism.resume(ledgers, 4)


@pytest.mark.parametrize("place", [1, MANY - 1])
def test_mechanism_invalid_run_id_rejected(place: int) -> None:
    names = [f"run {number}" for number in range(MANY)]
    for name, message in ((names[place - 1], "share their noise"), ("a\0b", "null character")):
        with pytest.raises(OsoError, match=message):
            Mechanism([*names[:place], name, *names[place + 1 :]], FEW_EXAMPLES, 20)


class Layers(Given):
    """Every layer's part is zero, and as wide as the others."""

    def layer_norms(self) -> dict[str, torch.Tensor]:
        return {f"{layer}": self.gradients[..., 0] for layer in range(LAYERS)}

    def weighted_sums(self, weights: torch.Tensor, layers=None) -> torch.Tensor:
        return torch.zeros(*weights.shape[:2], 300)


LAYERS = 40


def of_each_layer(kind: type[Query], nu: float) -> list[Query]:
    thresholds = torch.logspace(-2, 2, LAYERS)
    return [
        kind(nu, threshold[None], LayerGroup(f"{layer}", (f"{layer}",)))
        for layer, threshold in enumerate(thresholds)
    ]


def test_mechanism_many_sums_noised_and_booked() -> None:
    mechanism = Mechanism(["a"], FEW_EXAMPLES, 20)
    asked = [*of_each_layer(ClippedGradient, 3.0), *of_each_layer(UnclippedCount, 5.0)]
    answers = mechanism.release(
        slice(0, 1), 1, asked, lambda _, batch: Layers(torch.zeros(*batch.shape, 1))
    )
    noise = []
    for query in asked[:LAYERS]:
        deviation = 3.0 * float(query.sensitivity(slice(0, 1)))
        noise.append(answers[query.key][0] * 20 / deviation)
        assert noise[-1].std().item() == pytest.approx(1.0, abs=0.2)
    alike = torch.corrcoef(torch.stack(noise)) - torch.eye(LAYERS)
    assert alike.abs().max() < 7 / math.sqrt(300)
    counts = torch.stack([answers[query.key][0] for query in asked[LAYERS:]])
    assert len(counts.unique()) == LAYERS  # without noise all would be the batch's half
    (((queries, count)),) = mechanism.ledgers[0].steps
    assert [query.name for query in queries] == [query.name for query in asked]
    assert count == 1


@pytest.mark.parametrize("place", [0, 39])
def test_mechanism_foreign_query_among_many_rejected(place: int) -> None:
    class Mine(ClippedDirection):
        def sensitivity(self, runs: slice) -> float:
            return 1e-9

    asked = of_each_layer(ClippedGradient, 3.0)
    asked[place] = Mine(3.0, torch.ones(1))
    with pytest.raises(OsoError, match=r"must be a class of oso_dp\.privacy\.queries"):
        Mechanism(["a"], FEW_EXAMPLES, 20).release(slice(0, 1), 1, asked, Layers)


def of_many_kinds(kinds: int) -> Ledger:
    """As a noise that falls from step to step leaves it: each kind of step once."""
    steps = [((SumQuery("clipped_gradient", 2.0 + kind / 100),), 1) for kind in range(kinds)]
    return Ledger(PoissonSampling(1.0), steps)


@pytest.mark.parametrize("kinds", [1, 190])
def test_ledger_many_step_kinds_priced(kinds: int) -> None:
    """At rate 1, all steps cost as much as one sum whose precision is the sum of theirs."""
    ledger = of_many_kinds(kinds)
    assert Ledger.from_json(ledger.to_json()) == ledger
    assert ledger.step_count == len(ledger.releases()) == len(ledger.event().events) == kinds
    whole = math.fsum(nu**-2 for nu, _ in ledger.releases()) ** -0.5
    alone = Ledger(PoissonSampling(1.0), [((SumQuery("x", whole),), 1)])
    assert compute_epsilon([ledger], 1e-5) == pytest.approx(
        compute_epsilon([alone], 1e-5), rel=1e-6
    )


@pytest.mark.parametrize("runs", [1, 250])
def test_compute_epsilon_many_ledgers_add_up(runs: int) -> None:
    """The ledgers of many trainings cost as much as one ledger with all their steps."""
    one = (SumQuery("clipped_gradient", 9.0),)
    ledgers = [Ledger(PoissonSampling(0.1), [(one, 5)]) for _ in range(runs)]
    together = compute_epsilon([Ledger(PoissonSampling(0.1), [(one, 5 * runs)])], 1e-5)
    assert compute_epsilon(ledgers, 1e-5) == together
    paid = PrivacyCost(ledgers[0], tuple(ledgers[1:]))
    assert paid.epsilon(1e-5, "rdp") == together
    assert PrivacyCost.from_json(paid.to_json()) == paid
    assert len(paid.ledgers()) == runs
