"""Rows of images and their gradients: those of nn.Flatten, however the images lie in memory."""

import pytest
import torch
from torch import nn

from oso_dp.models.layers import Flatten


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(3, 4, 5, 5), (2, 3, 4, 6), (2, 1, 3, 3), (1, 2, 1, 7)])
def test_rows_and_gradients_are_those_of_torch(shape, memory) -> None:
    torch.manual_seed(0)
    images = torch.randn(shape, dtype=torch.float64).contiguous(memory_format=memory)
    weights = torch.randn(shape[0], images[0].numel(), dtype=torch.float64)
    found, expected = [], []
    for flatten, kept in ((Flatten(), found), (nn.Flatten(), expected)):
        leaf = images.clone(memory_format=torch.preserve_format).requires_grad_(True)
        rows = flatten(leaf)
        kept += [rows.detach(), *torch.autograd.grad((rows * weights).sum(), leaf)]
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_each_run_of_several_has_its_own_gradient() -> None:
    images = torch.randn(3, 4, 2, 5, 5, dtype=torch.float64)
    weights = torch.randn(50, dtype=torch.float64)

    def loss(one: torch.Tensor) -> torch.Tensor:
        return (Flatten()(one) @ weights).square().sum()

    each = torch.func.vmap(torch.func.grad(loss))(images)
    for ours, one in zip(each, images, strict=True):
        torch.testing.assert_close(ours, torch.func.grad(loss)(one))
