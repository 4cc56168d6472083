"""The queries: weights, sensitivities, parts that they share, groups of layers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.helpers import Given, sums_of_one
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients import BatchGradients, GradientEngine
from oso_dp.models.losses import LOSSES
from oso_dp.privacy.mechanism import unnoised_sums
from oso_dp.privacy.noise_composition import (
    LayerGroup,
    combined_noise_multiplier,
    dimension_adjusted_noise,
    dimension_adjusted_thresholds,
    equal_thresholds,
    proportional_noise,
)
from oso_dp.privacy.queries import (
    QUERIES,
    SMALLEST_THRESHOLD,
    AdaptiveGradient,
    AutomaticGradient,
    ClippedDirection,
    ClippedGradient,
    PlainGradient,
    Query,
    UnclippedCount,
)

# All but the one that claims nothing: a new query is tested like the others.
THRESHOLDED = [kind for kind in QUERIES if kind is not PlainGradient]


STABILISED = [AutomaticGradient, AdaptiveGradient]


ONE = slice(0, 1)


@pytest.mark.parametrize("kind", STABILISED)
@pytest.mark.parametrize("threshold", [1.0, 1e18, 1e30, math.inf])
@pytest.mark.parametrize(("small", "stabiliser"), [(1e-17, None), (1e-25, 1e-6)])
def test_automatic_gradient_large_factors_stay_finite(kind, threshold, small, stabiliser) -> None:
    """A nonfinite sum would reveal that the batch has an example with such factors."""
    engine = GradientEngine(nn.Linear(2, 1, bias=False), lambda out, target: out[:, 0] * target)
    inputs, targets = torch.tensor([[[small, 0.0]]]), torch.tensor([[1e17]])
    made = engine(torch.zeros(1, 2), inputs, targets)
    more = {} if stabiliser is None else {"stabiliser": stabiliser}
    (total,) = sums_of_one([kind(1.0, torch.tensor([threshold]), **more)], made)
    assert total.isfinite().all()
    assert total.norm() <= min(threshold, 1e18) * (1 + 1e-5)
    assert total.norm() > 0 or (stabiliser is not None and threshold > 1)


norms = st.floats(min_value=0.0, width=32) | st.just(math.nan)


thresholds = st.floats(min_value=0.0, max_value=2.0**100, width=32)


def contribution(query, norm: float) -> float:
    """The 2-norm of what one example with this gradient norm adds to the sum."""
    weight = query.weights(torch.tensor([[norm]]), ONE).item()
    if query.scalar:
        return abs(weight)
    return abs(weight) * norm if math.isfinite(norm) else (0.0 if weight == 0 else math.inf)


@pytest.mark.parametrize("kind", THRESHOLDED)
@given(norm=norms, threshold=thresholds)
def test_query_contribution_bounded_by_sensitivity(kind, norm, threshold) -> None:
    query = kind(1.0, torch.tensor([threshold]))
    assert contribution(query, norm) <= float(query.sensitivity(ONE)) * (1 + 1e-6)


@pytest.mark.parametrize("kind", THRESHOLDED)
def test_query_sensitivity_reached(kind) -> None:
    """A sensitivity stated too large would waste noise: some example reaches it."""
    query = kind(1.0, torch.tensor([0.5]))
    assert contribution(query, 1e7) == pytest.approx(float(query.sensitivity(ONE)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_clipped_gradient_half_precision_keeps_deviation(dtype) -> None:
    query = ClippedGradient(1.19908, torch.tensor([1.0, 0.75], dtype=dtype))
    deviations = (query.noise_multiplier * query.sensitivity(slice(0, 2))).tolist()
    assert deviations == pytest.approx([1.19908, 0.75 * 1.19908], rel=1e-6)


@pytest.mark.parametrize("kind", THRESHOLDED)
@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_query_nonfinite_norm_weighted_zero(kind, norm) -> None:
    weights = kind(1.0, torch.tensor([0.5])).weights(torch.tensor([[norm, 0.1]]), ONE)[0]
    assert weights[0] == 0
    assert weights.isfinite().all()


@pytest.mark.parametrize("kind", STABILISED)
@given(norm=norms, threshold=thresholds, log_stabiliser=st.floats(-6.0, 6.0))
def test_automatic_gradient_stabiliser_keeps_bound(kind, norm, threshold, log_stabiliser) -> None:
    query = kind(1.0, torch.tensor([threshold]), stabiliser=10**log_stabiliser)
    assert query.weights(torch.tensor([[norm]]), ONE).isfinite().all()
    assert contribution(query, norm) <= float(query.sensitivity(ONE)) * (1 + 1e-6)


@pytest.mark.parametrize("kind", STABILISED)
@pytest.mark.parametrize("stabiliser", [-0.1, 0.0, 1e-46, math.inf, math.nan])
def test_automatic_gradient_invalid_stabiliser_rejected(kind, stabiliser) -> None:
    """A negative stabiliser bounds no weight; zero gives 0 / 0 for a gradient of zero."""
    with pytest.raises(OsoError, match=r"_gradient': stabiliser .*; must be >= 1e-6 and <= 1e6"):
        kind(1.0, torch.ones(1), stabiliser=stabiliser)


def test_automatic_gradient_weights_match_papers() -> None:
    """The weights are C / (n + 0.01) and, with r = 0.1, C / (n + r / (n + r))."""
    norm, threshold = torch.tensor([[0.0, 0.1, 1.0]]), torch.tensor([2.0])
    automatic = AutomaticGradient(1.0, threshold).weights(norm, ONE)
    torch.testing.assert_close(automatic, torch.tensor([[200.0, 2 / 0.11, 2 / 1.01]]))
    adaptive = AdaptiveGradient(1.0, threshold).weights(norm, ONE)
    torch.testing.assert_close(adaptive, torch.tensor([[2.0, 2 / 0.6, 2 / (1 + 0.1 / 1.1)]]))


def test_clipped_direction_equals_gradient_derivative() -> None:
    """Equation 11 as a difference quotient of equation 4 in C, times a gradient of that norm."""
    norm, step = torch.tensor([[0.3, 0.99, 5.0]]), 1e-3
    low, high = (
        ClippedGradient(1.0, torch.tensor([c])).weights(norm, ONE) for c in (1.0, 1.0 + step)
    )
    direction = ClippedDirection(1.0, torch.tensor([1.0])).weights(norm, ONE)
    torch.testing.assert_close((high - low) / step, direction, atol=1e-4, rtol=1e-3)


def test_unclipped_count_votes_centred() -> None:
    norms = torch.tensor([[0.5, 1.0, 1.5]])
    votes = UnclippedCount(1.0, torch.tensor([1.0])).weights(norms, ONE)
    assert votes.tolist() == [[0.5, 0.5, -0.5]]


def test_clipped_gradient_tiny_threshold_raised() -> None:
    """At C = 1e-30 a gradient of norm 1e-23 squares to zero in float32 and would pass unclipped."""
    query = ClippedGradient(1.0, torch.tensor([1e-30]))
    assert query.sensitivity(ONE).item() == pytest.approx(1e-12)
    assert query.weights(torch.tensor([[1.0]]), ONE).item() == pytest.approx(1e-12)
    assert SMALLEST_THRESHOLD == 1e-12


def test_clipped_direction_subnormal_weight_dropped() -> None:
    """2 ** -126 is the smallest normal float32; a smaller weight becomes zero."""
    query = ClippedDirection(1.0, torch.ones(1))
    weights = query.weights(torch.tensor([[2.0**125, 2.0**126, 2.0**127]]), ONE)
    assert weights.tolist() == [[2.0**-125, 2.0**-126, 0.0]]


@pytest.mark.parametrize("kind", [ClippedGradient, ClippedDirection, *STABILISED])
def test_query_any_length_bounded_by_sensitivity(kind) -> None:
    """A weight is a normal float32 or zero, since a subnormal one could be rounded up by half."""
    lengths = torch.logspace(-14, 38, 5201, dtype=torch.float64).float()[None]
    for exponent in range(-12, 31):
        query = kind(1.0, torch.tensor([10.0**exponent]))
        weights = query.weights(lengths, ONE).double()
        bound = float(query.sensitivity(ONE)) * (1 + 2.0**-22)
        assert (weights * lengths.double() <= bound).all()


@pytest.mark.parametrize("order", [1, -1])
def test_unnoised_sums_clipped_unchanged_by_plain(order: int) -> None:
    gradients = Given(torch.tensor([[[3.0, 4.0], [0.0, 10.0]]]))
    queries = [ClippedGradient(1.0, torch.tensor([1.0])), PlainGradient()][::order]
    clipped, whole = sums_of_one(queries, gradients)[::order]
    torch.testing.assert_close(clipped, torch.tensor([0.6, 1.8]))
    torch.testing.assert_close(whole, torch.tensor([3.0, 14.0]))


RUNS, EXAMPLES, SIZE = 3, 40, 7


ALL = slice(0, RUNS)


class Counted(Given):
    """Gradients that know how many sums were asked for at a time."""

    def weighted_sums(self, weights: Tensor, layers: None = None) -> Tensor:
        self.asked = weights
        return super().weighted_sums(weights, layers)


def gradients(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    lengths = 10 ** torch.empty(RUNS, EXAMPLES, 1).uniform_(-4, 4, generator=generator)
    values = torch.randn(RUNS, EXAMPLES, SIZE, generator=generator) * lengths
    values[:, 0] = 0.0
    return values


def by_definition(query: Query, rows: Tensor, present: Tensor) -> Tensor:
    """float64, one example after the other."""
    total = torch.zeros(RUNS, SIZE, dtype=torch.float64)
    for run in range(RUNS):
        threshold = float(query.threshold[run])
        for example in range(EXAMPLES):
            gradient = rows[run, example].double()
            norm = float(torch.linalg.vector_norm(gradient))
            clipped = norm > threshold
            if not present[run, example]:
                continue
            if isinstance(query, ClippedGradient):
                total[run] += gradient * (threshold / norm if clipped else 1.0)
            elif clipped:
                total[run] += gradient / norm
    return total


@given(seed=st.integers(0, 10**6), exponent=st.floats(-3, 3), microbatch_size=st.booleans())
def test_unnoised_sums_match_definition(seed: int, exponent: float, microbatch_size: bool) -> None:
    rows = gradients(seed)
    thresholds = 10**exponent * torch.tensor([1.0, 0.1, 30.0])
    queries = [ClippedGradient(1.0, thresholds), ClippedDirection(1.0, thresholds)]
    if microbatch_size:
        queries.reverse()
    present = torch.rand(RUNS, EXAMPLES, generator=torch.Generator().manual_seed(seed)) < 0.8
    sums = unnoised_sums(queries, ALL, Counted(rows), present)
    for query, found in zip(queries, sums, strict=True):
        expected = by_definition(query, rows, present)
        scale = query.sensitivity(ALL) * torch.ones(RUNS)
        assert ((found - expected).norm(dim=1) <= 1e-5 * EXAMPLES * scale).all()


@pytest.mark.parametrize("norm", [1.0, 1.0 + 2**-23, 1.0 - 2**-24, 5.0, 0.0])
def test_unnoised_sums_parts_never_overlap(norm: float) -> None:
    """An example is in one sum only, also at the threshold, where both weights are 1."""
    rows = torch.zeros(RUNS, 1, SIZE)
    rows[..., 0] = norm
    threshold = torch.ones(RUNS)
    given_rows = Counted(rows)
    queries = [ClippedGradient(1.0, threshold), ClippedDirection(1.0, threshold)]
    clipped, direction = unnoised_sums(
        queries, ALL, given_rows, torch.ones(RUNS, 1, dtype=torch.bool)
    )
    assert (given_rows.asked.count_nonzero(dim=1) == 1).all()
    assert torch.allclose(clipped[:, 0], torch.tensor(min(norm, 1.0)), rtol=1e-6)
    assert torch.allclose(direction[:, 0], torch.tensor(float(norm > 1.0)), rtol=1e-6)


def test_unnoised_sums_two_thresholds_match_definition() -> None:
    rows, present = gradients(3), torch.ones(RUNS, EXAMPLES, dtype=torch.bool)
    queries = [
        ClippedGradient(1.0, torch.full((RUNS,), 0.5)),
        ClippedDirection(1.0, torch.full((RUNS,), 20.0)),
    ]
    for query, found in zip(
        queries, unnoised_sums(queries, ALL, Counted(rows), present), strict=True
    ):
        torch.testing.assert_close(
            found.double(), by_definition(query, rows, present), rtol=1e-4, atol=1e-4
        )


def test_unnoised_sums_automatic_beside_clipped_unchanged() -> None:
    rows, present = gradients(4), torch.ones(RUNS, EXAMPLES, dtype=torch.bool)
    threshold = torch.ones(RUNS)
    queries = [AutomaticGradient(1.0, threshold), ClippedDirection(1.0, threshold)]
    automatic, direction = unnoised_sums(queries, ALL, Counted(rows), present)
    (alone,) = unnoised_sums(queries[:1], ALL, Counted(rows), present)
    torch.testing.assert_close(automatic, alone, rtol=1e-5, atol=1e-5)
    expected = by_definition(queries[1], rows, present)
    torch.testing.assert_close(direction.double(), expected, rtol=1e-4, atol=1e-4)


@given(nu=st.floats(0.1, 50), groups=st.integers(1, 500))
def test_proportional_noise_costs_one_sum(nu: float, groups: int) -> None:
    shares = proportional_noise(nu, groups)
    assert len(shares) == groups
    assert combined_noise_multiplier(shares) == pytest.approx(nu, rel=1e-9)


@given(threshold=st.floats(0.1, 50), groups=st.integers(1, 500))
def test_equal_thresholds_bound_whole_norm(threshold: float, groups: int) -> None:
    shares = equal_thresholds(threshold, groups)
    assert len(shares) == groups
    assert math.hypot(*shares) == pytest.approx(threshold, rel=1e-9)


@pytest.mark.parametrize(
    ("layers", "message"), [((), "at least one layer"), (("a", "a"), "no layer twice")]
)
def test_layer_group_invalid_layers_rejected(layers, message) -> None:
    with pytest.raises(OsoError, match=message):
        LayerGroup("g", layers)


@pytest.mark.parametrize("scales", [(1.0,), (1.0, 0.0), (1.0, math.nan), (1.0, 1e7), (-1.0, 1.0)])
def test_layer_group_invalid_scales_rejected(scales) -> None:
    with pytest.raises(OsoError, match="must be one for each layer, >= 1e-06 and <= 1e"):
        LayerGroup("g", ("a", "b"), scales)


@given(sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=9), nu=st.floats(0.1, 50))
def test_dimension_adjusted_shares_cost_one_sum(sizes, nu) -> None:
    noise = dimension_adjusted_noise(nu, sizes)
    assert combined_noise_multiplier(noise) == pytest.approx(nu, rel=1e-9)
    assert math.hypot(*dimension_adjusted_thresholds(nu, sizes)) == pytest.approx(nu, rel=1e-9)
    # Equal thresholds: noise in proportion to a coordinate's largest root mean square.
    ratios = [one * math.sqrt(size) for one, size in zip(noise, sizes, strict=True)]
    assert max(ratios) == pytest.approx(min(ratios), rel=1e-9)


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


GROUPS = (
    LayerGroup("conv", ("0",)),
    LayerGroup("rest", ("5", "3")),
    LayerGroup("joint", ("3", "0", "5"), (0.25, 3.0, 1.5)),
)


def clipped_sum(
    gradients: dict[str, torch.Tensor], group: LayerGroup, threshold: float
) -> torch.Tensor:
    """By the paper's definition: clip the group's layers over their scales as one vector, sum."""
    scales = group.scales or (1.0,) * len(group.layers)
    scaled = zip(group.layers, scales, strict=True)
    whole = torch.cat([gradients[name] / scale for name, scale in scaled], dim=1)
    clipped = whole * (threshold / whole.norm(dim=1, keepdim=True)).clamp(max=1)
    return clipped.sum(dim=0)


def gradients_at(code: GradientEngine, flat: torch.Tensor, inputs, targets) -> BatchGradients:
    """Of one run."""
    return code(flat[None], inputs[None], targets[None])


@pytest.mark.parametrize("threshold", [0.05, 0.5, 100.0])
def test_clipped_gradient_group_clipped_as_vector(threshold: float) -> None:
    code = network()
    inputs, targets = batch(6)
    queries = [ClippedGradient(1.0, torch.tensor([threshold]), group) for group in GROUPS]
    found = sums_of_one(queries, gradients_at(code, flat_parameters(code), inputs, targets))
    gradients = per_example(code, inputs, targets)
    for group, total in zip(GROUPS, found, strict=True):
        torch.testing.assert_close(total, clipped_sum(gradients, group, threshold))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), threshold=st.sampled_from([0.01, 0.3, 5.0]))
def test_query_group_neighbours_differ_within_sensitivity(seed: int, threshold: float) -> None:
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


@pytest.mark.parametrize("layers", [("0", "3", "5"), ("5", "0", "3")])
def test_clipped_gradient_full_group_clips_whole(layers) -> None:
    """A group of all layers clips the complete gradient, in any order of the layers."""
    code = network()
    inputs, targets = batch(6)
    gradients = per_example(code, inputs, targets)
    whole = torch.cat([gradients[name] for name in layers], dim=1)
    threshold = float(whole.norm(dim=1).median())
    query = ClippedGradient(1.0, torch.tensor([threshold]), LayerGroup("all", layers))
    (found,) = sums_of_one([query], gradients_at(code, flat_parameters(code), inputs, targets))
    torch.testing.assert_close(found, clipped_sum(gradients, LayerGroup("all", layers), threshold))


def test_query_overflow_in_group_excludes_example() -> None:
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


def test_query_nonfinite_example_excluded_from_groups() -> None:
    """A nonfinite example counts in no group, also where its gradient for the group is finite."""
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


def test_plain_gradient_claims_no_privacy() -> None:
    assert PlainGradient().sensitivity(ONE) == math.inf
    assert PlainGradient().noise_multiplier == 0
