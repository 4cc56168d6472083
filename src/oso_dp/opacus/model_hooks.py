"""Opacus's wrapped models (hooks that compute per-sample gradients) for each grad_sample_mode.

They differ from Opacus's in three points. An empty batch gives per-sample gradients of 0 examples
in every mode; Opacus's functorch mode and its attention layer fail on it. In ghost mode, a layer's
inputs and output gradients are stored (`per_sample_gradients`) instead of norms only, so that two
weighted sums need one backward pass instead of three. In the other modes this holds for Embedding,
whose `padding_idx` Opacus ignores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.grad_sample import (
    GradSampleHooks,
    GradSampleHooksFastGradientClipping,
    GradSampleModule,
    GradSampleModuleFastGradientClipping,
)
from opacus.utils.module_utils import trainable_parameters
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

from oso_dp.errors import OsoError
from oso_dp.gradients.layer_calls import BATCH_NORMS
from oso_dp.opacus.gradient_origins import GradientOrigins, find_leaves, find_low_precision
from oso_dp.opacus.layer_rules import RULES, accumulation_dtype, has_factors
from oso_dp.opacus.per_sample_gradients import Dense, PerSampleGradient

HOOKS, FUNCTORCH, GHOST = "hooks", "functorch", "ghost"
MODES = (HOOKS, FUNCTORCH, GHOST)
WRAPPERS = (DistributedDataParallel, DifferentiallyPrivateDistributedDataParallel)
Writes = tuple[str, Tensor, int]  # a tensor's name, and how often it was written to


class PerExampleHooks:
    """Mixin for Opacus's hooks.

    `layer_rules`: layer types whose gradients are stored as factors; others' are stored densely.
    """

    layer_rules: ClassVar[set[type[nn.Module]]] = {nn.Embedding}
    batch_first: bool
    hooks_enabled: bool
    empty = False  # the batch is empty, and a placeholder example of zeros gives its shapes
    is_placeholder = False  # the same, for a call in training or evaluation
    # A wrapped model exposes the user's attributes, which names here must not hide.
    _module: nn.Module
    was_called = False  # in training mode, since the last step
    example_count: int | None = None  # batch size of that call, None if unknown
    batch_inputs: Tensor | None = None  # its input, or the base of which it is a view
    calls = 0  # in training mode, so far
    are_losses_summed = False  # in this backward pass, whatever the reduction
    is_mean_of_losses = False  # in every backward pass
    needs_criterion = False  # that make_private returned, which sums the losses
    low_precision: torch.dtype | None = None  # in that call's gradients
    loss_factors: tuple[float, ...] = ()  # of the first ghost loss
    keeps_outputs = False  # until the criterion is checked
    outputs: Sequence[Tensor] = ()  # of that call, those that require a gradient
    origins: GradientOrigins | None = None  # watches that call's backward pass, in some calls
    learning: Sequence[Tensor] = ()  # the parameters that required a gradient in that call
    trained_inputs = False  # the inputs of that call were computed from what may be trained
    is_in_call = False  # in training mode, now
    called_layers: frozenset[int] = frozenset()  # `id`s of those seen in that call
    eval_layers: Sequence[nn.Module] = ()  # those of the user's that were checked in eval mode
    # Of parameters and buffers, before the call; after it, of those that no step may change.
    writes_before: Sequence[Writes] = ()
    writes_after: Sequence[Writes] = ()
    learning_before: Sequence[tuple[Tensor, Tensor]] = ()  # each, and its values before the call

    def watch_calls(self) -> None:
        self.eval_layers = [
            layer
            for layer in self._module.modules()
            if not layer.training and not type(layer).__module__.startswith(("torch.", "opacus."))
        ]
        hooks: Any = self._module.autograd_grad_sample_hooks  # which cleanup removes
        hooks.append(self._module.register_forward_pre_hook(self.before_forward, with_kwargs=True))
        hooks.append(self._module.register_forward_hook(self.after_forward))

    def expand_position_ids(self) -> None:
        """Repeat an Embedding's single row of position ids for each example.

        Only for models that `check_independence` has checked: there, the row is added to every
        example.
        """
        hooks: Any = self._module.autograd_grad_sample_hooks

        def expand(layer: nn.Module, args: Any) -> Any:
            words, *rest = args
            count = self.example_count if self.is_in_call and not self.empty else None
            if count in (None, 1) or words.dim() < 2 or len(words) != 1:
                return None
            return words.expand(count, *words.shape[1:]), *rest

        for layer in self._module.modules():
            if type(layer) is nn.Embedding:
                hooks.append(layer.register_forward_pre_hook(expand))

    def before_forward(self, model: nn.Module, args: Any, kwargs: Any) -> Any:
        """OsoError if an earlier batch has no backward pass yet: row i would mix two examples.

        For an empty batch that the model does not accept, returns placeholder inputs.
        """
        dim = 0 if self.batch_first else 1
        training = torch.is_grad_enabled() and any(layer.training for layer in model.modules())
        training = training and self.hooks_enabled
        leaves = tree_leaves((args, kwargs), is_leaf=lambda leaf: isinstance(leaf, PackedSequence))
        self.is_placeholder = _is_empty(leaves, dim) and not _accepts(model, args, kwargs)
        parameters = list(model.parameters())
        for name, layer in model.named_modules():  # also without gradients: it keeps statistics
            if layer.training and isinstance(layer, BATCH_NORMS) and layer.track_running_stats:
                raise OsoError(MSG_STATISTICS.format(name, type(layer).__name__))
            if training and layer.training and any(layer is one for one in self.eval_layers):
                raise OsoError(MSG_CHECKED_IN_EVAL.format(name, type(layer).__name__))
        if training:
            learning = [parameter for parameter in parameters if parameter.requires_grad]
            if learning and not any(hasattr(p, "_forward_counter") for p in learning):
                raise OsoError(MSG_COPY)
            if any(getattr(parameter, "_forward_counter", 0) for parameter in parameters):
                raise OsoError(MSG_PENDING)
            self.check_unchanged()
            self.was_called, self.empty = True, self.is_placeholder
            self.called_layers = frozenset()
            first, count = _first(leaves, dim)
            self.example_count = 0 if self.empty else count
            self.batch_inputs = first if first is None or first._base is None else first._base
            self.trained_inputs = bool(find_leaves(leaves))
            self.learning = learning
            self.learning_before = [(p, p.detach().clone()) for p in self.learning]
            self._watch_origins()
        else:
            self.compare()
        self.is_in_call, self.writes_before = training, _count_all_writes(model)
        return _placeholder((args, kwargs), dim) if self.is_placeholder else None

    def after_forward(self, model: nn.Module, args: Any, outputs: Any) -> Any:
        """OsoError if the call wrote to the model. Outputs of a placeholder become empty."""
        writes, self.writes_before = self.writes_before, ()
        if changed := _first_changed(model, writes):
            raise OsoError(MSG_IN_PLACE.format("forward", changed))
        if self.is_in_call:
            learning = {id(parameter) for parameter in self.learning}
            self.writes_after = [one for one in writes if id(one[1]) not in learning]
            tensors = [v for v in tree_leaves(outputs) if torch.is_tensor(v) and v.requires_grad]
            self.outputs = tensors if self.keeps_outputs else ()
            if self.is_mean_of_losses:
                self._watch_precision(tensors)
        self.is_in_call = False
        if not self.is_placeholder:
            return None
        dim = 0 if self.batch_first else 1
        return tree_map(lambda v: v.narrow(dim, 0, 0) if torch.is_tensor(v) else v, outputs)

    def _watch_precision(self, outputs: Sequence[Tensor]) -> None:
        """Find low precision in the call's backward pass, and refuse it in the loss's."""
        self.low_precision = find_low_precision(outputs)
        count = self.example_count or 1  # 1: an empty batch has no gradients

        def check(gradient: Tensor) -> None:
            if (dtype := _rounded_to(gradient, count)) is not None:
                raise OsoError(MSG_ROUNDED_MEAN.format(dtype))

        for output in outputs:
            output.register_hook(check)

    def check_count(self, size: int) -> None:
        """OsoError unless `size` is the number of examples of the last call."""
        if not self.was_called:
            raise OsoError("model: was not called; call the model itself, not only its layers")
        if self.example_count not in (None, size):
            raise OsoError(
                f"model: layers see {size} examples in a batch of {self.example_count}, the rows "
                "of the call's first tensor; row i of each layer's input must belong to example i"
            )

    def check_unchanged(self) -> None:
        """OsoError if the model has changed since the last call, before its step.

        Trained parameters by value: torch does not count what fused optimizers, and writes to
        `.data`, change.
        """
        self.compare()
        self.learning_before, self.writes_after = (), ()

    def compare(self) -> None:
        """The same, and it is compared again later."""
        if any(not _have_same_values(p, values) for p, values in self.learning_before):
            raise OsoError(MSG_OTHER_OPTIMIZER)
        if changed := _first_changed(self._module, self.writes_after):
            raise OsoError(MSG_IN_PLACE.format("backward", changed))

    def forget_batch(self) -> None:
        """Drop the batch's gradients and records."""
        clear_gradients(self._module)
        self.was_called, self.example_count, self.batch_inputs = False, None, None
        self.learning_before, self.writes_after, self.outputs = (), (), ()
        self.called_layers = frozenset()
        self._close_origins()

    def check_gradients(self) -> None:
        """OsoError if a gradient of the last call does not come from a hooked layer."""
        foreign = None if self.origins is None else self.origins.foreign
        for name, parameter in self._module.named_parameters() if foreign is not None else ():
            if parameter is foreign:
                raise OsoError(MSG_FOREIGN_GRADIENT.format(name))
        if self.trained_inputs:
            raise OsoError(MSG_INPUTS)

    def capture_activations_hook(self, *arguments: Any) -> None:
        # Opacus's ghost hooks reject tied parameters; here they are stored as in hooks mode.
        layer = arguments[0]
        is_recomputed = torch._C._current_graph_task_id() != -1  # in a backward pass
        if is_recomputed and not self.is_in_call and id(layer) in self.called_layers:
            return  # by gradient checkpointing
        GradSampleHooks.capture_activations_hook(self, *arguments)
        if self.is_in_call and torch.is_grad_enabled():
            self.called_layers = self.called_layers | {id(layer)}
        if self.origins is not None:
            self.origins.add_layer(arguments[-1])

    def capture_backprops_hook(
        self,
        module: Any,
        _forward_input: Any,
        forward_output: Any,
        loss_reduction: str,
        batch_first: bool,
    ) -> None:
        if not self.hooks_enabled:
            return
        if not getattr(module, "activations", None):
            if id(module) in self.called_layers:
                raise OsoError(MSG_USED_TWICE)
            raise OsoError(MSG_EVAL.format(type(module).__name__))
        outputs = forward_output[0].detach()
        if self.needs_criterion and not self.are_losses_summed:
            raise OsoError(MSG_OTHER_CRITERION)
        if self.are_losses_summed:
            loss_reduction = "sum"
        if self.low_precision is not None:
            raise OsoError(MSG_ROUNDED_MEAN.format(self.low_precision))
        if self.empty or outputs.shape[0 if batch_first else 1] == 0:
            self._store_zeros(module)
        elif type(module) in self.layer_rules and batch_first and has_factors(module):
            self._store_factors(module, outputs, loss_reduction)
        else:
            arguments = (module, _forward_input, forward_output, loss_reduction, batch_first)
            GradSampleHooks.capture_backprops_hook(self, *arguments)

    def set_grad_sample_to_none(self) -> None:
        """Called by the model's zero_grad."""
        for parameter in self._module.parameters():
            parameter.grad_sample = parameter.held = None  # type: ignore[attr-defined]

    def cleanup(self) -> None:
        for parameter in self._module.parameters():
            if hasattr(parameter, "held"):
                del parameter.held
        super().cleanup()  # type: ignore[misc]

    def _watch_origins(self) -> None:
        """Watch calls 1, 2, 4, 8, ...: most losses have the same terms in every call."""
        self._close_origins()
        self.calls += 1
        if self.calls & (self.calls - 1) == 0:
            self.origins = GradientOrigins(self.learning)

    def _close_origins(self) -> None:
        if self.origins is not None:
            self.origins.close()
        self.origins = None

    def _store_zeros(self, module: Any) -> None:
        module.activations.pop()
        for _, parameter in trainable_parameters(module):
            parameter._forward_counter -= 1
            if parameter._forward_counter == 0:
                parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))
        _close(module)

    def _store_factors(self, module: Any, outputs: Tensor, loss_reduction: str) -> None:
        inputs, outputs = self.rearrange_grad_samples(  # type: ignore[attr-defined]
            module=module, backprops=outputs, loss_reduction=loss_reduction, batch_first=True
        )
        with torch.no_grad(), torch.autocast(outputs.device.type, enabled=False):
            for parameter, held in RULES[type(module)](module, inputs[0], outputs):
                if parameter.requires_grad:
                    store_gradient(parameter, held)
        for parameter in module.parameters(recurse=False):
            if parameter.requires_grad:
                parameter._forward_counter -= 1
        _close(module)


