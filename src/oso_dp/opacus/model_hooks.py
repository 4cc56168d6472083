"""Opacus's wrapped models, as this room needs them in each grad_sample_mode.

Two things differ from Opacus's own. An empty batch leaves gradients of no example, whichever way
the others' are found (its functorch mode stops there). And in ghost mode a layer's inputs and
output gradients are kept (`held_gradients`) where Opacus keeps norms alone: then two weighted sums
need no second and third backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from opacus.grad_sample import (
    GradSampleHooks,
    GradSampleHooksFastGradientClipping,
    GradSampleModule,
    GradSampleModuleFastGradientClipping,
)
from opacus.grad_sample.conv import compute_conv_grad_sample
from opacus.utils.module_utils import trainable_parameters
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.opacus.held_gradients import Held, Kernels, OuterProducts, Samples, TokenRows

HOOKS, FUNCTORCH, GHOST = "hooks", "functorch", "ghost"
MODES = (HOOKS, FUNCTORCH, GHOST)
Parts = Iterator[tuple[Any, Held]]  # by parameter


class EmptyBatches:
    """Beside Opacus's hooks: a batch of no examples."""

    def capture_backprops_hook(
        self,
        module: Any,
        _forward_input: Any,
        forward_output: Any,
        loss_reduction: str,
        batch_first: bool,
    ) -> None:
        if not self.hooks_enabled:  # type: ignore[attr-defined]
            return
        arguments = (module, _forward_input, forward_output, loss_reduction, batch_first)
        if forward_output[0].shape[0 if batch_first else 1] > 0:
            self.per_example(*arguments)
            return
        module.activations.pop()
        for _, parameter in trainable_parameters(module):
            parameter._forward_counter -= 1
            if parameter._forward_counter == 0:
                parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))
        _close(module)

    def per_example(self, *arguments: Any) -> None:
        GradSampleHooks.capture_backprops_hook(self, *arguments)


class GhostLayers(EmptyBatches):
    """Beside Opacus's ghost hooks: keeps the factors of a layer's gradients, if it has a rule."""

    def capture_activations_hook(self, *arguments: Any) -> None:
        # Opacus's ghost hooks refuse tied parameters here; these are held as in hooks mode.
        GradSampleHooks.capture_activations_hook(self, *arguments)

    def per_example(self, *arguments: Any) -> None:
        module, _, forward_output, loss_reduction, batch_first = arguments
        rule = RULES.get(type(module))
        own = [p for p in module.parameters(recurse=False) if p.requires_grad]
        tied = any(p._forward_counter > 1 or hasattr(p, "_current_grad_sample") for p in own)
        if rule is None or tied or not batch_first or not _has_factors(module):
            super().per_example(*arguments)
            return
        inputs, outputs = self.rearrange_grad_samples(  # type: ignore[attr-defined]
            module=module,
            backprops=forward_output[0].detach(),
            loss_reduction=loss_reduction,
            batch_first=batch_first,
        )
        with torch.no_grad(), torch.autocast(outputs.device.type, enabled=False):
            for parameter, held in rule(module, inputs[0], outputs):
                if parameter.requires_grad:
                    hold(parameter, held)
        for parameter in own:
            parameter._forward_counter -= 1
        _close(module)


class SanitizingModule(EmptyBatches, GradSampleModule):
    """A model whose parameters get `grad_sample`."""


class SanitizingHooks(EmptyBatches, GradSampleHooks):
    """The same, beside a model that is not wrapped."""


class GhostModule(GhostLayers, GradSampleModuleFastGradientClipping):
    """A model whose parameters get `held`, or `grad_sample` where no factors are known."""


class GhostHooks(GhostLayers, GradSampleHooksFastGradientClipping):
    """The same, beside a model that is not wrapped."""


def wrapped(
    module: nn.Module, mode: str, batch_first: bool, loss_reduction: str, wrap_model: bool
) -> SanitizingModule | SanitizingHooks | GhostModule | GhostHooks:
    """The model with hooks; `mode` is one of MODES."""
    if mode == GHOST:
        kind = GhostModule if wrap_model else GhostHooks
        return kind(module, batch_first=batch_first, loss_reduction=loss_reduction)
    plain = SanitizingModule if wrap_model else SanitizingHooks
    functorch = mode == FUNCTORCH
    return plain(
        module,
        batch_first=batch_first,
        loss_reduction=loss_reduction,
        force_functorch=functorch,
    )


