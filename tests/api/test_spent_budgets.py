"""What is left of a budget is spent to the last thousandth, and not a thousandth more."""

import pytest

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.api.budget import remaining_noise_multiplier
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling

WHOLE, DELTA = PoissonSampling(1.0), 1e-5
SPENT = [Ledger(WHOLE, [((SumQuery("step", 8.0),), 5)])]


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
@pytest.mark.parametrize("share", [0.5, 0.999, 0.9995, 0.99999, 1.0])
def test_budget_below_spent_refused(accountant: str, share: float) -> None:
    budget = share * compute_epsilon(SPENT, DELTA, accountant)
    with pytest.raises(OsoError, match="nothing is left for 3 more steps"):
        remaining_noise_multiplier(WHOLE, 3, budget, DELTA, accountant, SPENT)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
@pytest.mark.parametrize("share", [1.001, 1.01, 1.5, 4.0])
def test_budget_left_never_exceeded(accountant: str, share: float) -> None:
    budget = share * compute_epsilon(SPENT, DELTA, accountant)
    noise = remaining_noise_multiplier(WHOLE, 3, budget, DELTA, accountant, SPENT)
    more = Ledger(WHOLE, [((SumQuery("step", noise),), 3)])
    assert 0.9999 * budget < compute_epsilon([*SPENT, more], DELTA, accountant) <= budget
