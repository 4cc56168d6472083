"""The mechanism's books: each step once, paid for as it was priced, also after a kill."""

import math

import pytest
import torch

from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, PlainGradient, Runs
from oso_dp.privacy.sampling import PoissonSampling


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


ONE = slice(0, 1)


def threshold(value: float) -> torch.Tensor:
    return torch.tensor([value])


def test_a_step_is_answered_once() -> None:
    mechanism = Mechanism(["run"], examples=10, batch_size=5)
    query = [ClippedGradient(1.0, threshold(1.0))]
    mechanism.release(ONE, 3, query, Zeros)
    for step in (3, 2):
        with pytest.raises(ValueError, match="released before"):
            mechanism.release(ONE, step, query, Zeros)


def test_hundreds_of_runs_train_together() -> None:
    assert len(Mechanism([f"run {i}" for i in range(700)], 1000, 50).ledgers) == 700


@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_a_step_is_answered_once_beside_runs_that_have_yet_to_take_it(ahead: int) -> None:
    """Whichever of them is ahead; and those behind are not booked for what was refused."""
    mechanism = Mechanism([f"run {i}" for i in range(5)], examples=10, batch_size=5)
    query = [ClippedGradient(1.0, torch.ones(5))]
    mechanism.release(slice(ahead, ahead + 1), 2, query, Zeros)
    for step in (1, 2):
        with pytest.raises(ValueError, match="released before"):
            mechanism.release(slice(0, 5), step, query, Zeros)
    assert [ledger.step_count for ledger in mechanism.ledgers] == [i == ahead for i in range(5)]


def test_runs_of_one_identity_are_refused() -> None:
    with pytest.raises(OsoError, match=r"share (their )?noise"):
        Mechanism(["same", "same"], examples=10, batch_size=5)


def test_resuming_keeps_the_old_steps_closed() -> None:
    """A step of before the kill would draw its noise again, on other parameters."""
    mechanism = Mechanism(["a"], examples=10, batch_size=5)
    mechanism.resume(
        [Ledger(PoissonSampling(0.5), [((SumQuery("clipped_gradient", 1.0),), 4)])], last_step=4
    )
    query = [ClippedGradient(1.0, threshold(1.0))]
    with pytest.raises(ValueError, match="released before"):
        mechanism.release(ONE, 4, query, Zeros)
    mechanism.release(ONE, 5, query, Zeros)
    assert mechanism.ledgers[0].steps[0][1] == 5


def test_steps_that_were_answered_here_stay_closed_whatever_books_are_taken_up() -> None:
    """Of two steps, the last of them the fifth: their noise has been drawn."""
    mechanism = Mechanism(["a", "b"], examples=10, batch_size=5)
    query = [ClippedGradient(1.0, torch.ones(2))]
    for step in (2, 5):
        mechanism.release(slice(0, 2), step, query, Zeros)
    mechanism.resume(mechanism.ledgers, last_step=2)
    for step in (3, 5):
        with pytest.raises(ValueError, match="released before"):
            mechanism.release(slice(0, 2), step, query, Zeros)
    mechanism.release(slice(0, 2), 6, query, Zeros)
    assert [ledger.step_count for ledger in mechanism.ledgers] == [3, 3]


def test_a_step_that_fails_is_paid_for_and_stays_closed() -> None:
    """Whether it fails may depend on the batch, and its noise would be drawn a second time."""
    mechanism = Mechanism(["run"], examples=10, batch_size=5)
    query = [ClippedGradient(1.0, threshold(1.0))]

    def fail(runs: Runs, batch: torch.Tensor) -> Zeros:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        mechanism.release(ONE, 1, query, fail)
    assert mechanism.ledgers[0].step_count == 1
    with pytest.raises(ValueError, match="released before"):
        mechanism.release(ONE, 1, query, Zeros)


@pytest.mark.parametrize("nu", [-1.0, math.inf, float("inf"), math.nan])
def test_a_budget_that_is_none_is_refused(nu: float) -> None:
    with pytest.raises(OsoError, match="must be >= 0 and finite"):
        Mechanism(["run"], 10, 5, noise_multiplier=nu)


@pytest.mark.parametrize("beside", [[], ["another", "one more"]])
def test_an_identity_that_ends_early_is_refused(beside: list[str]) -> None:
    with pytest.raises(OsoError, match="null character"):
        Mechanism(["run\0noise", *beside], 10, 5)


