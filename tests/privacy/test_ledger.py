"""The ledger: each step is booked with the noise that it had."""

import math

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp import compute_epsilon as rdp_epsilon
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.noise_composition import combined_noise_multiplier, gradient_noise_multiplier
from oso_dp.privacy.promise import EXAMPLE, RANDOMNESS, USER
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, PlainGradient, Runs
from oso_dp.privacy.rng_sources import SOURCES, SystemEntropy
from oso_dp.privacy.sampling import PoissonSampling

ONE = (SumQuery("clipped_gradient", 1.0),)


TWO = (SumQuery("clipped_gradient", 1.1), SumQuery("clipped_direction", 3.0))


def test_ledger_record_counts_equal_steps() -> None:
    ledger = Ledger(PoissonSampling(0.01))
    for queries in [ONE, ONE, TWO, ONE]:
        ledger.record(tuple(SumQuery(**vars(query)) for query in queries))  # equal, not the same
    assert ledger.steps == [(ONE, 3), (TWO, 1)]


@pytest.mark.parametrize("count", [1, 4095, 10**9 - 1])
def test_ledger_record_large_count_incremented(count: int) -> None:
    ledger = Ledger(PoissonSampling(0.01), [(TWO, 5), (ONE, count)])
    ledger.record(ONE)
    assert ledger.steps == [(TWO, 5), (ONE, count + 1)]
    assert ledger.step_count == count + 6


def test_ledger_json_round_trips() -> None:
    ledger = Ledger(PoissonSampling(512 / 60000), [(ONE, 1172), (TWO, 3)])
    assert Ledger.from_json(ledger.to_json()) == ledger
    assert len(ledger.to_json()) < 500


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[" * 100_000])
def test_ledger_broken_json_rejected(text: str) -> None:
    with pytest.raises(OsoError, match="ledger"):
        Ledger.from_json(text)


def test_compute_epsilon_sums_match_composed_mechanisms() -> None:
    """Equation (1) of the ledger paper, held against dp_accounting's own composition."""
    gaussians = [dp_accounting.GaussianDpEvent(query.noise_multiplier) for query in TWO]
    step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.ComposedDpEvent(gaussians))
    expected = RdpAccountant().compose(step, 100).get_epsilon(1e-5)
    ledger = Ledger(PoissonSampling(0.01), [(TWO, 100)])
    assert compute_epsilon([ledger], 1e-5) == pytest.approx(expected, rel=1e-9)
    stored = RdpAccountant().compose(ledger.event()).get_epsilon(1e-5)
    assert stored == pytest.approx(expected, rel=1e-9)


def test_compute_epsilon_noiseless_sum_becomes_infinite() -> None:
    exact = (*ONE, SumQuery("clipped_direction", 0.0))
    ledger = Ledger(PoissonSampling(0.01), [(ONE, 5), (exact, 1)])
    assert compute_epsilon([ledger], 1e-5) == float("inf")
    assert RdpAccountant().compose(ledger.event()).get_epsilon(1e-5) == float("inf")


@pytest.mark.parametrize(
    "spoil",
    [
        ('"count": 3', '"count": 3.9'),
        ('"count": 3', '"count": 1e400'),
        ('"count": 3', '"count": 3, "count": 1'),
        ('"sampling_rate": 0.01', '"sampling_rate": 0.0'),
        ('"sampling_rate": 0.01', '"sampling_rate": 1.5'),
        ('"sampling_rate": 0.01', '"sampling_rate": "0.01"'),
        ('"sampling_rate": 0.01', '"sampling_rate": NaN'),
        ('"sampling_rate": 0.01', '"sampling_rate": true'),
        ('"noise_multiplier": 1.0', '"noise_multiplier": 1' + "0" * 400),
        ('"noise_multiplier": 1.0', '"noise_multiplier": 1.0, "more": 1'),
    ],
)
def test_ledger_invalid_json_value_rejected(spoil: tuple[str, str]) -> None:
    text = Ledger(PoissonSampling(0.01), [(ONE, 3)]).to_json()
    assert spoil[0] in text
    with pytest.raises(OsoError):
        Ledger.from_json(text.replace(*spoil))


