"""Validation of a user-defined model and loss, and their conversion to a `GradientEngine`.

A loss is one per example, of its output and target only. Copies of the model are trained: a term of
the loss that bypasses the outputs (a penalty on the weights of the captured model, trainable
weights of the loss) has no gradient in the copies, and would silently be ignored.
"""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized
from torch.utils._pytree import tree_map

from oso_dp.errors import OsoError, failing_as
from oso_dp.gradients import GradientEngine, Precision, check_forward_is_pure
from oso_dp.gradients.independence_checks import warn_of_whole_model
from oso_dp.gradients.layer_calls import UnsupportedCallError
from oso_dp.gradients.structured import Structure, call_model, map_tensors, tensors_of
from oso_dp.training.task import Examples, split_rows

Loss = Callable[[Structure, Tensor], Tensor]


def make_per_example(loss: Any) -> Loss:
    """The loss; OsoError if it is not callable, or its reduction is not 'none'."""
    if not callable(loss):
        raise OsoError(f"loss: {type(loss).__name__}; must be callable")
    if isinstance(loss, type):
        raise OsoError(f"loss: the class {loss.__name__}; must be an instance, or a function")
    reduction = getattr(loss, "reduction", "none")
    if reduction != "none":
        raise OsoError(
            f"loss: reduction {reduction!r}; must be 'none', since clipping needs one loss per "
            "example"
        )
    checked: Loss = loss
    return checked


def check_loss(loss: Loss, model: nn.Module, outputs: Structure, targets: Tensor) -> None:
    """OsoError for a loss that depends on trainable tensors, or that changes when it is computed.

    Such tensors may be parameters of the loss, of the model (a penalty on the weights), or others.
    `outputs` and `targets`: placeholders that the loss accepts.
    """
    of_model = {id(p): name for name, p in model.named_parameters()}
    if isinstance(loss, nn.Module):
        for name, parameter in loss.named_parameters():
            if parameter.requires_grad and id(parameter) not in of_model:
                raise OsoError(
                    f"loss: parameter {name!r} requires a gradient, but only the model's are "
                    "trained; freeze it with requires_grad_(False), or make it part of the model"
                )
        try:
            copy.deepcopy(loss)
        except Exception:  # cannot be copied, and so not checked
            pass
        else:
            fixed = map_tensors(Tensor.detach, outputs)
            check_forward_is_pure(loss, fixed, targets, argument="loss")
    # Tensors created in the call differ between calls: those of both calls are trainable.
    once, again = (_leaves(loss, outputs, targets) for _ in range(2))
    for leaf in (leaf for key, leaf in once.items() if key in again):
        if id(leaf) in of_model:
            raise OsoError(
                f"loss: depends on the model's parameter {of_model[id(leaf)]!r} not only through "
                "the outputs, which has no effect in training; remove that term (such as a penalty "
                "on the weights)"
            )
        raise OsoError(
            f"loss: depends on a tensor of shape {list(leaf.shape)} that requires a gradient, but "
            "only the model's parameters are trained; detach it, or make it part of the model"
        )


def _leaves(loss: Loss, outputs: Structure, targets: Tensor) -> dict[int, Tensor]:
    """The graph's leaves other than the outputs, by `id`."""
    with torch.enable_grad():
        inputs = map_tensors(
            lambda one: one.detach().requires_grad_(one.is_floating_point()), outputs
        )
        losses = loss(map_tensors(Tensor.clone, inputs), targets)
    given = {id(one) for one in tensors_of(inputs)}
    return {id(leaf): leaf for leaf in _graph_ends(losses) if id(leaf) not in given}


def _graph_ends(losses: Tensor) -> Iterator[Tensor]:
    stack, seen = [losses.grad_fn], set()
    while stack:
        node: Any = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):  # a leaf's gradient accumulator
            yield node.variable
        stack += [before for before, _ in node.next_functions]


_MAX_TARGETS_CHECKED = 50


def plain_module(model: nn.Module) -> nn.Module:
    """The module that `torch.compile` wraps, or the module itself.

    Gradients of examples are taken layer by layer, which a compiled forward pass does not show.
    """
    wrapped = getattr(model, "_orig_mod", None)
    return wrapped if isinstance(wrapped, nn.Module) else model