class HookedModule(PerExampleHooks, GradSampleModule):
    """A wrapped model whose parameters get `grad_sample`."""


class ModuleHooks(PerExampleHooks, GradSampleHooks):
    """The same for wrap_model=False."""


class GhostModule(PerExampleHooks, GradSampleModuleFastGradientClipping):
    """A wrapped model whose parameters get `held` (factors), or else `grad_sample`."""


class GhostHooks(PerExampleHooks, GradSampleHooksFastGradientClipping):
    """The same for wrap_model=False."""


def wrap_model(
    module: nn.Module, mode: str, batch_first: bool, loss_reduction: str, wrap_model: bool
) -> HookedModule | ModuleHooks | GhostModule | GhostHooks:
    """Return the model with hooks; `mode` is one of MODES."""
    common: dict[str, Any] = {"batch_first": batch_first, "loss_reduction": loss_reduction}
    hooked: HookedModule | ModuleHooks | GhostModule | GhostHooks
    if mode == GHOST:
        hooked = (GhostModule if wrap_model else GhostHooks)(module, **common)
    else:
        plain = HookedModule if wrap_model else ModuleHooks
        hooked = plain(module, **common, force_functorch=mode == FUNCTORCH)
    hooked.watch_calls()
    hooked.is_mean_of_losses = mode != GHOST and loss_reduction == "mean"
    return hooked