@pytest.mark.parametrize(("kind", "place"), [(0, 2), (1, 1), (2, 0)])
@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, 1e-200, 1e200, True, "1.0", None])
def test_ledger_invalid_noise_multiplier_rejected(kind, place, bad) -> None:
    """An invalid value at any place is rejected, also in a ledger that was not read from JSON."""
    right = [((tuple(SumQuery(name, 1.0 + of) for name in "abc")), 3) for of in range(3)]
    ledger = Ledger(PoissonSampling(0.01), list(right))
    assert Ledger.from_json(ledger.to_json()) == ledger
    queries = list(right[kind][0])
    queries[place] = SumQuery(queries[place].name, bad)
    ledger.steps[kind] = (tuple(queries), 3)
    for refuse in (ledger.check, ledger.releases, lambda: Ledger.from_json(ledger.to_json())):
        with pytest.raises(OsoError, match="ledger: "):
            refuse()


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("bad", [-3, 0, 3.0, True, "3", None, 10**9 + 1])
def test_ledger_invalid_count_rejected(kind, bad) -> None:
    ledger = Ledger(PoissonSampling(0.01), [((SumQuery(name, 1.0),), 3) for name in "abc"])
    ledger.steps[kind] = (ledger.steps[kind][0], bad)
    for refuse in (ledger.check, ledger.releases, lambda: Ledger.from_json(ledger.to_json())):
        with pytest.raises(OsoError, match="ledger: "):
            refuse()


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("sums", [(), "aa", "aba", "abb"])
def test_ledger_missing_or_duplicate_sums_rejected(kind, sums) -> None:
    ledger = Ledger(PoissonSampling(0.01), [((SumQuery(name, 1.0),), 3) for name in "abc"])
    ledger.steps[kind] = (tuple(SumQuery(name, 1.0) for name in sums), 3)
    with pytest.raises(OsoError, match="ledger: a step must have queries with distinct names"):
        Ledger.from_json(ledger.to_json())


class Zeros:
    """Per-example gradients of a batch, all zero: only what is asked and booked matters here."""

    def __init__(self, runs: Runs, batch: torch.Tensor) -> None:
        self.shape = batch.shape

    def norms(self) -> torch.Tensor:
        return torch.zeros(self.shape)

    def weighted_sums(self, weights: torch.Tensor, layers: None = None) -> torch.Tensor:
        return torch.zeros(*weights.shape[:-1], 2)

    def plain_sums(self, present: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(present), 2)


ONE_RUN = slice(0, 1)


def threshold(value: float) -> torch.Tensor:
    return torch.tensor([value])


def test_mechanism_repeated_step_rejected() -> None:
    mechanism = Mechanism(["run"], records=10, batch_size=5)
    query = [ClippedGradient(1.0, threshold(1.0))]
    mechanism.release(ONE_RUN, 3, query, Zeros)
    for step in (3, 2):
        with pytest.raises(ValueError, match="released before"):
            mechanism.release(ONE_RUN, step, query, Zeros)


@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_mechanism_repeated_step_among_runs_rejected(ahead: int) -> None:
    """A step that one run has released is rejected for all runs together, and nothing is booked."""
    mechanism = Mechanism([f"run {i}" for i in range(5)], records=10, batch_size=5)
    query = [ClippedGradient(1.0, torch.ones(5))]
    mechanism.release(slice(ahead, ahead + 1), 2, query, Zeros)
    for step in (1, 2):
        with pytest.raises(ValueError, match="released before"):
            mechanism.release(slice(0, 5), step, query, Zeros)
    assert [ledger.step_count for ledger in mechanism.ledgers] == [i == ahead for i in range(5)]


def test_mechanism_resume_closes_earlier_steps() -> None:
    """A step repeated after a kill would draw the same noise again, on other parameters."""
    mechanism = Mechanism(["a"], records=10, batch_size=5)
    mechanism.resume(
        [Ledger(PoissonSampling(0.5), [((SumQuery("clipped_gradient", 1.0),), 4)])], last_step=4
    )
    query = [ClippedGradient(1.0, threshold(1.0))]
    with pytest.raises(ValueError, match="released before"):
        mechanism.release(ONE_RUN, 4, query, Zeros)
    mechanism.release(ONE_RUN, 5, query, Zeros)
    assert mechanism.ledgers[0].steps[0][1] == 5


