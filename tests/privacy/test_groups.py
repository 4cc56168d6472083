"""Groups of layers: their shares cost what was budgeted, and their sums are clipped as stated."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.helpers import always_empty, released, sums_of_one
from torch import nn

from oso_dp.errors import OsoError
from oso_dp.gradients import BatchGradients, GradientEngine
from oso_dp.models.losses import LOSSES
from oso_dp.privacy.noise_composition import LayerGroup, equal_thresholds, proportional_noise
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.noise_composition import combined_noise_multiplier
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, Runs, UnclippedCount


@given(nu=st.floats(0.1, 50), groups=st.integers(1, 500))
def test_shares_of_the_noise_cost_one_sum(nu: float, groups: int) -> None:
    shares = proportional_noise(nu, groups)
    assert len(shares) == groups
    assert combined_noise_multiplier(shares) == pytest.approx(nu, rel=1e-9)


@given(threshold=st.floats(0.1, 50), groups=st.integers(1, 500))
def test_shares_of_the_threshold_bound_the_whole(threshold: float, groups: int) -> None:
    shares = equal_thresholds(threshold, groups)
    assert len(shares) == groups
    assert math.hypot(*shares) == pytest.approx(threshold, rel=1e-9)


@pytest.mark.parametrize(
    ("layers", "message"), [((), "at least one layer"), (("a", "a"), "no layer twice")]
)
def test_impossible_groups_are_refused(layers, message) -> None:
    with pytest.raises(OsoError, match=message):
        LayerGroup("g", layers)


def network() -> GradientEngine:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)
    )
    return GradientEngine(model, LOSSES["accuracy"])


def batch(count: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 1, 4, 4, generator=generator)
    return inputs, torch.randint(3, (count,), generator=generator)


def flat_parameters(code: GradientEngine) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(code.model.parameters()).detach()


def per_example(code: GradientEngine, inputs, targets) -> dict[str, torch.Tensor]:
    """Each layer's gradients [B, P of the layer], one example at a time by autograd."""
    flat, rows = flat_parameters(code), []
    for i in range(len(inputs)):
        leaf = flat.clone().requires_grad_(True)
        loss = code.loss(code.outputs(leaf, inputs[i : i + 1]), targets[i : i + 1]).sum()
        rows.append(torch.autograd.grad(loss, leaf)[0])
    parts = torch.stack(rows).split(list(code.layer_sizes.values()), dim=1)
    return dict(zip(code.layer_sizes, parts, strict=True))


GROUPS = (LayerGroup("conv", ("0",)), LayerGroup("rest", ("5", "3")))


def clipped_sum(
    gradients: dict[str, torch.Tensor], group: LayerGroup, threshold: float
) -> torch.Tensor:
    """By the paper's definition: clip the group's layers as one vector, sum."""
    whole = torch.cat([gradients[name] for name in group.layers], dim=1)
    clipped = whole * (threshold / whole.norm(dim=1, keepdim=True)).clamp(max=1)
    return clipped.sum(dim=0)


def gradients_at(code: GradientEngine, flat: torch.Tensor, inputs, targets) -> BatchGradients:
    """Of one run."""
    return code(flat[None], inputs[None], targets[None])


@pytest.mark.parametrize("threshold", [0.05, 0.5, 100.0])
def test_each_group_is_clipped_as_one_vector(threshold: float) -> None:
    code = network()
    inputs, targets = batch(6)
    queries = [ClippedGradient(1.0, torch.tensor([threshold]), group) for group in GROUPS]
    found = sums_of_one(queries, gradients_at(code, flat_parameters(code), inputs, targets))
    gradients = per_example(code, inputs, targets)
    for group, total in zip(GROUPS, found, strict=True):
        torch.testing.assert_close(total, clipped_sum(gradients, group, threshold))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), threshold=st.sampled_from([0.01, 0.3, 5.0]))
def test_neighbours_differ_by_at_most_each_groups_sensitivity(seed: int, threshold: float) -> None:
    """In each group, for every kind of query."""
    code = network()
    inputs, targets = batch(5, seed)
    queries = [
        kind(1.0, torch.tensor([threshold]), group)
        for kind in (ClippedGradient, ClippedDirection, UnclippedCount)
        for group in GROUPS
    ]
    flat = flat_parameters(code)
    with_it = sums_of_one(queries, gradients_at(code, flat, inputs, targets))
    without = sums_of_one(queries, gradients_at(code, flat, inputs[1:], targets[1:]))
    for query, a, b in zip(queries, with_it, without, strict=True):
        bound = float(query.sensitivity(slice(0, 1)))
        assert (a - b).norm() <= bound * (1 + 1e-5) + 1e-5, query.name


