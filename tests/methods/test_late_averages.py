"""Averages that are corrected for their first steps: right at any decay, however late it is.

Near a decay of one the first steps are thousands, and what is right at the usual decay is not.
"""

import math

import pytest
import torch
from tests.methods.test_methods import P, R, make, state

from oso_dp.methods import State
from oso_dp.privacy.queries import AutomaticGradient, ClippedGradient, PlainGradient

STEPS = [1, 2, 101, 1001, 100_000]
GRADIENT = torch.tensor([0.5, -2.0, 1.0, 3.0, -0.25], dtype=torch.float64).expand(R, P)


def at(step: int, **memory: torch.Tensor) -> State:
    mine = state(noise_multiplier=2.0)
    for name in ("parameters", "learning_rate", "threshold"):
        setattr(mine, name, getattr(mine, name).double())
    mine.step, mine.buffers = step, memory
    return mine


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("beta", [0.0, 0.9, 0.9999])
@pytest.mark.parametrize(
    ("name", "query"),
    [("no_dp", PlainGradient), ("dp_adam", ClippedGradient), ("adam_wosm", ClippedGradient)],
)
def test_a_gradient_that_stays_is_its_own_average(name, query, beta, step) -> None:
    """Of both averages, at one decay or two."""
    second = {"beta2": 0.9999} if name != "adam_wosm" else {}
    method = make(name, beta1=beta, stabiliser=1e-12, **second)
    before = step - 1
    mine = at(
        step,
        mean=(1 - beta**before) * GRADIENT,
        square=(1 - 0.9999**before) * GRADIENT.square(),
    )
    method.update(mine, {query: GRADIENT})
    size = GRADIENT.sign()
    if name == "adam_wosm":
        size = GRADIENT / (2.0 * mine.threshold[:, None] / mine.batch_size)
    expected = -mine.learning_rate[:, None] * size
    torch.testing.assert_close(mine.parameters, expected, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("beta", [0.0, 0.9, 0.999, 0.9999])
def test_auto_wosm_divides_by_the_averages_noise(beta, step) -> None:
    """Of the weights that t gradients have in it, each squared and added up."""
    weights = (1 - beta) * beta ** torch.arange(step, dtype=torch.float64)
    mine = at(step, mean=torch.zeros(R, P, dtype=torch.float64))
    make("auto_wosm", beta1=beta).update(mine, {AutomaticGradient: GRADIENT})
    noise = 2.0 * mine.threshold / mine.batch_size * math.sqrt(float(weights.square().sum()))
    expected = -(mine.learning_rate / noise)[:, None] * (1 - beta) * GRADIENT
    torch.testing.assert_close(mine.parameters, expected, rtol=1e-6, atol=0.0)