class UserModel:
    """A user's module, which is not changed: parameters [P] are loaded into copies of it.

    OsoError if it is not a module, or has no trainable parameters, complex or lazy parameters, or
    a torch.jit layer.
    """

    def __init__(self, model: Any) -> None:
        if not isinstance(model, nn.Module):
            raise OsoError(f"model: {type(model).__name__}; must be a torch.nn.Module")
        model = plain_module(model)
        if isinstance(model, DistributedDataParallel):
            raise OsoError(
                "model: DistributedDataParallel; pass the module that it wraps: train_private adds "
                "up what the processes of the group compute"
            )
        self.model = model
        self.trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not self.trained:
            raise OsoError("model: has no parameter that requires a gradient")
        for name, parameter in model.named_parameters():
            if is_lazy(parameter):
                raise OsoError(
                    f"model: parameter {name!r} is not initialised (lazy); call the model once on "
                    "an example first"
                )
            if parameter.is_complex():
                raise OsoError(f"model: parameter {name!r} is complex; must be real")
        for name, layer in model.named_modules():
            if isinstance(layer, torch.jit.ScriptModule):
                raise OsoError(
                    f"model: layer {name!r} is a torch.jit module, which cannot be inspected; use "
                    "the original module"
                )
            for key, value in vars(layer).items():
                if torch.is_tensor(value) and not value.is_leaf:  # which torch does not copy
                    raise OsoError(
                        f"model: attribute {key!r} of layer {name!r} is computed from parameters; "
                        "compute it in forward, or by nn.utils.parametrizations (weight_norm)"
                    )

    @property
    def shapes(self) -> list[tuple[str, list[int]]]:
        """Names and shapes of the trained parameters, in the order of the vector [P]."""
        return [(name, list(p.shape)) for name, p in self.trained.items()]

    @property
    def frozen(self) -> dict[str, Tensor]:
        """The frozen parameters."""
        return {name: p for name, p in self.model.named_parameters() if not p.requires_grad}

    def weights(self, device: torch.device) -> Tensor:
        """The initial parameters, float32 [P]; public."""
        flat = [p.detach().flatten().float() for p in self.trained.values()]
        return torch.cat(flat).to(device)

    def with_weights(self, weights: Tensor) -> nn.Module:
        """A copy of the model with these parameters [P]."""
        model = copy.deepcopy(self.model)
        values = weights.detach().split([p.numel() for p in self.trained.values()])
        with torch.no_grad():
            for name, value in zip(self.trained, values, strict=True):
                parameter = model.get_parameter(name)
                parameter.copy_(value.view_as(parameter))
        return model

    def recipe(self, device: torch.device) -> nn.Module:
        """A copy in which frozen parameters are buffers.

        A frozen layer's `parameters()` still returns them: the model may ask for their type.
        """
        model = copy.deepcopy(self.model).to(device).float()
        for layer in model.modules():
            own = dict(layer.named_parameters())
            if own and not any(parameter.requires_grad for parameter in own.values()):
                layer.__dict__["parameters"] = partial(_buffers_of, layer, list(own))
        for layer in model.modules():
            for name, parameter in list(layer.named_parameters(recurse=False)):
                if not parameter.requires_grad:
                    delattr(layer, name)
                    layer.register_buffer(name, parameter.detach())
        return model

    def losses_by(self, loss: Loss) -> Loss:
        """A function from inputs and targets to losses at the initial parameters, on the CPU."""

        def losses(inputs: Structure, targets: Tensor) -> Tensor:
            model = copy.deepcopy(self.model).cpu().float().eval()  # one value for one example
            return loss(call_model(model, inputs), targets)

        return losses

    def check_inputs(self, examples: Examples) -> None:
        """OsoError for integer inputs that the model rejects, such as tokens beyond an embedding.

        For examples that are tensors, the minimum and the maximum of each position are tried, on
        the CPU, where a failure has no side effects.
        """
        inputs = getattr(examples, "inputs", None)
        if all(one.is_floating_point() for one in tensors_of(inputs)):
            return
        model = copy.deepcopy(self.model).cpu()
        types = examples.empty()[0]
        ends = [
            tree_map(partial(_end_of_each, end), inputs, types) for end in (torch.amin, torch.amax)
        ]
        for example in ends:
            try:
                with torch.no_grad():
                    call_model(model, example)
            except IndexError as error:
                whole = [one for one in tensors_of(ends) if not one.is_floating_point()]
                every = torch.cat([one.flatten().long() for one in whole])
                line = " ".join(str(error).split())
                raise OsoError(
                    f"data: inputs are integers from {every.min()} to {every.max()}, and the model "
                    f"does not accept all of them: {line}"
                ) from error
            except Exception:  # no example has this combination of values
                return

    def make_engine(
        self, loss: Loss, examples: Examples, precision: Precision, device: torch.device
    ) -> GradientEngine:
        """The gradient engine.

        OsoError if the loss is not one per example, the model rejects the examples, parameters are
        not finite, or the forward pass changes the model.
        """
        for name, parameter in self.model.named_parameters():
            if not parameter.isfinite().all():
                raise OsoError(
                    f"model: parameter {name!r} contains NaN or infinity; must be finite"
                )
        engine = GradientEngine(self.recipe(device), make_per_example(loss), precision)
        if any(map(is_parametrized, self.model.modules())):  # weights that are computed in no layer
            engine.take_whole_model()
        inputs, targets = zeros(examples, 3)
        weights = self.weights(device)
        pure, empty = copy.deepcopy(self.model).to(device).float(), examples.empty()[0]
        check_forward_is_pure(pure, *(empty if isinstance(empty, tuple) else (empty,)))
        with torch.no_grad():
            with failing_as(f"model: fails on three examples {_kind_of(inputs)}"):
                outputs: Any = _first_outputs(engine, weights, inputs)
            with failing_as(f"loss: fails on three targets {_kind_of(targets)}"):
                losses = engine.loss(outputs, targets)
        if not any(one.is_floating_point() for one in tensors_of(outputs)):
            raise OsoError(
                f"model: returns {type(outputs).__name__}; must return a tensor, or a tuple, "
                "dictionary or dataclass of tensors"
            )
        if not torch.is_tensor(losses) or losses.shape[:1] != (3,):
            found = list(losses.shape) if torch.is_tensor(losses) else type(losses).__name__
            raise OsoError(
                f"loss: returns {found} for three examples; must return one loss per example, [3] "
                "(reduction='none')"
            )
        if losses.dim() > 1:
            if losses.shape[1:] == targets.shape and _compares_all(engine.loss, outputs, targets):
                raise OsoError(
                    f"loss: compares outputs of shape {list(outputs.shape)} with targets "
                    f"{list(targets.shape)}, each with each; give targets the shape [n, 1]"
                )
            engine.loss = MeanOfElements(engine.loss)
        check_loss(engine.loss, self.model, outputs, targets)
        return engine


