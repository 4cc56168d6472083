"""The per-example gradients of one batch, or of one batch for each of R runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oso_dp.gradients.precision import float32
from oso_dp.gradients.rules import LARGEST_NORM, LayerGradients, waits

if TYPE_CHECKING:
    from oso_dp.gradients.code import GradientCode


class BatchGradients:
    """An empty batch has norms [0] and sums of zero.

    Shapes are of one run: flat [P], inputs [B, ...]. With flat [R, P] and inputs [R, B, ...], all
    else has a leading run axis R, too, and each run's values come from its own batch.
    """

    def __init__(self, code: GradientCode, flat: Tensor, inputs: Tensor, targets: Tensor) -> None:
        self.code, self.one_run = code, flat.dim() == 1
        if self.one_run:
            flat, inputs, targets = flat[None], inputs[None], targets[None]
        self.flat, self.inputs, self.targets = flat, inputs, targets
        self.empty = inputs.shape[1] == 0
        self._layers: dict[str, LayerGradients] = {}
        self._norms: Tensor | None = None
        self._layer_norms: dict[str, Tensor] = {}

    def norms(self) -> Tensor:
        """2-norms, [B]; inf for an example whose gradient is not finite, or too large to add up.

        Such an example's gradient is zero from then on.
        """
        return self._squeezed(self._all_norms())

    def layer_norms(self) -> dict[str, Tensor]:
        """2-norms of each layer's part, float64 [B]; inf in every layer where `norms` is inf."""
        if self._all_norms().numel() == 0:
            return {layer: self.norms() for layer in self.code.layer_sizes}
        return {name: self._squeezed(norms) for name, norms in self._layer_norms.items()}

    def layer_sizes(self) -> dict[str, int]:
        return self.code.layer_sizes

    def weighted_sums(self, weights: Tensor, layers: Sequence[str] | None = None) -> Tensor:
        """sum_i weights[j, i] g_i: weights [J, B] -> [J, P], or [J, P_g] of these layers only."""
        wanted = self.code.layer_sizes if layers is None else layers
        weights = weights[None] if self.one_run else weights
        if self._all_norms().numel() == 0:
            size = sum(self.code.layer_sizes[layer] for layer in wanted)
            return self._squeezed(self.flat.new_zeros(*weights.shape[:2], size))
        sums = []
        with float32(weights.device):
            for layer in wanted:
                named = self._layers[layer].weighted_sums(weights)
                sums += [named[name].flatten(2) for name in self.code.layer_parameters[layer]]
        return self._squeezed(torch.cat(sums, dim=2))

    def plain_sums(self, present: Tensor | None = None) -> Tensor:
        """sum_i g_i over those present (bool [B]; None: all), by ordinary differentiation, [P]."""
        each = []
        for run in range(len(self.flat)):
            mine = slice(None) if present is None else present if self.one_run else present[run]
            each.append(self._plain_sum(run, mine))
        return self._squeezed(torch.stack(each))

    def _plain_sum(self, run: int, mine: Tensor | slice) -> Tensor:
        if self.empty:
            return torch.zeros_like(self.flat[run])
        flat = self.flat[run].detach().requires_grad_(True)
        inputs, targets = self.inputs[run], self.targets[run]
        width = self.code.portion(inputs.device) or len(inputs)
        total = torch.zeros_like(self.flat[run])
        for start in range(0, len(inputs), width):
            part = slice(start, start + width)
            losses = self.code.loss(self.code.outputs(flat, inputs[part]), targets[part])
            here = mine if isinstance(mine, slice) else mine[part]
            with self.code.precision.products(flat.device):
                total += torch.autograd.grad(losses[here].sum(), flat)[0]
        return total

    def _all_norms(self) -> Tensor:
        """[R, B]"""
        if self._norms is None:
            self._norms = self.flat.new_zeros(self.inputs.shape[:2])
            if not self.empty:
                self._norms = self._take_gradients().to(self.flat.dtype)
        return self._norms

    def _take_gradients(self) -> Tensor:
        self._layers = self.code.layer_gradients(self.flat, self.inputs, self.targets)
        each = torch.stack([rule.norms() for rule in self._layers.values()])
        shape = self.inputs.shape[:2]
        norms = torch.linalg.vector_norm(each, dim=0)
        bad = ~(norms < LARGEST_NORM)
        if waits(bad) or bad.any():
            norms = norms.masked_fill(bad, torch.inf)
            each = each.masked_fill(bad, torch.inf)
            for rule in self._layers.values():
                rule.drop(bad)
        each = each.unflatten(1, shape)
        self._layer_norms = dict(zip(self._layers, each, strict=True))
        return norms.unflatten(0, shape)

    def _squeezed(self, values: Tensor) -> Tensor:
        return values[0] if self.one_run else values
