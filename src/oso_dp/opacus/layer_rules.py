"""Layers with rules of their own: per-sample gradients from a layer's inputs and output gradients.

Ghost mode has all of these rules; the other modes have that of Embedding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from opacus.grad_sample.conv import compute_conv_grad_sample
from torch import Tensor, nn

from oso_dp.opacus.per_sample_gradients import (
    ConvFactors,
    Dense,
    EmbeddingFactors,
    LinearFactors,
    PerSampleGradient,
)

Gradients = Iterator[tuple[Any, PerSampleGradient]]  # by parameter


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The data type of norms and sums: float32 or better."""
    return torch.promote_types(dtype, torch.float32)


def has_factors(module: Any) -> bool:
    """Whether the layer's rule holds for this one."""
    parameters = [p for p in module.parameters(recurse=False) if p.requires_grad]
    if any(p._forward_counter > 1 or hasattr(p, "_current_grad_sample") for p in parameters):
        return False  # tied: its gradient is a sum of several products
    if isinstance(module, nn.Embedding):
        return not (module.scale_grad_by_freq or module.sparse)
    return not isinstance(getattr(module, "padding", None), str)


def _linear(module: nn.Linear, inputs: Tensor, outputs: Tensor) -> Gradients:
    dtype = accumulation_dtype(module.weight.dtype)
    inputs = inputs.to(dtype).reshape(len(inputs), -1, inputs.shape[-1])
    outputs = outputs.to(dtype).reshape(len(outputs), -1, outputs.shape[-1])
    length, size = outputs.shape[1], module.weight.numel()
    # Store whichever is smaller: dense gradients or factors.
    if length > 1 and size <= length * (inputs.shape[2] + outputs.shape[2]):
        yield module.weight, Dense(outputs.mT @ inputs, dtype)
    else:
        yield module.weight, LinearFactors(inputs, outputs)
    if module.bias is not None:
        yield module.bias, Dense(outputs.sum(dim=1), dtype)


def _convolution(module: Any, inputs: Tensor, outputs: Tensor) -> Gradients:
    dtype = accumulation_dtype(module.weight.dtype)
    inputs, outputs = inputs.to(dtype), outputs.to(dtype)
    weight, positions = module.weight, math.prod(outputs.shape[2:])
    if module.bias is not None:
        yield module.bias, Dense(outputs.flatten(2).sum(dim=2), dtype)
    if not weight.requires_grad:
        return

    def compute_dense(inputs: Tensor, outputs: Tensor) -> Tensor:
        return compute_conv_grad_sample(module, [inputs], outputs)[weight]

    if len(outputs) * weight.numel() <= inputs.numel() + outputs.numel():
        yield weight, Dense(compute_dense(inputs, outputs), dtype)
        return
    patches = inputs.shape[1] * math.prod(weight.shape[2:]) * positions
    bytes_each = (patches + weight.numel()) * dtype.itemsize
    yield weight, ConvFactors(inputs, outputs, compute_dense, weight.numel(), bytes_each)


def _embedding(module: nn.Embedding, inputs: Tensor, outputs: Tensor) -> Gradients:
    outputs = outputs.to(accumulation_dtype(module.weight.dtype))
    outputs = outputs.reshape(len(inputs), math.prod(inputs.shape[1:]), outputs.shape[-1])
    words = inputs.reshape(len(inputs), outputs.shape[1])
    yield module.weight, EmbeddingFactors(words, outputs, module.num_embeddings, module.padding_idx)


RULES: dict[type[nn.Module], Callable[[Any, Tensor, Tensor], Gradients]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
}
