"""However many runs, sums of a step or kinds of steps there are, each has its noise and its books.

An accelerator takes all runs of a grid together; a model of forty layers asks for eighty sums.
"""

import math

import pytest
import torch
from tests.privacy.helpers import Given

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.api.privacy_cost import PrivacyCost
from oso_dp.errors import OsoError
from oso_dp.privacy.noise_composition import LayerGroup
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, Query, UnclippedCount
from oso_dp.privacy.sampling import PoissonSampling

RUNS = 150
ALL = slice(0, RUNS)
EXAMPLES, WIDTH = 40, 400


@pytest.fixture
def mechanism() -> Mechanism:
    return Mechanism([f"run {number}" for number in range(RUNS)], EXAMPLES, 20)


def nothing(_, batches: torch.Tensor) -> Given:
    return Given(torch.zeros(*batches.shape, WIDTH))


def test_each_of_many_runs_has_its_own_noise_and_batch(mechanism) -> None:
    thresholds = torch.logspace(-4, 4, RUNS)
    drawn = []

    def of_batch(_, batches: torch.Tensor) -> Given:
        drawn.append(batches)
        return nothing(_, batches)

    answers = mechanism.release(ALL, 1, [ClippedGradient(0.7, thresholds)], of_batch)
    noise = answers[ClippedGradient] * 20 / (0.7 * thresholds[:, None])
    for run in range(RUNS):
        assert noise[run].std().item() == pytest.approx(1.0, abs=0.2)
    alike = torch.corrcoef(noise) - torch.eye(RUNS)
    assert alike.abs().max() < 7 / math.sqrt(WIDTH)
    assert len(torch.cat(drawn).unique(dim=0)) == RUNS


def test_each_of_many_runs_is_booked_and_answered_once(mechanism) -> None:
    query = [ClippedGradient(0.7, torch.ones(RUNS))]
    mechanism.release(ALL, 2, query, nothing)
    booked = [((SumQuery("clipped_gradient", 0.7),), 1)]
    assert [ledger.steps for ledger in mechanism.ledgers] == [booked] * RUNS
    for run in range(RUNS):
        with pytest.raises(ValueError, match="released before"):
            mechanism.release(slice(run, run + 1), 2, query, nothing)


@pytest.mark.parametrize("ahead", [0, 17, 70, RUNS - 1])
def test_whichever_of_many_runs_is_ahead_keeps_its_step_closed(ahead: int, mechanism) -> None:
    query = [ClippedGradient(0.7, torch.ones(RUNS))]
    mechanism.release(slice(ahead, ahead + 1), 3, query, nothing)
    with pytest.raises(ValueError, match="released before"):
        mechanism.release(ALL, 3, query, nothing)
    assert sum(ledger.step_count for ledger in mechanism.ledgers) == 1


@pytest.mark.parametrize("place", [0, 17, 70, RUNS - 1])
def test_whichever_of_many_runs_lacks_a_step_none_is_taken_up(place: int, mechanism) -> None:
    one = (SumQuery("clipped_gradient", 0.7),)
    ledgers = [Ledger(mechanism.sampling, [(one, 4)]) for _ in range(RUNS)]
    ledgers[place] = Ledger(mechanism.sampling, [(one, 3)])
    with pytest.raises(ValueError, match="must be those of 4 steps"):
        mechanism.resume(ledgers, 4)
    ledgers[place].steps[:] = [((SumQuery("clipped_gradient", 1e-300),), 4)]
    with pytest.raises(OsoError, match="ledger: "):
        mechanism.resume(ledgers, 4)


@pytest.mark.parametrize("place", [1, 17, 70, RUNS - 1])
def test_no_two_of_many_runs_have_one_identity(place: int) -> None:
    names = [f"run {number}" for number in range(RUNS)]
    for name, message in ((names[place - 1], "share their noise"), ("a\0b", "null character")):
        with pytest.raises(OsoError, match=message):
            Mechanism([*names[:place], name, *names[place + 1 :]], EXAMPLES, 20)


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


def test_each_of_many_sums_of_a_step_has_its_own_noise_and_is_booked() -> None:
    mechanism = Mechanism(["a"], EXAMPLES, 20)
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


@pytest.mark.parametrize("place", [0, 15, 16, 39])
def test_whichever_of_many_sums_is_no_query_of_ours_is_refused(place: int) -> None:
    class Mine(ClippedDirection):
        def sensitivity(self, runs: slice) -> float:
            return 1e-9

    asked = of_each_layer(ClippedGradient, 3.0)
    asked[place] = Mine(3.0, torch.ones(1))
    with pytest.raises(OsoError, match=r"must be a class of oso_dp\.privacy\.queries"):
        Mechanism(["a"], EXAMPLES, 20).release(slice(0, 1), 1, asked, Layers)


def of_many_kinds(kinds: int) -> Ledger:
    """As a noise that falls from step to step leaves it: each kind of step once."""
    steps = [((SumQuery("clipped_gradient", 2.0 + kind / 100),), 1) for kind in range(kinds)]
    return Ledger(PoissonSampling(1.0), steps)


@pytest.mark.parametrize("kinds", [1, 90, 300])
def test_each_of_many_kinds_of_steps_is_kept_and_priced(kinds: int) -> None:
    """All examples in each batch: one sum with the root of the sum of the precisions."""
    ledger = of_many_kinds(kinds)
    assert Ledger.from_json(ledger.to_json()) == ledger
    assert ledger.step_count == len(ledger.releases()) == len(ledger.event().events) == kinds
    whole = math.fsum(nu**-2 for nu, _ in ledger.releases()) ** -0.5
    alone = Ledger(PoissonSampling(1.0), [((SumQuery("x", whole),), 1)])
    assert compute_epsilon([ledger], 1e-5) == pytest.approx(
        compute_epsilon([alone], 1e-5), rel=1e-6
    )


@pytest.mark.parametrize("runs", [1, 30, 250])
def test_each_of_many_trainings_is_priced(runs: int) -> None:
    """Of a grid's ledgers, and of those that a search's best stands for."""
    one = (SumQuery("clipped_gradient", 9.0),)
    ledgers = [Ledger(PoissonSampling(0.1), [(one, 5)]) for _ in range(runs)]
    together = compute_epsilon([Ledger(PoissonSampling(0.1), [(one, 5 * runs)])], 1e-5)
    assert compute_epsilon(ledgers, 1e-5) == together
    paid = PrivacyCost(ledgers[0], tuple(ledgers[1:]))
    assert paid.epsilon(1e-5, "rdp") == together
    assert PrivacyCost.from_json(paid.to_json()) == paid
    assert len(paid.ledgers()) == runs
