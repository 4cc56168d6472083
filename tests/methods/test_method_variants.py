"""The rules of the methods that vary the paper's, on given answers."""

import math

import pytest
import torch
from tests.methods.test_methods import LAYERS, P, R, make, state

from oso_dp.errors import OsoError
from oso_dp.methods import State
from oso_dp.privacy.noise_composition import combined_noise_multiplier
from oso_dp.privacy.queries import (
    SMALLEST_THRESHOLD,
    AdaptiveGradient,
    AutomaticGradient,
    ClippedDirection,
    ClippedGradient,
    UnclippedCount,
)


@pytest.mark.parametrize(
    ("name", "kind", "stabiliser"),
    [("auto_s", AutomaticGradient, 0.01), ("psac", AdaptiveGradient, 0.1)],
)
def test_auto_s_psac_queries_use_stabiliser(name, kind, stabiliser) -> None:
    (query,) = make(name).queries(state(2.0))
    assert (type(query), query.stabiliser) == (kind, stabiliser)
    (query,) = make(name, stabiliser=0.5).queries(state(2.0))
    assert query.stabiliser == 0.5
    assert make(name).initial_values({"learning_rate": 3.0})["threshold"] == 1.0


@pytest.mark.parametrize(
    ("name", "frozen", "free"),
    [
        ("online_frozen_threshold", "threshold", "learning_rate"),
        ("online_frozen_learning_rate", "learning_rate", "threshold"),
    ],
)
def test_online_frozen_variants_freeze_one_value(name, frozen, free) -> None:
    online, control = make("online", 0.9), make(name, 0.9)
    theirs, mine = state(), state()
    asked = [(q.name, q.noise_multiplier) for q in online.queries(theirs)]
    assert asked == [(q.name, q.noise_multiplier) for q in control.queries(mine)]
    assert control.initial_values({"learning_rate": 1.0}) == {
        "learning_rate": 1.0,
        "threshold": 0.1,
    }
    for _ in range(4):  # an odd number of moves, which cannot cancel
        answers = {n: torch.randn(R, P) for n in (ClippedGradient, ClippedDirection)}
        online.update(theirs, answers)
        control.update(mine, answers)
    torch.testing.assert_close(getattr(mine, free), getattr(theirs, free))
    torch.testing.assert_close(getattr(mine, frozen), getattr(state(), frozen))
    assert not torch.equal(getattr(theirs, frozen), getattr(mine, frozen))


def test_fixed_threshold_preset_starts_as_online() -> None:
    control = make("fixed_threshold_preset")
    assert control.search == make("online").search == ("learning_rate",)
    start = {"learning_rate": 1.0}
    assert control.initial_values(start) == make("online").initial_values(start)
    assert type(control).update is type(make("fixed_threshold")).update


class TestAutoWOSM:
    def test_queries_request_normalised_gradient(self) -> None:
        method = make("auto_wosm")
        (query,) = method.queries(state(2.0))
        assert (type(query), query.noise_multiplier) == (AutomaticGradient, 2.0)
        assert query.stabiliser == 0.01
        assert make("auto_wosm", stabiliser=0.5).queries(state(2.0))[0].stabiliser == 0.5
        assert method.search == ()
        assert method.initial_values({}) == {"learning_rate": 1e-3, "threshold": 1.0}
        assert not method.uses_momentum

    def test_update_follows_gradient_average(self) -> None:
        """The update is alpha times the gradient average over the deviation of its noise."""
        method, mine = make("auto_wosm", beta1=0.5), state(2.0)
        mine.learning_rate = torch.tensor([0.1, 0.2, 0.4])
        gradient = torch.arange(1.0, P + 1).expand(R, P)
        for mine.step in (1, 2, 3):
            before = mine.parameters.clone()
            method.update(mine, {AutomaticGradient: gradient})
            weights = [0.5**i for i in range(1, mine.step + 1)]
            deviation = 2.0 / 100 * mine.threshold * math.sqrt(sum(w * w for w in weights))
            expected = (mine.learning_rate / deviation)[:, None] * gradient * sum(weights)
            torch.testing.assert_close(before - mine.parameters, expected)


