"""The per-example gradients of a batch for each of R runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from oso_dp.gradients.precision import Precision, float32
from oso_dp.gradients.protocol import LARGEST_NORM, LayerGradients, Loss, is_async_device


class GradientEngineProtocol(Protocol):
    """What is known of the model whose gradients are taken (`GradientCode`)."""

    loss: Loss
    precision: Precision
    layer_sizes: dict[str, int]  # parameters of each layer
    layer_parameters: dict[str, list[str]]  # their names

    def outputs(self, flat: Tensor, inputs: Tensor) -> Tensor: ...

    def layer_gradients(
        self, flat: Tensor, inputs: Tensor, targets: Tensor
    ) -> Mapping[str, LayerGradients]: ...

    def microbatch_size(self, inputs: Tensor) -> int | None: ...


class BatchGradients:
    """flat [R, P], inputs [R, B, ...], targets [R, B, ...]: each run has parameters and a batch.

    Empty batches have norms [R, 0] and sums of zero. absent: bool [R, B], of examples that count as
    if their gradients were not finite, whatever stands in their places.
    """

    def __init__(
        self,
        code: GradientEngineProtocol,
        flat: Tensor,
        inputs: Tensor,
        targets: Tensor,
        absent: Tensor | None = None,
    ) -> None:
        self.code, self.flat, self.inputs, self.targets = code, flat, inputs, targets
        self.absent = absent
        self.empty = inputs.shape[1] == 0
        self._layers: Mapping[str, LayerGradients] = {}
        self._norms: Tensor | None = None
        self._layer_norms: dict[str, Tensor] = {}

    def norms(self) -> Tensor:
        """2-norms, [R, B]; inf for one whose gradient is not finite, or too large to add up.

        Such an example's gradient is zero from then on.
        """
        if self._norms is None:
            self._norms = self.flat.new_zeros(self.inputs.shape[:2])
            if not self.empty:
                self._norms = self._take_gradients().to(self.flat.dtype)
        return self._norms

    def layer_norms(self) -> dict[str, Tensor]:
        """Of each layer's part, float64 [R, B]; inf in every layer where `norms` is inf."""
        if self.norms().numel() == 0:
            return dict.fromkeys(self.code.layer_sizes, self.norms())
        return self._layer_norms

    def weighted_sums(self, weights: Tensor, layers: Sequence[str] | None = None) -> Tensor:
        """sum_i weights[r, j, i] g_ri: weights [R, J, B] -> [R, J, P], or of these layers only."""
        wanted = self.code.layer_sizes if layers is None else layers
        if self.norms().numel() == 0:
            size = sum(self.code.layer_sizes[layer] for layer in wanted)
            return self.flat.new_zeros(*weights.shape[:2], size)
        sums = []
        with float32(weights.device):
            for layer in wanted:
                named = self._layers[layer].weighted_sums(weights)
                sums += [named[name].flatten(2) for name in self.code.layer_parameters[layer]]
        return torch.cat(sums, dim=2)

    def plain_sums(self, present: Tensor) -> Tensor:
        """sum_i g_ri over those present, by ordinary differentiation, [R, P]."""
        return torch.stack([self._plain_sum(run, present[run]) for run in range(len(self.flat))])

    def _plain_sum(self, run: int, present: Tensor) -> Tensor:
        if self.empty:
            return torch.zeros_like(self.flat[run])
        flat = self.flat[run].detach().requires_grad_(True)
        inputs, targets = self.inputs[run], self.targets[run]
        width = self.code.microbatch_size(inputs) or len(inputs)
        total = torch.zeros_like(self.flat[run])
        for start in range(0, len(inputs), width):
            part = slice(start, start + width)
            losses = self.code.loss(self.code.outputs(flat, inputs[part]), targets[part])
            with self.code.precision.products(flat.device):
                total += torch.autograd.grad(losses[present[part]].sum(), flat)[0]
        return total

    def _take_gradients(self) -> Tensor:
        self._layers = self.code.layer_gradients(self.flat, self.inputs, self.targets)
        by_layer = torch.stack([rule.norms() for rule in self._layers.values()])
        shape = self.inputs.shape[:2]
        norms = torch.linalg.vector_norm(by_layer, dim=0)
        bad = ~(norms < LARGEST_NORM)
        if self.absent is not None:
            bad |= self.absent.flatten()
        if is_async_device(bad) or bad.any():
            norms = norms.masked_fill(bad, torch.inf)
            by_layer = by_layer.masked_fill(bad, torch.inf)
            for rule in self._layers.values():
                rule.drop(bad)
        by_layer = by_layer.unflatten(1, shape)
        self._layer_norms = dict(zip(self._layers, by_layer, strict=True))
        return norms.unflatten(0, shape)