def test_mechanism_resume_keeps_answered_steps_closed() -> None:
    """Released steps stay closed even if resume gets an earlier last step."""
    mechanism = Mechanism(["a", "b"], records=10, batch_size=5)
    query = [ClippedGradient(1.0, torch.ones(2))]
    for step in (2, 5):
        mechanism.release(slice(0, 2), step, query, Zeros)
    mechanism.resume(mechanism.ledgers, last_step=2)
    for step in (3, 5):
        with pytest.raises(ValueError, match="released before"):
            mechanism.release(slice(0, 2), step, query, Zeros)
    mechanism.release(slice(0, 2), 6, query, Zeros)
    assert [ledger.step_count for ledger in mechanism.ledgers] == [3, 3]


def test_mechanism_failed_step_booked_and_closed() -> None:
    """A failure may depend on the batch, and a second attempt would draw the same noise."""
    mechanism = Mechanism(["run"], records=10, batch_size=5)
    query = [ClippedGradient(1.0, threshold(1.0))]

    def fail(runs: Runs, batch: torch.Tensor) -> Zeros:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        mechanism.release(ONE_RUN, 1, query, fail)
    assert mechanism.ledgers[0].step_count == 1
    with pytest.raises(ValueError, match="released before"):
        mechanism.release(ONE_RUN, 1, query, Zeros)


@pytest.mark.parametrize("nu", [-1.0, math.inf, float("inf"), math.nan])
def test_mechanism_invalid_budget_rejected(nu: float) -> None:
    with pytest.raises(OsoError, match="must be >= 0 and finite"):
        Mechanism(["run"], 10, 5, noise_multiplier=nu)


@pytest.mark.parametrize("nu", [-1.0, 2e9, math.inf, math.nan, True])
@pytest.mark.parametrize("place", [0, 1])
def test_mechanism_unknown_cost_rejected(nu: float, place: int) -> None:
    """Noise for which no epsilon can be computed is refused before a step is taken."""
    mechanism = Mechanism(["run"], records=10, batch_size=5)
    noise = [1.0, 1.0]
    noise[place] = nu
    queries = ClippedGradient(noise[0], threshold(1.0)), ClippedDirection(noise[1], threshold(1.0))
    for use in (mechanism.check_queries, lambda asked: mechanism.release(ONE_RUN, 1, asked, Zeros)):
        with pytest.raises(OsoError, match=f"query '{queries[place].name}': noise_multiplier: "):
            use(queries)
    assert mechanism.ledgers[0].steps == []


def test_mechanism_keep_retains_run_ledger() -> None:
    mechanism = Mechanism(["a", "b"], records=10, batch_size=5)
    query = [ClippedGradient(1.0, torch.ones(2))]
    mechanism.release(slice(1, 2), 1, query, Zeros)
    mechanism.keep([1])
    assert mechanism.run_ids == ["b"]
    assert mechanism.ledgers[0].steps[0][1] == 1
    with pytest.raises(ValueError, match="released before"):
        mechanism.release(ONE_RUN, 1, query, Zeros)