class TestFixedQuantileLinear:
    def test_update_moves_threshold_linearly(self) -> None:
        method, mine = make("fixed_quantile_linear"), state()
        unclipped = torch.tensor([0.5, 0.7, 0.7])
        answers = {ClippedGradient: torch.zeros(R, P), UnclippedCount: unclipped - 0.5}
        method.update(mine, answers)
        expected = [1.0, 2.0 - 0.2 * (0.7 - 0.5), 3.0 - 0.2 * (0.7 - 0.9)]
        torch.testing.assert_close(mine.threshold, torch.tensor(expected))

    def test_update_overshoot_stops_at_minimum(self) -> None:
        method, mine = make("fixed_quantile_linear", quantile_rate=100.0), state()
        answers = {ClippedGradient: torch.zeros(R, P), UnclippedCount: torch.full((R,), 0.5)}
        method.update(mine, answers)
        assert mine.threshold.tolist() == pytest.approx([SMALLEST_THRESHOLD] * R)
        method.update(mine, {**answers, UnclippedCount: torch.full((R,), -0.5)})
        assert mine.threshold.tolist() == pytest.approx([50.0, 50.0, 90.0])


class TestFixedQuantilePerLayer:
    def answers(self, gradient: torch.Tensor, unclipped: torch.Tensor) -> dict[tuple, torch.Tensor]:
        parts = dict(zip(LAYERS, gradient.split(list(LAYERS.values()), dim=1), strict=True))
        votes = dict(zip(LAYERS, unclipped - 0.5, strict=True))
        return {(ClippedGradient, layer): part for layer, part in parts.items()} | {
            (UnclippedCount, layer): vote for layer, vote in votes.items()
        }

    def test_select_keeps_run_thresholds(self) -> None:
        method, mine = make("fixed_quantile_per_layer"), state()
        method.update(mine, self.answers(torch.zeros(R, P), torch.rand(2, R)))
        before = [query.threshold[2] for query in method.queries(mine)]
        mine.select(torch.tensor([2]))
        assert [query.threshold[0] for query in method.queries(mine)] == before

    def test_queries_without_layers_rejected(self) -> None:
        mine = state()
        mine.layers = {}
        with pytest.raises(OsoError, match="layers: none; the state must have"):
            make("fixed_quantile_per_layer").queries(mine)


ALLOCATIONS = ["equal", "dimension", "dimension_noise", "joint"]


