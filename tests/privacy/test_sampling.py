"""Sampling scheme, neighbouring relation and accountant: one object, no wrong combination."""

import math
from dataclasses import dataclass
from typing import ClassVar

import dp_accounting
import pytest
from dp_accounting import NeighboringRelation, UnsupportedEventError

from oso_dp.accounting.accountants import compute_epsilon_of_event
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery, composed_event
from oso_dp.privacy.sampling import PoissonSampling, count_steps


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0001, math.nan, math.inf])
def test_a_rate_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(OsoError, match=r"sampling_rate: .*; must be > 0 and <= 1"):
        PoissonSampling(rate)


# MNIST's and AG News' studies; a quarter of an epoch; one example in a step; a batch of them all.
@pytest.mark.parametrize(
    ("epochs", "examples", "batch_size", "steps"),
    [
        (10, 60_000, 512, 1172),
        (5, 120_000, 512, 1172),
        (1, 60_000, 512, 118),
        (0.25, 1000, 64, 4),
        (0.01, 1000, 64, 1),
        (3, 100, 30, 10),
        (2, 7, 1, 14),
        (1.5, 400, 400, 2),
    ],
)
def test_the_last_part_of_an_epoch_is_a_step(
    epochs: float, examples: int, batch_size: int, steps: int
) -> None:
    assert count_steps(epochs, examples, batch_size) == steps


@pytest.mark.parametrize(
    ("batch_size", "examples", "rate"),
    [(512, 60_000, 0.0085333333333333333), (30, 100, 0.3), (7, 7, 1.0), (1, 3, 1 / 3)],
)
def test_a_rate_is_the_batchs_share_of_the_examples(
    batch_size: int, examples: int, rate: float
) -> None:
    assert PoissonSampling.of(batch_size, examples).rate == rate


def test_the_event_is_that_of_the_draw() -> None:
    event = PoissonSampling(0.3).event(dp_accounting.GaussianDpEvent(2.0))
    assert event == dp_accounting.PoissonSampledDpEvent(0.3, dp_accounting.GaussianDpEvent(2.0))


def test_full_batches_get_no_amplification() -> None:
    """q = 1 must cost what the Gaussian mechanism alone costs."""
    step = (SumQuery("g", 2.0),)
    event = Ledger(PoissonSampling(1.0), [(step, 10)]).event()
    plain = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(2.0), 10)
    sampling = PoissonSampling(1.0)
    found = compute_epsilon_of_event(sampling, event, 1e-5, "rdp")
    assert found == pytest.approx(compute_epsilon_of_event(sampling, plain, 1e-5, "rdp"), rel=1e-9)


@pytest.mark.parametrize(
    ("scheme", "relation"),
    [
        ("poisson", "replace_one"),
        ("fixed_size", "add_or_remove_one"),
        ("fixed_size", "replace_one"),
        ("shuffled", "add_or_remove_one"),
    ],
)
def test_stored_combinations_that_the_accountants_are_not_for_are_refused(scheme, relation) -> None:
    stored = {"sampling": scheme, "neighbouring": relation, "sampling_rate": 0.1}
    with pytest.raises(OsoError, match="must be 'poisson' with 'add_or_remove_one'"):
        PoissonSampling.from_json(stored)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_the_accountant_is_made_for_the_samplings_relation(accountant: str) -> None:
    """A scheme for another relation gets another accountant, which refuses these events."""

    @dataclass(frozen=True)
    class Replacing(PoissonSampling):
        neighbouring: ClassVar[str] = "replace_special"

        @property
        def relation(self) -> NeighboringRelation:
            return NeighboringRelation.REPLACE_ONE

        def event(self, sums):
            return dp_accounting.SampledWithoutReplacementDpEvent(1000, 10, sums)

    sampling = Replacing(0.01)
    assert PoissonSampling(0.01).relation is NeighboringRelation.ADD_OR_REMOVE_ONE
    wrong = composed_event({(PoissonSampling(0.01), 1.0): 1})
    if accountant == "rdp":
        with pytest.raises(UnsupportedEventError):
            compute_epsilon_of_event(sampling, wrong, 1e-5, accountant)
    with pytest.raises(UnsupportedEventError):  # batches of fixed size under add-or-remove-one
        compute_epsilon_of_event(
            PoissonSampling(0.01), composed_event({(sampling, 1.0): 1}), 1e-5, accountant
        )