class TestABudgetedStep:
    """What a method asks for may not cost more than what was priced."""

    @staticmethod
    def ask(*queries) -> None:
        mechanism = Mechanism(["run"], 10, 5, noise_multiplier=1.0)
        mechanism.release(ONE_RUN, 1, queries, Zeros)

    def test_mechanism_within_budget_answered(self) -> None:
        self.ask(ClippedGradient(1.0, threshold(1.0)))
        self.ask(ClippedGradient(1.25, threshold(1.0)), ClippedDirection(5 / 3, threshold(1.0)))

    @pytest.mark.parametrize(
        "queries",
        [
            [ClippedGradient(0.99, torch.ones(1))],
            [ClippedGradient(1.0, torch.ones(1)), ClippedDirection(100.0, torch.ones(1))],
            [PlainGradient()],
        ],
    )
    def test_mechanism_beyond_budget_rejected(self, queries) -> None:
        with pytest.raises(OsoError, match="must be >= the step's, 1"):
            self.ask(*queries)

    @pytest.mark.parametrize("less", [1e-8, 1e-2])
    @pytest.mark.parametrize("budget", [0.3, 1.0, 40.0])
    def test_mechanism_slightly_beyond_budget_rejected(self, budget: float, less: float) -> None:
        mechanism = Mechanism(["run"], 10, 5, noise_multiplier=budget)
        with pytest.raises(OsoError, match="must be >= the step's"):
            mechanism.release(
                ONE_RUN, 1, [ClippedGradient(budget * (1 - less), threshold(1.0))], Zeros
            )
        assert mechanism.ledgers[0].step_count == 0

    @pytest.mark.parametrize("nu", [-1.0, math.nan, math.inf])
    def test_mechanism_invalid_noise_rejected(self, nu: float) -> None:
        with pytest.raises(OsoError, match="noise_multiplier"):
            self.ask(ClippedGradient(nu, threshold(1.0)))

    def test_mechanism_foreign_query_rejected(self) -> None:
        """A query class from outside the package could state any sensitivity."""

        class Mine(ClippedGradient):
            def sensitivity(self, runs: slice) -> float:
                return 1e-9

        with pytest.raises(OsoError, match=r"must be a class of oso_dp\.privacy\.queries"):
            self.ask(Mine(1.0, threshold(1.0)))


def test_mechanism_duplicate_query_rejected() -> None:
    mechanism = Mechanism(["run"], records=10, batch_size=5)
    twice = [ClippedGradient(1.0, threshold(1.0)), ClippedGradient(2.0, threshold(1.0))]
    for use in (mechanism.check_queries, lambda asked: mechanism.release(ONE_RUN, 1, asked, Zeros)):
        with pytest.raises(OsoError, match="share noise"):
            use(twice)
    assert mechanism.ledgers[0].steps == []


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "NoneType; must be a tuple of queries"),
        ((), "tuple; must be a tuple of queries"),
        (ClippedGradient(1.0, threshold(1.0)), "ClippedGradient; must be a tuple of queries"),
        (
            (ClippedGradient,),
            "query .*ClippedGradient.*: ABCMeta; must be a class of oso_dp.privacy",
        ),
        ((None,), "query None: NoneType; must be a class of oso_dp.privacy.queries"),
    ],
)
def test_mechanism_no_queries_rejected(answer, told: str) -> None:
    with pytest.raises(OsoError, match=told):
        Mechanism(["run"], records=10, batch_size=5).check_queries(answer)


@pytest.mark.parametrize(("steps", "rate"), [(3, 0.5), (5, 0.5), (4, 0.4)])
def test_mechanism_resume_mismatched_ledger_rejected(steps: int, rate: float) -> None:
    mechanism = Mechanism(["a"], records=10, batch_size=5)
    ledger = Ledger(PoissonSampling(rate), [((SumQuery("clipped_gradient", 1.0),), steps)])
    with pytest.raises(ValueError, match="must be those of 4 steps"):
        mechanism.resume([ledger], last_step=4)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "steps",
    [
        [((SumQuery("clipped_gradient", -1.0),), 4)],
        [((SumQuery("clipped_gradient", math.nan),), 4)],
        [((SumQuery("clipped_gradient", math.inf),), 4)],
        [((SumQuery("clipped_gradient", 1.0),), 5), ((SumQuery("clipped_gradient", 2.0),), -1)],
        [((), 4)],
        [((SumQuery("clipped_gradient", 1.0),) * 2, 4)],
    ],
)
def test_mechanism_resume_invalid_ledger_rejected(steps, place: int) -> None:
    """A mechanism keeps its own ledgers if one of the new ledgers is invalid."""
    mechanism = Mechanism(["a", "b", "c"], records=10, batch_size=5)
    right = [((SumQuery("clipped_gradient", 1.0),), 4)]
    ledgers = [Ledger(PoissonSampling(0.5), list(right)) for _ in range(3)]
    ledgers[place].steps[:] = steps
    with pytest.raises(OsoError, match="ledger: "):
        mechanism.resume(ledgers, last_step=4)
    assert [ledger.step_count for ledger in mechanism.ledgers] == [0, 0, 0]