def _buffers_of(layer: nn.Module, names: list[str], recurse: bool = True) -> Iterator[Tensor]:
    return (layer.get_buffer(name) for name in names if recurse or "." not in name)


def _first_outputs(engine: GradientEngine, weights: Tensor, inputs: Structure) -> Structure:
    """The model's outputs; the engine takes the whole model where its layers have no rules."""
    try:
        return engine.outputs(weights, inputs)
    except UnsupportedCallError as error:
        engine.take_whole_model()
        outputs = engine.outputs(weights, inputs)
        warn_of_whole_model(error)
        return outputs


def _compares_all(loss: Loss, outputs: Any, targets: Tensor) -> bool:
    """Whether the loss has an element for each pair of an output and a target of the batch."""
    if not torch.is_tensor(outputs) or outputs.shape == targets.shape:
        return False
    return loss(outputs[:2], targets[:2]).shape[1:] == targets[:2].shape


class MeanOfElements(nn.Module):
    """A loss of several numbers for each example, [N, ...], as their mean, [N]."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, outputs: Structure, targets: Tensor) -> Tensor:
        return self.loss(outputs, targets).flatten(1).mean(dim=1)


_WITHOUT_ORDER = (torch.uint16, torch.uint32, torch.uint64)  # torch compares no such numbers


def _end_of_each(end: Callable[..., Tensor], values: Tensor, like: Tensor) -> Tensor:
    """An example with the least or the largest value of each position, on the CPU."""
    dtype = torch.int64 if values.dtype in _WITHOUT_ORDER else values.dtype
    ends = [end(chunk, dim=0) for chunk in split_rows(values, dtype)]
    return end(torch.stack(ends), dim=0)[None].to("cpu", like.dtype)


def zeros(examples: Examples, count: int) -> tuple[Structure, Tensor]:
    """So many made-up examples."""
    inputs, targets = examples.empty()

    def made(one: Tensor) -> Tensor:
        return one.new_zeros(count, *one.shape[1:])

    return map_tensors(made, inputs), made(targets)


def _kind_of(values: Structure) -> str:
    """The shape of an example's values, with a hint where they are no floats."""
    parts = tensors_of(values)
    hint = "" if all(map(torch.is_floating_point, parts)) else " (integers; convert with float())"
    if hint and parts[0].dim() > 1 and parts[0].shape[-1] == 1:
        hint = " (integers; remove the last dimension with squeeze(-1), or convert with float())"
    return f"of shape {', '.join(str(list(one.shape[1:])) for one in parts)}{hint}"