def _rounded_to(gradient: Tensor, count: int) -> torch.dtype | None:
    """The type below float32 in which the gradient of a mean over `count` was computed, or None.

    1 / count is not exact in such a type, unless count is a power of two, nor is the gradient.
    """
    if count & (count - 1) == 0:
        return None
    numbers = gradient[(gradient != 0) & gradient.isfinite()]
    for dtype in (torch.bfloat16, torch.float16) if len(numbers) else ():
        if torch.equal(numbers.to(dtype).to(numbers.dtype), numbers):
            return dtype
    return None


def store_gradient(parameter: Any, held: PerSampleGradient) -> None:
    """Store it; OsoError if the parameter has one of an earlier backward pass of this step."""
    if getattr(parameter, "held", None) is not None:
        raise OsoError(MSG_USED_TWICE)
    parameter.held = held


def per_sample_gradient(parameter: nn.Parameter) -> PerSampleGradient | None:
    """A parameter's gradients of the last backward pass; None if that did not reach it."""
    held: PerSampleGradient | None = getattr(parameter, "held", None)
    samples = getattr(parameter, "grad_sample", None)
    if isinstance(samples, list) or (held is not None and samples is not None):
        raise OsoError(MSG_USED_TWICE)
    if hasattr(parameter, "_current_grad_sample"):  # another batch has no backward pass yet
        raise OsoError(MSG_PENDING)
    if held is not None or samples is None:
        return held
    return Dense(samples, accumulation_dtype(parameter.dtype))