@given(nu=st.floats(0.05, 100), ratio=st.floats(1.01, 1000))
def test_gradient_noise_multiplier_inverts_composition(nu: float, ratio: float) -> None:
    gradient = gradient_noise_multiplier(nu, ratio * nu)
    assert gradient > nu
    assert combined_noise_multiplier([gradient, ratio * nu]) == pytest.approx(nu, rel=1e-9)


def test_gradient_noise_multiplier_matches_paper_ratio() -> None:
    assert gradient_noise_multiplier(1.0, 7.124) == pytest.approx(1.01, abs=1e-5)


@pytest.mark.parametrize("query_noise", [0.5, 1.0])
def test_gradient_noise_multiplier_costly_query_rejected(query_noise: float) -> None:
    with pytest.raises(OsoError, match="must be > the step"):
        gradient_noise_multiplier(1.0, query_noise)


def test_combined_noise_multiplier_zero_gives_zero() -> None:
    assert combined_noise_multiplier([1.0, 0.0]) == 0.0


def test_unit_text_states_neighbouring() -> None:
    assert PoissonSampling.neighbouring == "add_or_remove_one"
    for unit in (EXAMPLE, USER):
        assert f"differ by one {unit.name} added or removed" in unit.neighbouring
        assert unit.text.startswith(f"one {unit.name}: ")


def test_randomness_texts_warn_about_seed() -> None:
    assert RANDOMNESS.keys() == SOURCES.keys()
    for name, said in RANDOMNESS.items():
        fresh = SOURCES[name] is SystemEntropy
        assert ("cannot be repeated" in said) == ("cryptographic" in said) == fresh
        assert ("the seed reveals the noise" in said) == (not fresh)
        assert ("For public data only" in said) == (not fresh)


FULL = PoissonSampling(1.0)
LAPLACE_STEP = (SumQuery("a", 5.0, "laplace"), SumQuery("b", 5.0, "laplace"))
PURE_STEP = (SumQuery("c", 4.0, "pure"),)


def test_ledger_other_noise_json_round_trips() -> None:
    ledger = Ledger(FULL, [(LAPLACE_STEP, 7), (PURE_STEP, 3), (ONE, 2)], 1e-7)
    assert Ledger.from_json(ledger.to_json()) == ledger
    assert not ledger.is_gaussian
    plain = Ledger(FULL, [(ONE, 2)])
    assert plain.is_gaussian
    assert "distribution" not in plain.to_json()
    assert "failure" not in plain.to_json()


@pytest.mark.parametrize(
    ("ledger", "message"),
    [
        (Ledger(PoissonSampling(0.5), [(PURE_STEP, 1)]), "pure noise on sampled batches"),
        (Ledger(PoissonSampling(0.5), [(LAPLACE_STEP, 1)]), "laplace noise on sampled batches"),
        (Ledger(FULL, [((SumQuery("a", 1.0, "cauchy"),), 1)]), "distribution 'cauchy'; must be"),
        (Ledger(FULL, [(ONE, 1)], 1.0), "failure: 1.0; must be a number >= 0 and < 1"),
        (Ledger(FULL, [(ONE, 1)], -0.1), "failure: -0.1; must be a number >= 0 and < 1"),
        (Ledger(FULL, [(ONE, 1)], "0"), "failure: '0'; must be a number"),
        (Ledger(FULL, [(PURE_STEP, 0)]), "count: 0; must be an integer >= 1"),
    ],
)
def test_ledger_unpriceable_steps_rejected(ledger, message) -> None:
    for use in (ledger.check, lambda: compute_epsilon([ledger], 1e-5)):
        with pytest.raises(OsoError, match=message):
            use()


def test_ledger_releases_other_noise_rejected() -> None:
    for ledger in (Ledger(FULL, [(PURE_STEP, 1)]), Ledger(FULL, [(ONE, 1)], 1e-9)):
        with pytest.raises(OsoError, match="has noise that is not Gaussian"):
            ledger.releases()


@pytest.mark.parametrize("scale", [0.5, 5.0, 50.0])
def test_compute_epsilon_laplace_matches_dp_accounting(scale) -> None:
    """The cost equals the RDP composition of dp_accounting and is at least its tighter PLD."""
    ledger = Ledger(FULL, [((SumQuery("a", scale, "laplace"), SumQuery("b", scale, "laplace")), 9)])
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.LaplaceDpEvent(scale), 18)
    found = compute_epsilon([ledger], 1e-5)
    assert found == pytest.approx(RdpAccountant().compose(event).get_epsilon(1e-5), rel=1e-8)
    assert found >= PLDAccountant().compose(event).get_epsilon(1e-5) * (1 - 1e-6)
    assert found <= 18 / scale * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("count", [1, 20])
