"""Noise multipliers that others published with their budgets."""

import math

import pytest

from oso_dp.accounting.accountants import compute_epsilon_of_event, make_accountant
from oso_dp.privacy.ledger import composed_event
from oso_dp.privacy.sampling import PoissonSampling

DELTA = 1e-5
# Tramer and Boneh 2021 (arXiv 2011.11660; README.md of github.com/ftramer/Handcrafted-DP): what
# epsilon = 3 at this delta took, without each epoch's last incomplete batch; MNIST's and
# Fashion-MNIST's 60,000 examples and CIFAR-10's 50,000.
PUBLISHED = [(60_000, 512, 40, 1.23), (60_000, 2048, 40, 2.15), (50_000, 1024, 30, 1.54)]


@pytest.mark.parametrize(("examples", "batch", "epochs", "nu"), PUBLISHED)
def test_make_accountant_rdp_matches_published_budget(
    examples: int, batch: int, epochs: int, nu: float
) -> None:
    sampling = PoissonSampling(batch / examples)
    event = composed_event({(sampling, nu): epochs * (examples // batch)})
    accountant = make_accountant("rdp", sampling)
    accountant.compose(event)
    orders = zip(accountant._orders, accountant._rdp, strict=True)
    then = min(rdp + math.log(1 / DELTA) / (order - 1) for order, rdp in orders if order > 1)
    assert then == pytest.approx(3.0, abs=0.01)
    # Today's conversion asks for less of the same curve, and no other accountant for more.
    rdp = compute_epsilon_of_event(sampling, event, DELTA, "rdp")
    assert compute_epsilon_of_event(sampling, event, DELTA, "pld") < rdp < then
    assert rdp == pytest.approx(2.585, abs=0.01)