class TestFixedThresholdPerLayer:
    @pytest.mark.parametrize("allocation", ALLOCATIONS)
    def test_queries_keep_noise_and_threshold(self, allocation) -> None:
        mine = state()
        queries = make("fixed_threshold_per_layer", allocation=allocation).queries(mine)
        noise = combined_noise_multiplier([query.noise_multiplier for query in queries])
        assert noise == pytest.approx(mine.noise_multiplier, rel=1e-9)
        bound = torch.stack([query.threshold for query in queries]).norm(dim=0)
        torch.testing.assert_close(bound, mine.threshold)
        assert sum((query.group.layers for query in queries), ()) == tuple(LAYERS)

    def test_queries_allocations_follow_layer_sizes(self) -> None:
        mine, found = state(), {}
        for allocation in ALLOCATIONS[:3]:
            queries = make("fixed_threshold_per_layer", allocation=allocation).queries(mine)
            found[allocation] = [
                (float(query.threshold[0] / mine.threshold[0]), query.noise_multiplier)
                for query in queries
            ]
        nu, sizes = mine.noise_multiplier, [*LAYERS.values()]
        root = math.sqrt(len(sizes))
        assert found == {
            "equal": [pytest.approx((1 / root, nu * root)) for _ in sizes],
            "dimension": [pytest.approx((math.sqrt(size / P), nu * root)) for size in sizes],
            "dimension_noise": [
                pytest.approx((1 / root, nu * math.sqrt(P / size))) for size in sizes
            ],
        }

    def test_update_joint_answer_scaled_back(self) -> None:
        method, mine = make("fixed_threshold_per_layer", momentum=0.0, allocation="joint"), state()
        (query,) = method.queries(mine)
        sizes = [*LAYERS.values()]
        alphas = [math.sqrt(size * len(sizes) / P) for size in sizes]
        assert query.group.scales == pytest.approx(tuple(alphas))
        before, answer = mine.parameters.clone(), torch.rand(R, P)
        method.update(mine, {query.key: answer})
        scaled = torch.cat(
            [alpha * part for alpha, part in zip(alphas, answer.split(sizes, 1), strict=True)], 1
        )
        expected = before - mine.learning_rate[:, None] * scaled
        torch.testing.assert_close(mine.parameters, expected)

    @pytest.mark.parametrize("allocation", ALLOCATIONS[:3])
    def test_update_layers_use_named_answers(self, allocation) -> None:
        method = make("fixed_threshold_per_layer", momentum=0.0, allocation=allocation)
        mine, answer = state(), torch.rand(R, P)
        before, sizes = mine.parameters.clone(), [*LAYERS.values()]
        parts = dict(zip(LAYERS, answer.split(sizes, dim=1), strict=True))
        shuffled = {(ClippedGradient, name): parts[name] for name in reversed([*parts])}
        method.update(mine, shuffled)
        torch.testing.assert_close(mine.parameters, before - mine.learning_rate[:, None] * answer)


def test_fixed_threshold_falling_decays_each_step() -> None:
    method, mine = make("fixed_threshold_falling", threshold_decay=0.5), state()
    before = mine.threshold.clone()
    for step in range(1, 4):
        (query,) = method.queries(mine)
        torch.testing.assert_close(query.threshold, before * 0.5 ** (step - 1))
        method.update(mine, {ClippedGradient: torch.rand(R, P)})


PAST_G = torch.tensor([[1.0, 0, 0, 0, 0], [0, 2, 0, 0, 0], [0, 0, 3, 0, 0]])
PAST_Q = torch.tensor([[0, 1.0, 0, 0, 0], [0, 0, 0.5, 0, 0], [0, 0, 0, 0.25, 0]])
GRADIENT = torch.tensor([[3.0, 4, 0, 0, 0], [0, -3, -4, 0, 0], [0, 0, 0, 2, 0]])
# By hand: g~_t . q~_{t-1} = 4, -2, 0.5 and g~_t . g~_{t-1} = 3, -6, 0; the cosines:
COSINES_C = torch.tensor([0.8, -0.8, 1.0])
COSINES_RHO = torch.tensor([0.6, -0.6, 0.0])
C, RHO = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.1, 0.2, 0.4])


def two_steps(name: str, **settings: float):
    method, mine = make(name, **settings), state()
    method.update(mine, {ClippedGradient: PAST_G, ClippedDirection: PAST_Q})
    torch.testing.assert_close(mine.threshold, C)  # q~_0 = g~_0 = 0
    torch.testing.assert_close(mine.learning_rate, RHO)
    mine.step = 2
    answers = {ClippedGradient: GRADIENT, ClippedDirection: torch.zeros(R, P)}
    method.update(mine, answers)
    return mine


def test_online_additive_follows_equations_13_16() -> None:
    mine = two_steps("online_additive", threshold_rate=0.1, learning_rate_rate=0.05)
    # Both with the rho of this step, not with the one that (16) has just made.
    expected = C + 0.1 * RHO * torch.tensor([4.0, -2.0, 0.5])
    torch.testing.assert_close(mine.threshold, expected)
    expected = RHO + 0.05 * RHO * torch.tensor([3.0, -6.0, 0.0])
    torch.testing.assert_close(mine.learning_rate, expected)