def test_compute_epsilon_pure_matches_randomized_response(epsilon, count) -> None:
    """The cost has a closed form and bounds the exact composition (Kairouz et al. 2015)."""
    ledger = Ledger(FULL, [((SumQuery("c", 1 / epsilon, "pure"),), count)])
    found = compute_epsilon([ledger], 1e-5)
    orders = np.array(RdpAccountant().orders)
    true, false = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    rdp = np.logaddexp(
        orders * math.log(true) + (1 - orders) * math.log(false),
        orders * math.log(false) + (1 - orders) * math.log(true),
    ) / (orders - 1)
    expected, _ = rdp_epsilon(orders, count * rdp, 1e-5)
    assert found == pytest.approx(expected, rel=1e-6)
    # The probability that i of the responses are false, on either data set.
    i = np.arange(count + 1)
    here, there = binom.pmf(i, count, false), binom.pmf(i, count, true)
    exact = float(np.maximum(0, here - math.exp(found) * there).sum())
    assert exact <= 1e-5 * (1 + 1e-9)


@pytest.mark.parametrize("noise", [1e-3, 1.0, 1e3, 1e7, 1e9])
def test_compute_epsilon_pure_extremes_stay_bounded(noise) -> None:
    """The cost is between 0 and its epsilon, also where the closed form cancels or overflows."""
    ledger = Ledger(FULL, [((SumQuery("c", noise, "pure"),), 1)])
    assert 0 <= compute_epsilon([ledger], 1e-12) <= 1 / noise + 0.02  # by the largest order
    many = Ledger(FULL, [((SumQuery("c", noise, "pure"),), 10**9)])
    assert compute_epsilon([many], 1e-12) > 0


@pytest.mark.parametrize("failure", [1e-9, 1e-7, 5e-7])
def test_compute_epsilon_failure_reduces_delta(failure) -> None:
    ledger = Ledger(FULL, [((SumQuery("a", 2.0),), 1)], failure)
    epsilon = compute_epsilon([ledger], 1e-5)
    left = 1e-5 - failure * (1 + math.exp(epsilon))
    assert left > 0
    without = compute_epsilon([Ledger(FULL, ledger.steps)], left)
    assert epsilon == pytest.approx(without, rel=1e-6)
    assert epsilon >= without
    assert epsilon > compute_epsilon([Ledger(FULL, ledger.steps)], 1e-5)


def test_compute_epsilon_failures_add_up() -> None:
    one, two = (Ledger(FULL, [(PURE_STEP, 3)], 1e-6) for _ in range(2))
    both = compute_epsilon([one, two], 1e-5)
    assert both == pytest.approx(compute_epsilon([Ledger(FULL, [(PURE_STEP, 6)], 2e-6)], 1e-5))
    assert compute_epsilon([one, Ledger(FULL, [(PURE_STEP, 3)], 9e-6)], 1e-5) == math.inf
    assert compute_epsilon([Ledger(FULL, [((SumQuery("a", 0.0, "pure"),), 1)])], 1e-5) == math.inf


def test_compute_epsilon_mixed_noise_adds_up() -> None:
    """Gaussian steps on sampled batches and pure steps compose; example and user units do not."""
    training = Ledger(PoissonSampling(0.1), [(ONE, 50)])
    nothing = Ledger(FULL, [((SumQuery("c", 1e6, "pure"),), 1)])
    alone = compute_epsilon([training], 1e-5)
    assert compute_epsilon([training, nothing], 1e-5) == pytest.approx(alone, rel=1e-6)
    assert compute_epsilon([training, Ledger(FULL, [(PURE_STEP, 5)])], 1e-5) > alone + 0.1
    users = Ledger(PoissonSampling(1.0, USER), [(PURE_STEP, 1)])
    with pytest.raises(OsoError, match="protect example and user; must protect one unit"):
        compute_epsilon([training, users], 1e-5)
