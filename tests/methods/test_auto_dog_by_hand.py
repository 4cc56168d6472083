"""AUTO-DoG with noise by its equations: each run by itself, at any constants."""

import math

import pytest
import torch
from tests.methods.test_auto_dog import R, state, steps
from tests.methods.test_methods import make

SIZE, STEPS, BATCH = 60, 25, 50
CONSTANTS = [
    {"first_distance": 0.1, "scale": 0.5, "certainty": 3.0},
    {"first_distance": 0.01, "scale": 2.0, "certainty": 0.5},
    {"first_distance": 0.5, "scale": 1.0, "certainty": 8.0},
]


def by_hand(first, gradients, nu, threshold, first_distance, scale, certainty) -> list[float]:
    """The rates of one run."""
    size, variance = len(first), (nu * threshold / BATCH) ** 2
    deviation = math.sqrt(2 * size)
    theta, distance = first.double(), first_distance * float(first.double().norm())
    noise = total = spread = 0.0
    rates = []
    for gradient in gradients:
        moved = float((theta - first.double()).norm()) ** 2
        beyond = moved - noise * (size + certainty * deviation)
        distance = max(distance, math.sqrt(max(beyond, 0.0)))
        total += distance**2 * (float(gradient.double().norm()) ** 2 - size * variance)
        spread += (distance**2 * deviation * variance) ** 2
        rates.append(
            scale * distance**2 / math.sqrt(max(total, 0.0) + certainty * math.sqrt(spread))
        )
        noise += rates[-1] ** 2 * variance
        theta = theta - rates[-1] * gradient.double()
    return rates


@pytest.mark.parametrize("constants", CONSTANTS)
@pytest.mark.parametrize("nu", [0.1, 1.0, 4.0])
def test_each_run_has_the_rates_of_its_own_noise_and_way(nu, constants) -> None:
    """Signals of several lengths, so that the distance grows in some runs; C of each is another."""
    torch.manual_seed(5)
    thresholds = torch.tensor([1.0, 0.3, 5.0])
    first = torch.randn(R, SIZE)
    signal = torch.tensor([0.1, 0.5, 1.0])[:, None] * torch.randn(R, SIZE)
    deviation = nu * thresholds[:, None] / BATCH
    gradients = [signal + deviation * torch.randn(R, SIZE) for _ in range(STEPS)]
    mine = state(first, nu, BATCH)
    mine.threshold = thresholds
    rates = steps(make("auto_dog", **constants), mine, gradients)
    begun = constants["first_distance"] * first.norm(dim=1)
    assert (mine.buffers["distance"] > 1.2 * begun).any()  # or `certainty` decided nothing
    for run in range(R):
        own = [gradient[run] for gradient in gradients]
        expected = by_hand(first[run], own, nu, float(thresholds[run]), **constants)
        assert rates[:, run].tolist() == pytest.approx(expected, rel=1e-4)