def _logits(outputs: Structure) -> Tensor | None:
    """Outputs that may be of classes: the first that has one number for each."""
    return next((one for one in tensors_of(outputs) if one.dim() == 2), None)


def count_classes(engine: GradientEngine, weights: Tensor, examples: Examples) -> int:
    """The number of classes K: of outputs [B, K], if the loss accepts the target K - 1; else 2."""
    inputs, targets = zeros(examples, 3)
    with torch.no_grad():
        outputs = engine.outputs(weights, inputs)
    logits = _logits(outputs)
    if targets.is_floating_point() or targets.dim() != 1 or logits is None:
        return 2
    try:
        engine.loss(outputs, targets + logits.shape[1] - 1)
    except Exception:  # a loss may raise anything on an unknown target
        return 2
    return max(2, logits.shape[1])


def _float_range(targets: Tensor) -> list[float]:
    """The least and the largest finite number; none if there is none."""
    ends: list[float] = []
    for chunk in split_rows(targets, torch.float64):
        finite = chunk[chunk.isfinite()]
        ends += [float(end) for end in finite.aminmax()] if len(finite) else []
    return [min(ends), max(ends)] if ends else []


def check_targets(engine: GradientEngine, weights: Tensor, examples: Examples) -> None:
    """OsoError for a target that the loss rejects, which would fail during training.

    For examples that are tensors: of float targets the least and the largest, of integer targets
    [n] and outputs [n, K] all; on the CPU, where a failure has no side effects.
    """
    targets = getattr(examples, "targets", None)
    if targets is None:
        return
    inputs, one = zeros(examples, 1)
    with torch.no_grad():
        outputs = map_tensors(lambda part: part.cpu(), engine.outputs(weights, inputs))
    loss: Any = engine.loss
    if isinstance(loss, nn.Module):
        loss = copy.deepcopy(loss).cpu()

    def accepts(target: float) -> bool:
        try:
            loss(outputs, torch.full_like(one, target, device="cpu"))
        except (IndexError, RuntimeError, ValueError):
            return False
        return True

    if one.is_floating_point():
        ends = _float_range(targets)
        rejected = [end for end in ends if not accepts(end)]
        if rejected and (accepts(0.0) or accepts(1.0)):
            raise OsoError(f"data: targets contain {rejected[0]:g}, which the loss does not take")
        return
    logits = _logits(outputs)
    if one.dim() != 1 or logits is None:
        return
    classes = logits.shape[1]
    if not (accepts(0) and accepts(classes - 1)):  # not a classification loss
        return
    others: list[int] = []
    for chunk in split_rows(targets, torch.int64):
        outside = chunk[(chunk < 0) | (chunk >= classes)].unique()[:_MAX_TARGETS_CHECKED]
        others = sorted({*others, *outside.tolist()})[:_MAX_TARGETS_CHECKED]
    unknown = [target for target in others if not accepts(target)]
    if unknown:
        raise OsoError(
            f"data: targets contain {unknown[0]}; must be 0 to {classes - 1}, for this model's "
            f"{classes} outputs"
        )
