"""Accounting against independent check values and against a second library."""

import math
import warnings

import pytest

from oso.errors import OsoError
from oso.privacy.accounting import epsilon_of, grid_noise_multiplier
from oso.privacy.joint import gradient_noise_multiplier
from oso.privacy.ledger import Ledger, SumQuery

DELTA = 1e-5


def epochs_10(examples: int) -> tuple[float, int]:
    """Sampling rate and steps per run of the paper: 10 epochs, batch size 512."""
    return 512 / examples, math.ceil(10 * examples / 512)


# (examples, epsilon, runs in the grid) -> noise multiplier, from an independent computation.
CHECK = {
    (60_000, 3, 1): 0.837,
    (60_000, 3, 9): 1.498,
    (60_000, 3, 81): 4.008,
    (60_000, 9, 5): 0.724,
    (60_000, 9, 9): 0.815,
    (60_000, 9, 81): 1.677,
    (120_000, 3, 7): 1.063,
    (120_000, 3, 81): 2.871,
}


@pytest.mark.parametrize(("case", "expected"), CHECK.items())
def test_noise_multipliers_match_the_check_values(case, expected) -> None:
    examples, epsilon, runs = case
    rate, steps = epochs_10(examples)
    found = grid_noise_multiplier(epsilon, DELTA, rate, steps, runs)
    assert found == pytest.approx(expected, rel=0.01)


def test_the_grid_spends_its_budget_and_no_more() -> None:
    """From the ledgers that Online writes: nine runs, two sums a step, one budget."""
    rate, steps = epochs_10(60_000)
    nu = grid_noise_multiplier(3.0, DELTA, rate, steps, runs=9)
    nu_q = 7.124 * nu
    step = (SumQuery("g", gradient_noise_multiplier(nu, nu_q)), SumQuery("q", nu_q))
    spent = epsilon_of([Ledger(rate, [(step, steps)])] * 9, DELTA)
    assert spent <= 3.0 + 1e-6
    assert spent == pytest.approx(3.0, rel=1e-3)


def test_opacus_agrees() -> None:
    from opacus.accountants import RDPAccountant

    rate, steps = epochs_10(60_000)
    nu = grid_noise_multiplier(3.0, DELTA, rate, steps, runs=9)
    opacus = RDPAccountant()
    opacus.history = [(nu, rate, steps * 9)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the best order lying at the range's end
        assert opacus.get_epsilon(DELTA) == pytest.approx(3.0, rel=0.01)


def test_more_runs_need_more_noise() -> None:
    noise = [grid_noise_multiplier(3.0, DELTA, 0.01, 100, runs) for runs in (1, 9, 81)]
    assert noise == sorted(noise)
    assert noise[0] < noise[-1]


@pytest.mark.parametrize("epsilon", [1e-9, 1e9])
def test_a_budget_that_no_noise_meets_is_refused(epsilon: float) -> None:
    with pytest.raises(OsoError, match="epsilon"):
        grid_noise_multiplier(epsilon, DELTA, 0.01, 100, 9)
