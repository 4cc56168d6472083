"""Groups of layers: their shares cost what was budgeted, and their sums are clipped as stated."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from oso_dp.errors import OsoError
from oso_dp.gradients import GradientCode
from oso_dp.models.losses import LOSSES
from oso_dp.privacy.groups import (
    Group,
    dimension_adjusted_noise,
    dimension_adjusted_thresholds,
    equal_thresholds,
    proportional_noise,
)
from oso_dp.privacy.mechanism import Mechanism, _sums
from oso_dp.privacy.noise_split import combined_noise_multiplier
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, UnclippedCount

SIZES = st.lists(st.integers(1, 10_000), min_size=1, max_size=8)


@given(nu=st.floats(0.1, 50), sizes=SIZES)
def test_both_ways_to_share_the_noise_cost_one_sum(nu: float, sizes: list[int]) -> None:
    for shares in (proportional_noise(nu, len(sizes)), dimension_adjusted_noise(nu, sizes)):
        assert combined_noise_multiplier(shares) == pytest.approx(nu, rel=1e-9)


@given(threshold=st.floats(0.1, 50), sizes=SIZES)
def test_both_ways_to_share_the_threshold_bound_the_whole(threshold, sizes) -> None:
    for shares in (
        equal_thresholds(threshold, len(sizes)),
        dimension_adjusted_thresholds(threshold, sizes),
    ):
        assert math.hypot(*shares) == pytest.approx(threshold, rel=1e-9)


@given(nu=st.floats(0.1, 50), threshold=st.floats(0.1, 50), sizes=SIZES)
def test_dimension_adjusted_noise_is_alike_per_coordinate_mean_square(nu, threshold, sizes) -> None:
    """sigma_g proportional to S_g / sqrt(d_g), the largest root mean square of a coordinate."""
    bounds = equal_thresholds(threshold, len(sizes))
    noise = dimension_adjusted_noise(nu, sizes)
    ratios = [n * s / (s / math.sqrt(d)) for n, s, d in zip(noise, bounds, sizes, strict=True)]
    assert max(ratios) == pytest.approx(min(ratios), rel=1e-9)


@pytest.mark.parametrize(
    ("layers", "scales", "message"),
    [
        ((), None, "at least one layer"),
        (("a", "a"), None, "each once"),
        (("a", "b"), (1.0,), "1 scales for 2 layers"),
        (("a", "b"), (1.0, 0.0), "must be 1e-12 to 1e12"),
        (("a", "b"), (1.0, 1e13), "must be 1e-12 to 1e12"),
        (("a", "b"), (1.0, math.inf), "must be 1e-12 to 1e12"),
        (("a", "b"), (1.0, math.nan), "must be 1e-12 to 1e12"),
    ],
)
def test_impossible_groups_are_refused(layers, scales, message) -> None:
    with pytest.raises(OsoError, match=message):
        Group("g", layers, scales)


def network() -> GradientCode:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)
    )
    return GradientCode(model, LOSSES["accuracy"])


def batch(count: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 1, 4, 4, generator=generator)
    return inputs, torch.randint(3, (count,), generator=generator)


def flat_parameters(code: GradientCode) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(code.model.parameters()).detach()


def per_example(code: GradientCode, inputs, targets) -> dict[str, torch.Tensor]:
    """Each layer's gradients [B, P of the layer], one example at a time by autograd."""
    flat, rows = flat_parameters(code), []
    for i in range(len(inputs)):
        leaf = flat.clone().requires_grad_(True)
        loss = code.loss(code.outputs(leaf, inputs[i : i + 1]), targets[i : i + 1]).sum()
        rows.append(torch.autograd.grad(loss, leaf)[0])
    parts = torch.stack(rows).split(list(code.layer_sizes.values()), dim=1)
    return dict(zip(code.layer_sizes, parts, strict=True))


GROUPS = (Group("conv", ("0",)), Group("rest", ("5", "3"), (0.5, 2.0)))


def clipped_sum(gradients: dict[str, torch.Tensor], group: Group, threshold: float) -> torch.Tensor:
    """By the paper's definition: scale, clip, sum, scale back."""
    parts = [gradients[n] / a for n, a in zip(group.layers, group.layer_scales, strict=True)]
    scaled = torch.cat(parts, dim=1)
    clipped = scaled * (threshold / scaled.norm(dim=1, keepdim=True)).clamp(max=1)
    back = [torch.full((parts[i].shape[1],), a) for i, a in enumerate(group.layer_scales)]
    return clipped.sum(dim=0) * torch.cat(back)


@pytest.mark.parametrize("threshold", [0.05, 0.5, 100.0])
def test_each_group_is_clipped_as_one_scaled_vector(threshold: float) -> None:
    code = network()
    inputs, targets = batch(6)
    queries = [ClippedGradient(1.0, torch.tensor([threshold]), group) for group in GROUPS]
    found = _sums(queries, 0, code(flat_parameters(code), inputs, targets))
    gradients = per_example(code, inputs, targets)
    for group, total in zip(GROUPS, found, strict=True):
        torch.testing.assert_close(total, clipped_sum(gradients, group, threshold))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), threshold=st.sampled_from([0.01, 0.3, 5.0]))