def hold(parameter: Any, held: Held) -> None:
    """OsoError if the parameter has gradients of an earlier backward pass in this step."""
    if getattr(parameter, "held", None) is not None:
        raise OsoError(TWICE)
    parameter.held = held


def held_by(parameter: nn.Parameter) -> Held | None:
    """What the last backward pass left at a parameter; None if it did not reach the parameter."""
    held: Held | None = getattr(parameter, "held", None)
    samples = getattr(parameter, "grad_sample", None)
    if isinstance(samples, list) or (held is not None and samples is not None):
        raise OsoError(TWICE)
    if hasattr(parameter, "_current_grad_sample"):  # the graph of another batch is still open
        raise OsoError(OPEN)
    if held is not None or samples is None:
        return held
    return Samples(samples, wide(parameter.dtype))


def forget(module: nn.Module) -> None:
    """Drop all that a batch left at a model, also at layers that its loss did not reach."""
    for layer in module.modules():
        for name in ("activations", "max_batch_len"):
            if hasattr(layer, name):
                delattr(layer, name)
    for parameter in module.parameters():
        parameter.grad_sample = None  # type: ignore[attr-defined]
        parameter.held = None  # type: ignore[attr-defined]
        parameter._forward_counter = 0  # type: ignore[attr-defined]
        if hasattr(parameter, "_current_grad_sample"):
            del parameter._current_grad_sample


def wide(dtype: torch.dtype) -> torch.dtype:
    """In what norms and sums are taken: float32 or better."""
    return torch.promote_types(dtype, torch.float32)


TWICE = (
    "loss.backward: was called twice in one step, so that one example could count twice; add the "
    "losses up first, or split the batch with BatchMemoryManager"
)
OPEN = (
    "model: a forward pass in training mode was left without its backward pass; evaluate with "
    "model.eval() or under torch.no_grad()"
)


def _close(module: nn.Module) -> None:
    """After the last of a layer's calls in a batch."""
    if not module.activations and hasattr(module, "max_batch_len"):
        del module.max_batch_len


def _has_factors(module: nn.Module) -> bool:
    if isinstance(module, nn.Embedding):
        return not (module.scale_grad_by_freq or module.sparse)
    return not isinstance(getattr(module, "padding", None), str)


def _linear(module: nn.Linear, inputs: Tensor, outputs: Tensor) -> Parts:
    dtype = wide(module.weight.dtype)
    inputs = inputs.to(dtype).reshape(len(inputs), -1, inputs.shape[-1])
    outputs = outputs.to(dtype).reshape(len(outputs), -1, outputs.shape[-1])
    places, numbers = outputs.shape[1], module.weight.numel()
    # Held are whichever are fewer.
    if places > 1 and numbers <= places * (inputs.shape[2] + outputs.shape[2]):
        yield module.weight, Samples(outputs.mT @ inputs, dtype)
    else:
        yield module.weight, OuterProducts(inputs, outputs)
    if module.bias is not None:
        yield module.bias, Samples(outputs.sum(dim=1), dtype)


def _convolution(module: Any, inputs: Tensor, outputs: Tensor) -> Parts:
    dtype = wide(module.weight.dtype)
    inputs, outputs = inputs.to(dtype), outputs.to(dtype)
    samples = compute_conv_grad_sample(module, [inputs], outputs)
    if module.bias is not None and module.bias.requires_grad:
        yield module.bias, Samples(samples[module.bias], dtype)
    if not module.weight.requires_grad:
        return
    kernels = Samples(samples[module.weight], dtype)
    if kernels.gradients.numel() <= inputs.numel() + outputs.numel():
        yield module.weight, kernels
        return
    names = ("stride", "padding", "dilation", "groups")
    geometry = {name: getattr(module, name) for name in names}
    shape = module.weight.shape
    yield module.weight, Kernels(inputs, outputs, kernels.norms(), shape, geometry)


def _embedding(module: nn.Embedding, inputs: Tensor, outputs: Tensor) -> Parts:
    outputs = outputs.to(wide(module.weight.dtype))
    outputs = outputs.reshape(len(inputs), math.prod(inputs.shape[1:]), outputs.shape[-1])
    words = inputs.reshape(len(inputs), outputs.shape[1])
    yield module.weight, TokenRows(words, outputs, module.num_embeddings, module.padding_idx)


RULES: dict[type[nn.Module], Callable[[Any, Tensor, Tensor], Parts]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
}