def clear_gradients(module: nn.Module) -> None:
    """Drop a batch's activations and gradients, also at layers that the loss did not reach."""
    for layer in module.modules():
        for name in ("activations", "max_batch_len"):
            if name in vars(layer):  # a wrapper exposes its inner layer's
                delattr(layer, name)
    for parameter in module.parameters():
        parameter.grad_sample = None  # type: ignore[attr-defined]
        parameter.held = None  # type: ignore[attr-defined]
        parameter._forward_counter = 0  # type: ignore[attr-defined]
        if hasattr(parameter, "_current_grad_sample"):
            del parameter._current_grad_sample


MSG_USED_TWICE = (
    "loss.backward: called twice in one step; an example could count twice; call the model once "
    "per batch, or split the batch with BatchMemoryManager"
)
MSG_OTHER_CRITERION = (
    "loss.backward: not of the criterion that make_private returned, which alone checks that no "
    "loss depends on another example; compute the loss with that one"
)
MSG_FOREIGN_GRADIENT = (
    "loss: parameter {!r} gets a gradient that belongs to no example (a weight penalty, a layer "
    "called outside of the model), which would have no effect; use the optimizer's weight_decay "
    "for a penalty"
)
MSG_INPUTS = (
    "model: inputs are computed from a tensor that requires a gradient, whose gradient has no "
    "noise; make it a parameter of the module, or detach the inputs"
)
MSG_IN_PLACE = (
    "module: the {} pass changes {}, bypassing clipping and noise; compute with a changed copy"
)
MSG_COPY = (
    "model: is a copy of the private model, or called with other parameters, which have no "
    "per-sample gradients; train the model that make_private returned"
)
MSG_CHECKED_IN_EVAL = (
    "model: layer {!r} ({}) was in eval mode when make_private checked it and is in training mode "
    "now; call eval() on it after model.train(), or model.train() before make_private"
)
MSG_ROUNDED_MEAN = (
    "loss.backward: gradients of a mean loss in {}, whose factor 1 / batch size is rounded so that "
    "one more example would scale all others; use grad_sample_mode='ghost', or loss_reduction='sum'"
)
MSG_OTHER_OPTIMIZER = (
    "model: its parameters were changed after a call in training mode, but not by the optimizer "
    "that make_private returned; take the step with that one: another's has no noise"
)
MSG_PENDING = (
    "model: an earlier forward pass in training mode has no backward pass; call the model once per "
    "batch (one forward method for real and generated examples); evaluate with model.eval() or "
    "under torch.no_grad()"
)
MSG_STATISTICS = (
    "model: layer {!r} ({}) is in training mode, in which it mixes the examples of a batch; call "
    "eval() on it after model.train()"
)
MSG_EVAL = (
    "model: a {} is in eval mode, in which there are no per-example gradients; call train(), and "
    "eval() of its dropout layers only"
)


