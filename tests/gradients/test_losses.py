"""Losses of several runs, each at its parameters: torch's own, and nobody else's business."""

import math

import pytest
import torch

from oso_dp.gradients import GradientEngine, find_precision
from oso_dp.models import build_model
from oso_dp.models.losses import cross_entropy

SHAPES = {"small_cnn": (1, 14, 14), "bag_of_words": (750,)}


@pytest.mark.parametrize("size", [0, 1, 5, 300])  # 300: more than one portion
@pytest.mark.parametrize("name", SHAPES)
def test_losses_are_the_models(name: str, size: int) -> None:
    torch.manual_seed(0)
    model = build_model(name)
    code = GradientEngine(model, cross_entropy)
    flats = 0.1 * torch.randn(3, code.size)
    inputs, targets = torch.rand(3, size, *SHAPES[name]), torch.randint(0, 3, (3, size))
    losses = code.losses(flats, inputs, targets)
    assert losses.shape == (3, size)
    assert not losses.requires_grad
    for run in range(3):
        torch.nn.utils.vector_to_parameters(flats[run], model.parameters())
        expected = torch.nn.functional.cross_entropy(
            model(inputs[run]), targets[run], reduction="none"
        )
        torch.testing.assert_close(losses[run], expected.detach())


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
def test_an_example_that_is_not_finite_spoils_its_own_loss_alone(poison: float) -> None:
    torch.manual_seed(0)
    code = GradientEngine(build_model("small_cnn"), cross_entropy)
    flats, targets = 0.1 * torch.randn(2, code.size), torch.randint(0, 3, (2, 4))
    inputs = torch.rand(2, 4, 1, 14, 14)
    clean = code.losses(flats, inputs, targets)
    inputs[0, 2] = poison
    spoilt = code.losses(flats, inputs, targets)
    others = torch.ones(2, 4, dtype=torch.bool)
    others[0, 2] = False
    torch.testing.assert_close(spoilt[others], clean[others])


@pytest.mark.parametrize("size", [1, 63, 64, 65, 130])
def test_in_a_low_precision_a_loss_does_not_depend_on_its_company(size: int, monkeypatch) -> None:
    """To the bit: a loss that moved with another example's presence would be paid for by nobody.

    Not each processor rounds products by their shape, so the shapes are looked at, too.
    """
    torch.manual_seed(0)
    outputs, seen = GradientEngine.outputs, set()

    def noting(self, flat: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        seen.add(len(inputs))
        return outputs(self, flat, inputs)

    monkeypatch.setattr(GradientEngine, "outputs", noting)
    precision = find_precision("bfloat16", torch.device("cpu"))
    code = GradientEngine(build_model("small_cnn"), cross_entropy, precision)
    flats, targets = 0.1 * torch.randn(2, code.size), torch.randint(0, 3, (2, 131))
    inputs = torch.rand(2, 131, 1, 14, 14)
    whole = code.losses(flats, inputs, targets)
    assert torch.equal(code.losses(flats, inputs[:, :size], targets[:, :size]), whole[:, :size])
    assert len(seen) == 1
