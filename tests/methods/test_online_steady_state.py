"""Where Online's rho comes to rest on a quadratic, without noise; findings.md builds on it."""

import pytest
import torch
from tests.methods.test_methods import make

from oso_dp.methods import State
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient

CURVATURE = 2.0
STEPS = 1500


def descent(momentum: float, learning_rate: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Online on CURVATURE x^2 / 2 from x = 1: rho and the gradient at each step.

    Its gradient is scaled to one sign by the direction, so that C goes along with rho.
    """
    state = State(
        parameters=torch.ones(1, 1, dtype=torch.float64),
        learning_rate=torch.tensor([learning_rate], dtype=torch.float64),
        threshold=torch.ones(1, dtype=torch.float64),
        quantile=torch.full((1,), torch.nan),
        noise_multiplier=1.0,
        batch_size=1,
    )
    online, rates, gradients = make("online", momentum), [], []
    for _ in range(STEPS):
        gradient = CURVATURE * state.parameters
        online.update(state, {ClippedGradient: gradient, ClippedDirection: gradient.sign()})
        rates.append(state.learning_rate.clone())
        gradients.append(gradient)
    return torch.cat(rates), torch.cat(gradients)[:, 0]


@pytest.mark.parametrize("start", [1.5, 0.6])
def test_online_rho_with_momentum_settles(start) -> None:
    rates, gradients = descent(0.9, start)
    assert rates[-1] * CURVATURE == pytest.approx(1 + 0.9, rel=0.08)
    products = (gradients[1:] * gradients[:-1]).sign()[-40:]
    turned = (products[1:] != products[:-1]).double().mean()
    assert turned > 0.9  # + - + -: as many up as down
    two_apart = (gradients[2:] * gradients[:-2]).sign()[-40:]
    assert two_apart.mean() < -0.8  # a period of four steps


def test_online_rho_without_momentum_settles() -> None:
    rates, _ = descent(0.0, 0.9)
    assert rates[-1] * CURVATURE == pytest.approx(1, rel=0.02)