def test_online_additive_overshoot_clamped() -> None:
    """A negative C would clip by a negative norm, and a negative rho would ascend the loss."""
    mine = two_steps("online_additive", threshold_rate=1e3, learning_rate_rate=1e3)
    assert mine.threshold[1].item() == pytest.approx(SMALLEST_THRESHOLD)
    assert mine.learning_rate[1] == 0
    assert (mine.threshold[[0, 2]] > 1).all()


def test_online_scale_invariant_follows_equation_19() -> None:
    mine = two_steps("online_scale_invariant", threshold_rate=0.1, learning_rate_rate=0.05)
    torch.testing.assert_close(mine.threshold, C * (1 + 0.1 * COSINES_C))
    torch.testing.assert_close(mine.learning_rate, RHO * (1 + 0.05 * COSINES_RHO))


def test_online_scale_invariant_zero_vectors_ignored() -> None:
    """An empty batch without noise gives 0 / 0, which must not change C or rho."""
    method, mine = make("online_scale_invariant"), state()
    zeros = {ClippedGradient: torch.zeros(R, P), ClippedDirection: torch.zeros(R, P)}
    for _ in range(2):
        method.update(mine, zeros)
    torch.testing.assert_close(mine.threshold, C)
    torch.testing.assert_close(mine.learning_rate, RHO)


# As torch numbers the layers of a Sequential: in the alphabet's order, 10 stands before 2.
MODELS = [{str(2 * layer): 1 + layer % 3 for layer in range(count)} for count in (1, 2, 7, 12, 40)]
MODELS += [{"last": 2, "first": 3, "a": 1}]


def layered(layers: dict[str, int]) -> State:
    return State(
        parameters=torch.zeros(R, sum(layers.values())),
        learning_rate=torch.tensor([0.1, 0.2, 0.4]),
        threshold=torch.tensor([1.0, 2.0, 3.0]),
        quantile=torch.tensor([0.5, 0.5, 0.9]),
        noise_multiplier=0.7,
        batch_size=100,
        step=1,
        layers=layers,
    )


@pytest.mark.parametrize("layers", MODELS, ids=len)
def test_fixed_quantile_per_layer_keeps_budget(layers: dict[str, int]) -> None:
    mine = layered(layers)
    asked = make("fixed_quantile_per_layer").queries(mine)
    assert combined_noise_multiplier([q.noise_multiplier for q in asked]) == pytest.approx(0.7)
    gradients = asked[: len(layers)]
    assert [query.group.layers for query in gradients] == [(name,) for name in layers]
    for run, threshold in enumerate([1.0, 2.0, 3.0]):
        bounds = [float(query.sensitivity(slice(run, run + 1))) for query in gradients]
        assert math.hypot(*bounds) == pytest.approx(threshold)


@pytest.mark.parametrize("layers", MODELS, ids=len)
def test_fixed_quantile_per_layer_moves_layers(layers: dict[str, int]) -> None:
    mine, method = layered(layers), make("fixed_quantile_per_layer")
    gradient = torch.randn(mine.parameters.shape)
    parts = gradient.split(list(layers.values()), dim=1)
    unclipped = 3 * torch.rand(len(layers), R) - 1  # noise may bring a share below 0 or above 1
    answers = {(ClippedGradient, name): part for name, part in zip(layers, parts, strict=True)}
    votes = unclipped - 0.5
    answers |= {(UnclippedCount, name): vote for name, vote in zip(layers, votes, strict=True)}
    method.update(mine, answers)
    torch.testing.assert_close(mine.parameters, -mine.learning_rate[:, None] * gradient)
    start = torch.tensor([1.0, 2.0, 3.0]) / math.sqrt(len(layers))
    expected = start * (-0.2 * (unclipped - mine.quantile)).exp()
    for query, thresholds in zip(method.queries(mine), expected, strict=False):
        torch.testing.assert_close(query.threshold, thresholds)
    torch.testing.assert_close(mine.threshold, expected.norm(dim=0))
    torch.testing.assert_close(method.fraction_clipped(mine), 1 - unclipped.mean(dim=0))
