"""A method's rule is the same at any step, momentum, batch size, width and size of its numbers."""

import math

import pytest
import torch
from tests.methods.test_methods import P, R, make, state
from torch import Tensor

from oso_dp.methods import State, method_names
from oso_dp.privacy.queries import (
    AutomaticGradient,
    ClippedDirection,
    ClippedGradient,
    PlainGradient,
    UnclippedCount,
)

# Their averages are corrected for the number of steps.
BY_STEP = {"dp_adam", "adam_wosm", "auto_wosm"}
SETTINGS = {"no_dp": {"optimizer": "sgd"}}
STEPS = [4, 100, 512, 1000, 1024, 2048, 4096, 10_000, 65_536, 10**6, 2**30]


def answers_of(method, mine: State, random: torch.Generator) -> dict:
    answers = {}
    for query in method.queries(mine):
        width = P if query.group is None else sum(mine.layers[name] for name in query.group.layers)
        shape = (R,) if getattr(query, "scalar", False) else (R, width)
        answers[query.key] = torch.randn(shape, generator=random)
    return answers


def after(name: str, first: int) -> list[Tensor]:
    """Five steps from this one on, with the same answers."""
    method, mine = make(name, 0.4, **SETTINGS.get(name, {})), state()
    mine.parameters += 1.0
    random = torch.Generator().manual_seed(2)
    for mine.step in range(first, first + 5):
        method.update(mine, answers_of(method, mine, random))
    return [mine.parameters, mine.learning_rate, mine.threshold, *mine.buffers.values()]


@pytest.mark.parametrize("name", [name for name in method_names() if name not in BY_STEP])
def test_method_update_unchanged_at_late_steps(name: str) -> None:
    expected = after(name, 1)
    for step in STEPS:
        for found, right in zip(after(name, step - 3), expected, strict=True):
            assert torch.equal(found, right), step


@pytest.mark.parametrize("size", [1, 2, 513, 60_000])
def test_method_noise_scales_with_batch_size(size: int) -> None:
    """The noise is nu C over the expected batch size; a count's noise is a fraction of it."""
    sigma = 2.0 * torch.tensor([1.0, 2.0, 3.0]).double() / size
    for name, query in (("adam_wosm", ClippedGradient), ("auto_wosm", AutomaticGradient)):
        mine = state(noise_multiplier=2.0)
        mine.batch_size, gradient = size, torch.ones(R, P)
        make(name).update(mine, {query: gradient})
        moved = -(mine.learning_rate / sigma)[:, None].expand(R, P)
        torch.testing.assert_close(mine.parameters.double(), moved, rtol=1e-3, atol=0.0)
    mine = state(noise_multiplier=2.0)
    mine.batch_size, mine.parameters = size, torch.ones(R, P)
    make("auto_dog").update(mine, {AutomaticGradient: torch.zeros(R, P)})
    variance = mine.buffers["noise"] / mine.learning_rate.double() ** 2
    torch.testing.assert_close(variance, sigma**2, rtol=1e-5, atol=0.0)
    for share in (0.05, 0.3):
        for name in ("fixed_quantile", "fixed_quantile_linear", "fixed_quantile_per_layer"):
            noise = make(name, count_noise=share).split_noise(0.01, size)[1]
            assert noise == pytest.approx(2 * share * size)


def learned(name: str, gradients: list[Tensor], directions: list[Tensor]) -> tuple[Tensor, Tensor]:
    """C and rho after these steps of Online."""
    mine = state()
    mine.parameters = torch.zeros(R, gradients[0].shape[1])
    for mine.step, (gradient, direction) in enumerate(zip(gradients, directions, strict=True), 1):
        answers = {ClippedGradient: gradient, ClippedDirection: direction}
        make(name).update(mine, answers)
    return mine.threshold, mine.learning_rate