def count_writes(tensor: Tensor) -> int:
    """How often torch wrote to the tensor in place."""
    return 0 if tensor.is_inference() else tensor._version


def _count_all_writes(model: nn.Module) -> list[Writes]:
    return [(name, tensor, count_writes(tensor)) for name, tensor in _tensors(model).items()]


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return dict([*model.named_parameters(), *model.named_buffers()])


def _first_changed(model: nn.Module, writes: Sequence[Writes]) -> str:
    """The first tensor that was written to or replaced, for messages; empty if there is none."""
    now = _tensors(model) if writes else {}
    for name, tensor, count in writes:
        if now.get(name) is not tensor or count_writes(tensor) != count:
            kind = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
            return f"{kind} {name!r}"
    return ""


def _have_same_values(one: Tensor, other: Tensor) -> bool:
    """Also where NaN is."""
    one = one.detach()
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())


def _is_empty(leaves: Sequence[Any], dim: int) -> bool:
    tensors = [value for value in leaves if torch.is_tensor(value)]
    return any(value.dim() > dim and value.shape[dim] == 0 for value in tensors)


def _accepts(model: nn.Module, args: Any, kwargs: Any) -> bool:
    """Whether the model runs on an empty batch; some of Opacus's layers do not."""
    # The inner module: a distributed wrapper would wait for the other workers.
    inner: Any = model.module if isinstance(model, WRAPPERS) else model
    try:
        with torch.no_grad():
            inner.forward(*args, **kwargs)
    except RuntimeError:
        return False
    return True


def _placeholder(arguments: Any, dim: int) -> Any:
    """An empty batch with one example of zeros added."""

    def fill(value: Any) -> Any:
        if not torch.is_tensor(value) or value.dim() <= dim or value.shape[dim] > 0:
            return value
        shape = list(value.shape)
        shape[dim] = 1
        return value.new_zeros(shape)

    return tree_map(fill, arguments)


def _first(leaves: Sequence[Any], dim: int) -> tuple[Tensor | None, int | None]:
    """The first tensor with a batch dimension, and its number of examples."""
    for value in leaves:
        if isinstance(value, PackedSequence):
            return value.data, int(value.batch_sizes[0])
        if torch.is_tensor(value) and value.dim() > dim:
            return value, value.shape[dim]
    return None, None


def _close(module: Any) -> None:
    """Clean up after the last of a layer's calls in a batch."""
    if not module.activations and "max_batch_len" in vars(module):
        del module.max_batch_len


GhostModule.layer_rules = GhostHooks.layer_rules = set(RULES)
