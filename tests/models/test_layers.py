"""Rows of images and pools of maxima, and their gradients: those of PyTorch."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from oso_dp.models.layers import Flatten, StrideOneMaxPool


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(3, 4, 5, 5), (2, 3, 4, 6), (2, 1, 3, 3), (1, 2, 1, 7)])
def test_flatten_matches_torch(shape, memory) -> None:
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


def test_flatten_vmap_matches_single_gradients() -> None:
    images = torch.randn(3, 4, 2, 5, 5, dtype=torch.float64)
    weights = torch.randn(50, dtype=torch.float64)

    def loss(one: torch.Tensor) -> torch.Tensor:
        return (Flatten()(one) @ weights).square().sum()

    each = torch.func.vmap(torch.func.grad(loss))(images)
    for ours, one in zip(each, images, strict=True):
        torch.testing.assert_close(ours, torch.func.grad(loss)(one))


def gradient(pool, values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    leaf = values.clone().requires_grad_(True)
    return torch.autograd.grad((pool(leaf) * weights).sum(), leaf)[0]


@pytest.mark.parametrize("ties", [False, True])
def test_stride_one_max_pool_matches_torch(ties: bool) -> None:
    torch.manual_seed(0)
    values = torch.randn(3, 2, 7, 6, dtype=torch.double)
    if ties:
        values = values.relu().round()
    weights = torch.randn(3, 2, 6, 5, dtype=torch.double)

    def theirs(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x, 2, stride=1)

    torch.testing.assert_close(StrideOneMaxPool()(values), theirs(values), rtol=0, atol=0)
    torch.testing.assert_close(
        gradient(StrideOneMaxPool(), values, weights), gradient(theirs, values, weights)
    )


def test_stride_one_max_pool_inference_matches() -> None:
    values = torch.randn(3, 2, 7, 6)
    with torch.inference_mode():
        evaluated = StrideOneMaxPool()(values)
    assert torch.equal(evaluated, F.max_pool2d(values, 2, stride=1))


def test_stride_one_max_pool_vmap_matches() -> None:
    values = torch.randn(4, 1, 3, 3, dtype=torch.double)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return StrideOneMaxPool()(x[None]).square().sum()

    each = torch.func.vmap(torch.func.grad(loss))(values)
    assert torch.equal(each[2], torch.func.grad(loss)(values[2]))
