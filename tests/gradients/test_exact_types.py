"""A subclass of a known layer computes something else: it has no rule but the general one."""

import pytest
import torch
from tests.gradients.layer_cases import Given, alone
from torch import Tensor, nn

from oso_dp.gradients import GradientEngine
from oso_dp.models.losses import cross_entropy

RUNS, BATCH = 2, 3


class Twice:
    """Of what the layer would give."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def twice(kind: type[nn.Module], *arguments: object) -> nn.Module:
    return type("Twice", (Twice, kind), {})(*arguments)


CASES = {
    "linear": (twice(nn.Linear, 4, 5), (4,)),
    "linear on a sequence": (twice(nn.Linear, 4, 5), (6, 4)),
    "long linear on a sequence": (twice(nn.Linear, 40, 50), (3, 40)),
    "conv1d": (twice(nn.Conv1d, 2, 3, 2), (2, 5)),
    "transposed conv1d": (twice(nn.ConvTranspose1d, 2, 3, 2), (2, 5)),
    "conv2d": (twice(nn.Conv2d, 2, 3, 2), (2, 4, 4)),
    "transposed conv2d": (twice(nn.ConvTranspose2d, 2, 3, 2), (2, 4, 4)),
    "embedding": (twice(nn.Embedding, 7, 4), (5,)),
    "layer norm": (twice(nn.LayerNorm, 4), (3, 4)),
    "group norm": (twice(nn.GroupNorm, 2, 4), (4, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_subclass_has_the_gradient_of_what_it_computes(name: str) -> None:
    torch.manual_seed(2)
    layer, shape = CASES[name]
    words = isinstance(layer, nn.Embedding)
    shape = (RUNS, BATCH, *shape)
    inputs = torch.randint(7, shape) if words else torch.randn(shape, dtype=torch.double)
    size = layer.double()(inputs[0]).flatten(1).shape[1]
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(size, 3)).double()
    code = GradientEngine(model, cross_entropy)
    flats = torch.randn(RUNS, code.size, dtype=torch.double)
    given = Given(code, flats, inputs, torch.randint(3, (RUNS, BATCH)))
    mine, right = code(*given[1:]), alone(given)
    weights = torch.rand(RUNS, 1, BATCH, dtype=torch.double)
    torch.testing.assert_close(mine.norms(), right.norm(dim=2))
    torch.testing.assert_close(mine.weighted_sums(weights), weights @ right)