def test_neighbours_differ_by_at_most_each_groups_sensitivity(seed: int, threshold: float) -> None:
    """In the scaled vector of each group, for every kind of query."""
    code = network()
    inputs, targets = batch(5, seed)
    queries = [
        kind(1.0, torch.tensor([threshold]), group)
        for kind in (ClippedGradient, ClippedDirection, UnclippedCount)
        for group in GROUPS
    ]
    flat = flat_parameters(code)
    with_it = _sums(queries, 0, code(flat, inputs, targets))
    without = _sums(queries, 0, code(flat, inputs[1:], targets[1:]))
    for query, a, b in zip(queries, with_it, without, strict=True):
        difference = a - b
        if not query.scalar:
            sizes = torch.tensor([code.layer_sizes[layer] for layer in query.group.layers])
            scales = torch.tensor(query.group.layer_scales).repeat_interleave(sizes)
            difference = difference / scales
        bound = query.sensitivity(0)
        assert difference.norm() <= bound * (1 + 1e-5) + 1e-5, query.name


def test_a_groups_noise_is_on_its_layers_scales_and_its_name_in_the_ledger() -> None:
    code = network()
    inputs, targets = batch(0)
    nu, threshold = 3.0, 2.0
    group = Group("rest", ("5", "3"), (0.5, 4.0))
    query = ClippedGradient(nu, torch.tensor([threshold]), group)
    mechanism = Mechanism(["run"], examples=100, batch_size=10)
    draws = [
        mechanism.release(0, step, [query], lambda _: code(flat_parameters(code), inputs, targets))
        for step in range(1, 301)
    ]
    noise = torch.stack([answer["clipped_gradient/rest"] for answer in draws]) * 10
    first = code.layer_sizes["5"]
    assert noise[:, :first].std().item() == pytest.approx(nu * threshold * 0.5, rel=0.03)
    assert noise[:, first:].std().item() == pytest.approx(nu * threshold * 4.0, rel=0.03)
    (entry,), count = mechanism.ledgers[0].steps[0]
    assert (entry.name, entry.noise_multiplier, count) == ("clipped_gradient/rest", nu, 300)


@pytest.mark.parametrize("together", [False, True])
def test_a_groups_answer_is_its_sum_and_nothing_else(together: bool) -> None:
    """With next to no noise: neither the scaling nor what is done to the noise changes the sum."""
    code = network()
    inputs, targets = batch(30)
    flat = flat_parameters(code)
    queries = [ClippedGradient(1e-9, torch.full((2,), 0.3), group) for group in GROUPS]
    mechanism = Mechanism(["a", "b"], examples=30, batch_size=30)
    runs, flats = (slice(0, 2), flat.expand(2, -1)) if together else (1, flat)
    answers = mechanism.release(
        runs, 1, queries, lambda rows: code(flats, inputs[rows], targets[rows])
    )
    gradients = per_example(code, inputs, targets)
    for group, query in zip(GROUPS, queries, strict=True):
        expected = clipped_sum(gradients, group, 0.3) / 30
        answer = answers[query.name][1] if together else answers[query.name]
        torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-7)


def test_groups_get_noise_of_their_own() -> None:
    code = network()
    inputs, targets = batch(0)
    queries = [
        ClippedGradient(1.0, torch.ones(1), Group(name, ("3",))) for name in ("one", "another")
    ]
    mechanism = Mechanism(["run"], examples=100, batch_size=10)
    answers = [
        mechanism.release(0, s, queries, lambda _: code(flat_parameters(code), inputs, targets))
        for s in range(1, 60)
    ]
    pairs = [torch.cat([a[name] for a in answers]) for name in answers[0]]
    assert torch.corrcoef(torch.stack(pairs))[0, 1].abs() < 0.1


def test_an_example_that_is_too_long_in_one_group_counts_in_no_other() -> None:
    torch.manual_seed(1)
    code = GradientCode(
        nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)), LOSSES["accuracy"]
    )
    flat = flat_parameters(code)
    flat[:8] = 0.0  # the first layer's weights: its outputs stay finite, its gradients do not
    inputs, targets = torch.ones(3, 2), torch.tensor([0, 1, 2])
    inputs[1] = 1e25
    queries = [
        kind(1.0, torch.tensor([0.3]), Group(name, (name,)))
        for kind in (ClippedGradient, ClippedDirection, UnclippedCount)
        for name in ("0", "2")
    ]
    keep = torch.tensor([0, 2])
    found = _sums(queries, 0, code(flat, inputs, targets))
    expected = _sums(queries, 0, code(flat, inputs[keep], targets[keep]))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_an_example_that_is_not_finite_counts_in_no_group() -> None:
    """Not even as unclipped in a group whose own part of the gradient is finite."""
    code = network()
    inputs, targets = batch(4)
    inputs[2] = math.nan
    queries = [
        kind(1.0, torch.tensor([0.3]), group)
        for kind in (ClippedGradient, ClippedDirection, UnclippedCount)
        for group in GROUPS
    ]
    keep = torch.tensor([0, 1, 3])
    flat = flat_parameters(code)
    found = _sums(queries, 0, code(flat, inputs, targets))
    expected = _sums(queries, 0, code(flat, inputs[keep], targets[keep]))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