def test_ended_runs_take_their_books_with_them() -> None:
    mechanism = Mechanism(["a", "b"], examples=10, batch_size=5)
    query = [ClippedGradient(1.0, torch.ones(2))]
    mechanism.release(slice(1, 2), 1, query, Zeros)
    mechanism.keep([1])
    assert mechanism.run_ids == ["b"]
    assert mechanism.ledgers[0].steps[0][1] == 1
    with pytest.raises(ValueError, match="released before"):
        mechanism.release(ONE, 1, query, Zeros)


class TestABudgetedStep:
    """What a method asks for may not cost more than what was priced."""

    @staticmethod
    def ask(*queries) -> None:
        mechanism = Mechanism(["run"], 10, 5, noise_multiplier=1.0)
        mechanism.release(ONE, 1, queries, Zeros)

    def test_is_answered_within_its_price(self) -> None:
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
    def test_is_refused_beyond_its_price(self, queries) -> None:
        with pytest.raises(OsoError, match="must be >= the step's, 1"):
            self.ask(*queries)

    @pytest.mark.parametrize("less", [1e-8, 1e-6, 1e-4, 1e-2, 0.5])
    @pytest.mark.parametrize("budget", [0.3, 1.0, 40.0])
    def test_is_refused_however_little_it_is_beyond(self, budget: float, less: float) -> None:
        mechanism = Mechanism(["run"], 10, 5, noise_multiplier=budget)
        with pytest.raises(OsoError, match="must be >= the step's"):
            mechanism.release(ONE, 1, [ClippedGradient(budget * (1 - less), threshold(1.0))], Zeros)
        assert mechanism.ledgers[0].step_count == 0

    @pytest.mark.parametrize("nu", [-1.0, math.nan, math.inf])
    def test_is_refused_with_noise_that_is_none(self, nu: float) -> None:
        with pytest.raises(OsoError, match="noise_multiplier"):
            self.ask(ClippedGradient(nu, threshold(1.0)))

    def test_is_refused_with_a_query_from_elsewhere(self) -> None:
        """A method that brought its own sensitivity could state any."""

        class Mine(ClippedGradient):
            def sensitivity(self, runs: slice) -> float:
                return 1e-9

        with pytest.raises(OsoError, match=r"must be a class of oso_dp\.privacy\.queries"):
            self.ask(Mine(1.0, threshold(1.0)))


def test_two_queries_of_one_name_are_refused() -> None:
    mechanism = Mechanism(["run"], examples=10, batch_size=5)
    twice = [ClippedGradient(1.0, threshold(1.0)), ClippedGradient(2.0, threshold(1.0))]
    with pytest.raises(ValueError, match=r"share (their )?noise"):
        mechanism.release(ONE, 1, twice, Zeros)


@pytest.mark.parametrize(("steps", "rate"), [(3, 0.5), (5, 0.5), (4, 0.4)])
def test_books_of_other_steps_or_batches_are_not_taken_up(steps: int, rate: float) -> None:
    mechanism = Mechanism(["a"], examples=10, batch_size=5)
    ledger = Ledger(PoissonSampling(rate), [((SumQuery("clipped_gradient", 1.0),), steps)])
    with pytest.raises(ValueError, match="must be those of 4 steps"):
        mechanism.resume([ledger], last_step=4)


@pytest.mark.parametrize("counts", [(4, 3), (3, 4)])
def test_books_of_several_runs_are_taken_up_only_where_each_has_every_step(counts) -> None:
    mechanism = Mechanism(["a", "b"], examples=10, batch_size=5)
    queries = (SumQuery("clipped_gradient", 1.0),)
    ledgers = [Ledger(PoissonSampling(0.5), [(queries, count)]) for count in counts]
    with pytest.raises(ValueError, match="must be those of 4 steps"):
        mechanism.resume(ledgers, last_step=4)


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
def test_books_that_no_mechanism_writes_are_not_taken_up(steps, place: int) -> None:
    """Of so many steps at the right rate; and the books that were here stay."""
    mechanism = Mechanism(["a", "b", "c"], examples=10, batch_size=5)
    right = [((SumQuery("clipped_gradient", 1.0),), 4)]
    ledgers = [Ledger(PoissonSampling(0.5), list(right)) for _ in range(3)]
    ledgers[place].steps[:] = steps
    with pytest.raises(OsoError, match="ledger: "):
        mechanism.resume(ledgers, last_step=4)
    assert [ledger.step_count for ledger in mechanism.ledgers] == [0, 0, 0]
