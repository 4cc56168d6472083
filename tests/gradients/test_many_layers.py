"""However many layers a model has, and a layer parameters: each counts in an example's norm."""

import pytest
import torch
from tests.gradients.layer_cases import Given, alone
from torch import nn

from oso_dp.gradients import GradientEngine
from oso_dp.gradients.layer_gradients import MaterializedGradients
from oso_dp.models.losses import cross_entropy

EXAMPLES = 6


@pytest.mark.parametrize("count", [1, 8, 9, 40])
def test_every_parameter_of_a_layer_is_measured_dropped_and_summed(count: int) -> None:
    """A recurrent layer has four for each of its own layers and directions."""
    torch.manual_seed(0)
    parts = {f"part {k}": torch.randn(EXAMPLES, 3, dtype=torch.double) for k in range(count)}
    whole = torch.cat(list(parts.values()), dim=1)
    kept = MaterializedGradients(parts)
    torch.testing.assert_close(kept.norms(), whole.norm(dim=1))
    bad = torch.arange(EXAMPLES) == 4
    kept.drop(bad)
    torch.testing.assert_close(kept.norms(), whole.norm(dim=1) * ~bad)
    weights = torch.rand(1, 2, EXAMPLES, dtype=torch.double)
    sums = torch.cat(list(kept.weighted_sums(weights).values()), dim=2)
    torch.testing.assert_close(sums, weights @ (whole * ~bad[:, None]))


@pytest.mark.parametrize("count", [2, 17, 70])
def test_every_layer_of_a_model_is_measured(count: int) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(2, 2) for _ in range(count)]
    code = GradientEngine(nn.Sequential(*layers).double(), cross_entropy)
    flats = torch.randn(1, code.size, dtype=torch.double)
    inputs = torch.randn(1, 3, 2, dtype=torch.double)
    given = Given(code, flats, inputs, torch.tensor([[0, 1, 0]]))
    mine, right = code(*given[1:]), alone(given)
    torch.testing.assert_close(mine.norms(), right.norm(dim=2))
    assert len(mine.layer_norms()) == count
