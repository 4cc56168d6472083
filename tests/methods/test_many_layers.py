"""A threshold for each layer: as many as a model has, and each gradient where its layer is."""

import math

import pytest
import torch
from tests.methods.test_methods import R, make

from oso_dp.methods import State
from oso_dp.privacy.noise_composition import combined_noise_multiplier
from oso_dp.privacy.queries import ClippedGradient, UnclippedCount

# As torch numbers the layers of a Sequential: in the alphabet's order, 10 stands before 2.
MODELS = [{str(2 * layer): 1 + layer % 3 for layer in range(count)} for count in (1, 2, 7, 12, 40)]
MODELS += [{"last": 2, "first": 3, "a": 1}]


def state(layers: dict[str, int]) -> State:
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
def test_all_layers_together_are_bounded_by_c_and_cost_a_step(layers: dict[str, int]) -> None:
    mine = state(layers)
    asked = make("fixed_quantile_per_layer").queries(mine)
    assert combined_noise_multiplier([q.noise_multiplier for q in asked]) == pytest.approx(0.7)
    gradients = asked[: len(layers)]
    assert [query.group.layers for query in gradients] == [(name,) for name in layers]
    for run, threshold in enumerate([1.0, 2.0, 3.0]):
        bounds = [float(query.sensitivity(slice(run, run + 1))) for query in gradients]
        assert math.hypot(*bounds) == pytest.approx(threshold)


@pytest.mark.parametrize("layers", MODELS, ids=len)
def test_each_layers_part_moves_that_layer(layers: dict[str, int]) -> None:
    """And its own share of unclipped examples moves its threshold."""
    mine, method = state(layers), make("fixed_quantile_per_layer")
    gradient = torch.randn(mine.parameters.shape)
    parts = gradient.split(list(layers.values()), dim=1)
    unclipped = torch.rand(len(layers), R)
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