def test_a_groups_noise_is_its_thresholds_and_its_name_in_the_ledger() -> None:
    code = network()
    inputs, targets = batch(0)
    nu, threshold = 3.0, 2.0
    query = ClippedGradient(nu, torch.tensor([threshold]), LayerGroup("rest", ("5", "3")))
    mechanism = always_empty(Mechanism(["run"], examples=100, batch_size=10))
    flat = flat_parameters(code)
    draws = [
        released(mechanism, 0, step, [query], lambda _: gradients_at(code, flat, inputs, targets))
        for step in range(1, 301)
    ]
    noise = torch.stack([answer["clipped_gradient/rest"] for answer in draws]) * 10
    assert noise.std().item() == pytest.approx(nu * threshold, rel=0.03)
    (entry,), count = mechanism.ledgers[0].steps[0]
    assert (entry.name, entry.noise_multiplier, count) == ("clipped_gradient/rest", nu, 300)


@pytest.mark.parametrize("runs", [slice(0, 2), slice(1, 2)])
def test_a_groups_answer_is_its_sum_and_nothing_else(runs: slice) -> None:
    """With next to no noise."""
    code = network()
    inputs, targets = batch(30)
    flat = flat_parameters(code)
    queries = [ClippedGradient(1e-9, torch.full((2,), 0.3), group) for group in GROUPS]
    mechanism = Mechanism(["a", "b"], examples=30, batch_size=30)

    def gradients_of(some: Runs, rows: torch.Tensor) -> BatchGradients:
        return code(flat.expand(len(rows), -1), inputs[rows], targets[rows])

    answers = mechanism.release(runs, 1, queries, gradients_of)
    gradients = per_example(code, inputs, targets)
    for group in GROUPS:
        expected = clipped_sum(gradients, group, 0.3) / 30
        answer = answers[ClippedGradient, group.name][-1]
        torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-7)


def test_groups_get_noise_of_their_own() -> None:
    code = network()
    inputs, targets = batch(0)
    queries = [
        ClippedGradient(1.0, torch.ones(1), LayerGroup(name, ("3",))) for name in ("one", "another")
    ]
    mechanism = always_empty(Mechanism(["run"], examples=100, batch_size=10))
    flat = flat_parameters(code)
    answers = [
        released(mechanism, 0, s, queries, lambda _: gradients_at(code, flat, inputs, targets))
        for s in range(1, 60)
    ]
    pairs = [torch.cat([a[name] for a in answers]) for name in answers[0]]
    assert torch.corrcoef(torch.stack(pairs))[0, 1].abs() < 0.1


@pytest.mark.parametrize("layers", [("0", "3", "5"), ("5", "0", "3")])
def test_a_group_of_all_layers_is_the_whole_gradient(layers) -> None:
    """However many they are, and in whatever order: no layer's part escapes the clip."""
    code = network()
    inputs, targets = batch(6)
    gradients = per_example(code, inputs, targets)
    whole = torch.cat([gradients[name] for name in layers], dim=1)
    threshold = float(whole.norm(dim=1).median())
    query = ClippedGradient(1.0, torch.tensor([threshold]), LayerGroup("all", layers))
    (found,) = sums_of_one([query], gradients_at(code, flat_parameters(code), inputs, targets))
    torch.testing.assert_close(found, clipped_sum(gradients, LayerGroup("all", layers), threshold))


def test_an_example_that_is_too_long_in_one_group_counts_in_no_other() -> None:
    torch.manual_seed(1)
    code = GradientEngine(
        nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)), LOSSES["accuracy"]
    )
    flat = flat_parameters(code)
    flat[:8] = 0.0  # the first layer's weights: its outputs stay finite, its gradients do not
    inputs, targets = torch.ones(3, 2), torch.tensor([0, 1, 2])
    inputs[1] = 1e25
    queries = [
        kind(1.0, torch.tensor([0.3]), LayerGroup(name, (name,)))
        for kind in (ClippedGradient, ClippedDirection, UnclippedCount)
        for name in ("0", "2")
    ]
    keep = torch.tensor([0, 2])
    found = sums_of_one(queries, gradients_at(code, flat, inputs, targets))
    expected = sums_of_one(queries, gradients_at(code, flat, inputs[keep], targets[keep]))
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
    found = sums_of_one(queries, gradients_at(code, flat, inputs, targets))
    expected = sums_of_one(queries, gradients_at(code, flat, inputs[keep], targets[keep]))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
