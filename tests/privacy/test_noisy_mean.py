"""A noisy mean over private examples: its noise, its books, and what one example can do to it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import SumQuery
from oso_dp.privacy.noisy_mean import NoisyMean
from oso_dp.privacy.rng_sources import Seeded, SystemEntropy


class NoNoise(Seeded):
    def normals(self, *asked, **more):
        return super().normals(*asked, **more) * 0


@pytest.mark.parametrize("source", [Seeded(), SystemEntropy()])
def test_its_noise_is_half_of_nu_and_fresh_for_every_model(source) -> None:
    share = NoisyMean(500, 8.0, source)
    values = torch.rand(500, dtype=torch.float64)
    errors = [
        share.release(f"a/{run}", lambda: values) - float(values.mean()) for run in range(3000)
    ]
    std = torch.tensor(errors).std().item()
    assert share.std == 0.5 * 8.0 / 500
    assert std == pytest.approx(share.std, rel=0.07)  # five standard deviations
    assert len(set(errors)) > 2990  # rounded to float32, a few may be alike
    assert abs(sum(errors) / 3000) < 5 * share.std / math.sqrt(3000)


@pytest.mark.parametrize(("examples", "nu"), [(1, 0.5), (7, 3.25), (500, 8.0), (60_000, 123.456)])
def test_its_noise_is_this_one_to_the_last_bit(examples: int, nu: float) -> None:
    """Nothing a few hundredths smaller, which no sample of it would tell."""
    values = torch.rand(examples, dtype=torch.float64)
    (noise,) = Seeded().normals(["a"], f"noise/score/{nu:.7g}", 1, (1,))[0]
    total = (values - 0.5).sum() + float(noise) * nu * 0.5
    found = NoisyMean(examples, nu, Seeded()).release("a", lambda: values)
    assert found == float(total.float()) / examples + 0.5


def test_a_score_that_fails_is_paid_for_and_not_taken_again() -> None:
    """Whoever sees the error may have seen values."""

    def values():
        raise KeyError("mistake")

    share = NoisyMean(50, 2.0, Seeded())
    with pytest.raises(KeyError):
        share.release("a", values)
    assert share.ledger.steps == [((SumQuery("score", 2.0),), 1)]
    with pytest.raises(ValueError, match="scored before"):
        share.release("a", lambda: torch.ones(50))
    assert share.ledger.step_count == 1


def test_every_answer_is_in_the_ledger_and_none_is_given_twice() -> None:
    share = NoisyMean(50, 2.0, Seeded())
    for run in range(7):
        share.release(f"{run}", lambda: torch.ones(50))
    assert share.ledger.steps == [((SumQuery("score", 2.0),), 7)]
    assert share.ledger.sampling.rate == 1.0
    # Seven Gaussian sums on all examples are one of the root of a seventh of the noise.
    whole = NoisyMean(50, 2.0 / math.sqrt(7), Seeded())
    whole.release("0", lambda: torch.ones(50))
    assert compute_epsilon([share.ledger], 1e-5) == pytest.approx(
        compute_epsilon([whole.ledger], 1e-5)
    )
    with pytest.raises(ValueError, match="scored before"):
        share.release("3", lambda: torch.ones(50))
    assert share.ledger.step_count == 7


@pytest.mark.parametrize("nus", [(2, 3), (2.0, 2.01), (1.234567, 1.234568), (12345.6, 12345.7)])
def test_other_noise_of_one_name_is_other_noise(nus) -> None:
    one, other = (
        (NoisyMean(50, nu, Seeded()).release("a", lambda: torch.ones(50)) - 1) / nu for nu in nus
    )
    assert one != pytest.approx(other, rel=1e-3)


@given(st.lists(st.floats(width=32), min_size=1, max_size=9), st.floats(width=32))
def test_one_example_moves_the_sum_by_its_sensitivity_at_most(values, more) -> None:
    """Whatever a score is: infinite, no number, far outside of [0, 1]."""

    def total(numbers) -> float:
        share = NoisyMean(len(numbers), 1.0, NoNoise())
        return (share.release("a", lambda: torch.tensor(numbers)) - 0.5) * len(numbers)

    assert abs(total([*values, more]) - total(values)) <= 0.5 + 1e-6  # rounded, after the noise


def test_a_score_per_example_or_none() -> None:
    with pytest.raises(OsoError, match=r"scores: shape \[2\]; must be \[3\]"):
        NoisyMean(3, 1.0, Seeded()).release("a", lambda: torch.ones(2))
    with pytest.raises(OsoError, match="must be > 0"):
        NoisyMean(3, 0.0, Seeded())


def test_an_answer_has_no_more_digits_than_float32() -> None:
    """The last digits of a float64 sum would show which noise was possible."""
    share = NoisyMean(1, 2.0, SystemEntropy())
    for run in range(9):
        noisy = share.release(f"{run}", lambda: torch.full((1,), 0.3)) - 0.5
        assert noisy == pytest.approx(torch.tensor(noisy).float().item(), rel=1e-15)


def test_what_is_no_score_counts_as_none_or_all() -> None:
    given = {math.nan: 0.0, -math.inf: 0.0, math.inf: 1.0, 7.0: 1.0, 0.25: 0.25}
    for value, counts in given.items():
        share = NoisyMean(1, 1.0, NoNoise())
        assert share.release("a", lambda one=value: torch.tensor([one])) == counts