@pytest.mark.parametrize("name", ["online", "online_additive", "online_scale_invariant"])
@pytest.mark.parametrize("width", [1, 5, 300, 5000, 70_000, 600_000])  # MNIST's has 551,322
def test_online_inner_product_counts_all_coordinates(name: str, width: int) -> None:
    signs = torch.tensor([[1.0], [-1.0], [0.5]])
    alone = learned(name, [torch.ones(R, 1), signs], [torch.ones(R, 1), signs])
    for place in {0, width // 2, width - 1}:
        ones, other = torch.zeros(R, width), torch.zeros(R, width)
        ones[:, place], other[:, place] = 1.0, signs[:, 0]
        found = learned(name, [ones, other], [ones, other])
        for mine, right in zip(found, alone, strict=True):
            torch.testing.assert_close(mine, right)
    assert (alone[0] != state().threshold).all()


@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e12])
def test_online_scale_invariant_ignores_vector_length(scale: float) -> None:
    one, other = torch.tensor([[3.0, 4.0]]).expand(R, 2), torch.tensor([[4.0, 3.0]]).expand(R, 2)
    vectors = [scale * one, scale * other]
    threshold, rate = learned("online_scale_invariant", vectors, vectors)
    moved = 1 + 2.5e-3 * 0.96
    torch.testing.assert_close(threshold / state().threshold, torch.full((R,), moved))
    torch.testing.assert_close(rate / state().learning_rate, torch.full((R,), moved))


BEFORE = torch.tensor([1e2, 1e5, 1e9])


def test_method_additive_updates_unbounded_above() -> None:
    ones = torch.ones(R, P)
    mine, method = state(), make("online_additive", threshold_rate=2.0, learning_rate_rate=0.1)
    mine.threshold, mine.learning_rate = BEFORE, BEFORE / 10
    for mine.step in (1, 2):
        method.update(mine, {ClippedGradient: ones, ClippedDirection: ones})
    torch.testing.assert_close(mine.threshold, BEFORE + 2.0 * BEFORE / 10 * P)
    torch.testing.assert_close(mine.learning_rate, BEFORE / 10 * (1 + 0.1 * P))
    mine, method = state(), make("fixed_quantile_linear", quantile_rate=10.0)
    mine.threshold = BEFORE
    method.update(mine, {ClippedGradient: ones, UnclippedCount: torch.zeros(R)})
    torch.testing.assert_close(mine.threshold, BEFORE - 10.0 * (0.5 - mine.quantile))


LATE = [1, 2, 101, 1001, 100_000]
GRADIENT = torch.tensor([0.5, -2.0, 1.0, 3.0, -0.25], dtype=torch.float64).expand(R, P)


def at(step: int, **memory: torch.Tensor) -> State:
    mine = state(noise_multiplier=2.0)
    for name in ("parameters", "learning_rate", "threshold"):
        setattr(mine, name, getattr(mine, name).double())
    mine.step, mine.buffers = step, memory
    return mine


@pytest.mark.parametrize("step", LATE)
@pytest.mark.parametrize("beta", [0.0, 0.9, 0.9999])
@pytest.mark.parametrize(
    ("name", "query"),
    [("no_dp", PlainGradient), ("dp_adam", ClippedGradient), ("adam_wosm", ClippedGradient)],
)
def test_method_constant_gradient_averaged_exactly(name, query, beta, step) -> None:
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


@pytest.mark.parametrize("step", LATE)
@pytest.mark.parametrize("beta", [0.0, 0.9, 0.999, 0.9999])
def test_auto_wosm_divides_by_average_noise(beta, step) -> None:
    """The noise of the average is that of one gradient times the norm of the weights."""
    weights = (1 - beta) * beta ** torch.arange(step, dtype=torch.float64)
    mine = at(step, mean=torch.zeros(R, P, dtype=torch.float64))
    make("auto_wosm", beta1=beta).update(mine, {AutomaticGradient: GRADIENT})
    noise = 2.0 * mine.threshold / mine.batch_size * math.sqrt(float(weights.square().sum()))
    expected = -(mine.learning_rate / noise)[:, None] * (1 - beta) * GRADIENT
    torch.testing.assert_close(mine.parameters, expected, rtol=1e-6, atol=0.0)
