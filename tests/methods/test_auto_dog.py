"""AUTO-DoG: distance over gradients of what is left when the known noise is taken off."""

import math

import pytest
import torch
from tests.methods.test_methods import make

from oso_dp.methods import State
from oso_dp.privacy.queries import AutomaticGradient

R = 3


def state(first, noise_multiplier=1.0, batch_size=100) -> State:
    """R runs that begin with `first`, [P] or [R, P], with C = 1."""
    return State(
        parameters=torch.as_tensor(first).expand(R, -1).clone(),
        learning_rate=torch.full((R,), 0.01),
        threshold=torch.ones(R),
        quantile=torch.full((R,), math.nan),
        noise_multiplier=noise_multiplier,
        batch_size=batch_size,
    )


def steps(method, mine, gradients):
    """One step for each of the gradients, [R, P]; the rates, [steps, R]."""
    rates = []
    for gradient in gradients:
        mine.step += 1
        method.update(mine, {AutomaticGradient: gradient})
        rates.append(mine.learning_rate.clone())
    return torch.stack(rates)


def test_auto_dog_queries_normalised_gradient() -> None:
    method = make("auto_dog")
    (query,) = method.queries(state(torch.ones(4), 2.0))
    assert (type(query), query.noise_multiplier, query.stabiliser) == (AutomaticGradient, 2.0, 0.01)
    assert make("auto_dog", stabiliser=0.5).queries(state(torch.ones(4)))[0].stabiliser == 0.5
    assert method.search == ()
    assert method.initial_values({})["threshold"] == 1.0
    assert not method.uses_momentum


@pytest.mark.parametrize(("nu", "size"), [(0.5, 100), (4.0, 2000)])
def test_auto_dog_noise_keeps_distance(nu, size) -> None:
    """Noise alone leaves the distance unchanged; without the correction it grows a hundredfold."""
    torch.manual_seed(2)
    first = torch.randn(400)
    mine = state(first, nu, size)
    noise = (nu / size * torch.randn(R, 400) for _ in range(3000))
    rates = steps(make("auto_dog", certainty=5.0), mine, noise)
    r = 0.1 * float(first.norm())
    assert mine.buffers["distance"] == pytest.approx(torch.full((R,), r).double(), rel=1e-4)
    assert float((mine.parameters - first).norm(dim=1).min()) > 3 * r  # as far as noise did take it
    assert rates.isfinite().all()


def _squares(rates, signal):
    """sum r_i^2 s^2, from the rates: r is what s and they took theta to."""
    before = torch.cat([torch.zeros(1, R), rates[:-1]]).double().cumsum(dim=0)
    return (float(signal.norm()) ** 4 * before**2).sum(dim=0)


@pytest.mark.parametrize("part", [0.1, 0.3, 1.0])  # of the noise's length in a gradient
def test_auto_dog_distance_follows_signal(part) -> None:
    """A constant signal of length s takes theta as far as s times the sum of the rates."""
    torch.manual_seed(3)
    many, nu, size = 10_000, 2.0, 50
    sigma = nu / size
    signal = torch.zeros(many)
    signal[:100] = part * sigma * math.sqrt(many) / 10
    mine = state(torch.randn(many), nu, size)
    rates = steps(
        make("auto_dog"), mine, (signal + sigma * torch.randn(R, many) for _ in range(300))
    )
    reached = float(signal.norm()) * rates[:-1].double().sum(dim=0)
    distance = mine.buffers["distance"]
    assert (distance > 10 * 0.1 * math.sqrt(many) / 10).all()  # it grew
    assert (distance / reached).tolist() == pytest.approx([0.9] * R, abs=0.2)  # rather less
    # The sum is that of the signal's squares: of all squares it would be up to a hundredfold.
    share = mine.buffers["gradients"] / _squares(rates, signal)
    assert share.tolist() == pytest.approx([1.0] * R, abs=0.5)  # with the noise 101 at 0.1


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_auto_dog_scale_has_no_effect(factor) -> None:
    """The rate compensates for a scale of the gradients that comes from nu or from C."""
    torch.manual_seed(4)
    first, signal = torch.randn(50), torch.randn(50)
    noise = [torch.randn(R, 50) for _ in range(60)]
    plain, other, scaled = state(first), state(first), state(first, noise_multiplier=factor)
    other.threshold = torch.full((R,), factor)
    for mine in (plain, other, scaled):
        by = 1.0 if mine is plain else factor
        steps(make("auto_dog"), mine, [by * 0.01 * (signal + one) for one in noise])
    torch.testing.assert_close(other.parameters, plain.parameters, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(scaled.parameters, plain.parameters, rtol=1e-3, atol=1e-4)


def test_auto_dog_changing_noise_accumulated() -> None:
    """A later noise multiplier does not change the accumulated noise of earlier steps."""
    torch.manual_seed(6)
    mine, method = state(torch.randn(400), 1.0), make("auto_dog", certainty=5.0)
    first = steps(method, mine, (0.01 * torch.randn(R, 400) for _ in range(200)))
    mine.noise_multiplier = 0.05
    later = steps(method, mine, (0.0005 * torch.randn(R, 400) for _ in range(200)))
    expected = (first.double() ** 2).sum(0) * 1e-4 + (later.double() ** 2).sum(0) * 0.0005**2
    torch.testing.assert_close(mine.buffers["noise"], expected, rtol=1e-4, atol=0)


def test_auto_dog_negative_gradient_sum_kept() -> None:
    """Clamping the negative sum to zero would make all later rates too small."""
    many, variance = 8, 1e-4
    mine = state(torch.ones(many))
    none, more = torch.zeros(R, many), torch.full((R, many), 2 * math.sqrt(variance))
    steps(make("auto_dog"), mine, [none])
    square = mine.buffers["distance"] ** 2
    torch.testing.assert_close(mine.buffers["gradients"], -square * many * variance)
    steps(make("auto_dog"), mine, [more])
    # Of four times the noise's squares, twice those are taken off.
    torch.testing.assert_close(mine.buffers["gradients"], square * 2 * many * variance)


def test_auto_dog_zero_weights_move() -> None:
    mine = state(torch.zeros(6))
    steps(make("auto_dog"), mine, [torch.ones(R, 6)])
    assert mine.buffers["distance"].tolist() == pytest.approx([0.1] * R)
    assert (mine.parameters < 0).all()


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
def test_auto_dog_rates_match_formula(nu, constants) -> None:
    """The runs have different signals and C, and the distance grows in some of them."""
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
