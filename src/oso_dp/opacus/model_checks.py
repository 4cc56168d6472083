"""Checks before training that a model keeps examples apart, on random inputs.

Clipping bounds an example's contribution only if its per-sample gradient is complete and depends on
no other example. So each example's gradient, computed alone by autograd, is compared with the
per-sample gradients that Opacus's hooks compute in a batch of three. A forward pass must not change
the model either (`oso_dp.gradients.pure_forward`).

Only the first real example is read, for its shape and type. The check is skipped, with a warning,
if these do not say how the model is called (custom collate function, examples that are neither
tuples nor dictionaries of the model's arguments, non-tensor inputs, batch_first=False), if the
model does not run on random inputs, or if it is large. A model that draws random numbers is checked
by its outputs first, then by its gradients without dropout.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, default_collate

from oso_dp.errors import OsoError
from oso_dp.gradients import check_forward_is_pure
from oso_dp.gradients.output_mixing import (
    EXAMPLES,
    mixes_by_chance,
    mixes_for_tokens,
    mixes_in_large_batch,
    padded_inputs,
)
from oso_dp.gradients.pure_forward import check_unchanged
from oso_dp.gradients.random_numbers import seed_torch, seeded
from oso_dp.gradients.structured import (
    Structure,
    call_model,
    map_tensors,
    select,
    tensors_of,
)
from oso_dp.opacus.model_hooks import WRAPPERS, per_sample_gradient, wrap_model
from oso_dp.opacus.per_sample_gradients import PerSampleGradients

TOLERANCE, MAX_PARAMETERS = 1e-6, 20_000_000
MSG_MIXES = (
    "module: an example's outputs depend on other examples of its batch; the model mixes examples"
)


def check_independence(
    module: nn.Module, loader: DataLoader, mode: str, batch_first: bool, trained: set[int]
) -> str:
    """OsoError if an example's gradient differs between a batch and alone.

    Returns why the model is not checked, or "" if it is. `trained`: `id`s of the parameters that
    the optimizer updates.
    """
    if isinstance(module, WRAPPERS):
        module = module.module
    if sum(p.numel() for p in module.parameters()) > MAX_PARAMETERS:
        return f"it has more than {MAX_PARAMETERS:,} parameters"
    if not batch_first:
        return "batch_first=False"
    names = {name for name, p in module.named_parameters() if id(p) in trained}
    with seeded(0, *_devices(module)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on hooks of a model without inputs that need gradients
        try:
            model, inputs = _made_up(module, loader)
            directions, alone = _reference_gradients(model, inputs, names)
        except OsoError:
            raise
        except Exception as error:  # a user's model may raise anything on random inputs
            return " ".join(str(error).split())[:200] or type(error).__name__
        _compare(model, inputs, directions, alone, mode, batch_first, names)
        _check_mixing(model, inputs)
        for padded in padded_inputs(model, inputs):
            try:
                directions, alone = _reference_gradients(model, padded, names)
            except Exception:  # whatever a model may do with numbers that mean nothing
                continue
            if alone.isfinite().all():
                _compare(model, padded, directions, alone, mode, batch_first, names)
    return ""


class _NotCheckedError(Exception):
    """Why random inputs cannot tell whether the model mixes examples."""


def _made_up(module: nn.Module, loader: DataLoader) -> tuple[nn.Module, Structure]:
    """A copy of the model, in float64 and without dropout, and a batch of random inputs.

    Raises `_NotCheckedError`, or what the model raises on random inputs.
    """
    example = _example(module, loader)
    if example is None:
        raise _NotCheckedError("the data set's first example does not say how it is called")
    first = next(p for p in module.parameters() if p.is_floating_point())
    example = map_tensors(
        lambda one: one.to(first if one.is_floating_point() else first.device), example
    )
    check_forward_is_pure(module, example, argument="module")
    inputs = map_tensors(_random_batch, example)
    model = copy.deepcopy(module).double()
    _perturb(model)
    if _outputs(model, inputs) is None:
        raise _NotCheckedError("its outputs have not one row for each example")
    if _draws_random(model, inputs):
        _check_random_draws(model, inputs)
        _disable_dropout(model)
        if _draws_random(model, inputs):
            raise _NotCheckedError("it draws random numbers outside of layers for dropout")
    return model, inputs


def _reference_gradients(
    model: nn.Module, inputs: Structure, names: set[str]
) -> tuple[list[Tensor], Tensor]:
    """Weights of the outputs, and the gradient of each example alone, [B, P]."""
    directions = [torch.randn_like(one) for one in _outputs(model, inputs) or []]
    rows = []
    for index in range(EXAMPLES):
        one = slice(index, index + 1)
        model.zero_grad()
        _product(model, select(inputs, one), [part[one] for part in directions]).backward()
        rows.append(_flat(model, names))
    model.zero_grad()
    return directions, torch.stack(rows)


def _outputs(model: nn.Module, inputs: Structure) -> list[Tensor] | None:
    """The model's float outputs; None if there are none, or one has not a row per example."""
    found = [one for one in tensors_of(call_model(model, inputs)) if one.is_floating_point()]
    size = len(tensors_of(inputs)[0])
    return found if found and all(one.shape[:1] == (size,) for one in found) else None


def _is_deterministic(model: nn.Module, inputs: Structure) -> bool:
    pairs = zip(_outputs(model, inputs) or [], _outputs(model, inputs) or [], strict=True)
    return all(torch.equal(one, again) for one, again in pairs)


def _disable_dropout(model: nn.Module) -> None:
    """Eval mode for modules without parameters of their own, as dropout and attention."""
    for layer in model.modules():
        if not list(layer.parameters(recurse=False)):
            layer.training = False


def _product(model: nn.Module, inputs: Structure, directions: list[Tensor]) -> Tensor:
    """The model's outputs times these directions."""
    pairs = zip(_outputs(model, inputs) or [], directions, strict=True)
    return torch.stack([(one * direction).sum() for one, direction in pairs]).sum()


def _perturb(model: nn.Module) -> None:
    """Move the parameters off their initial values: a layer of zeros hides those before it."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                spread = float(parameter.std()) if parameter.numel() > 1 else 0.0
                parameter.add_((spread or 0.05) * torch.randn_like(parameter))


def _draws_random(model: nn.Module, inputs: Structure) -> bool:
    """Whether two calls have different outputs, or move one of torch's generators on."""
    before = _random_states()
    repeats = _is_deterministic(model, inputs)
    return not (repeats and all(map(torch.equal, before, _random_states())))


def _devices(model: nn.Module) -> set[torch.device]:
    return {parameter.device for parameter in model.parameters()}


def _random_states() -> list[Tensor]:
    """Of the CPU's generator, and of each GPU's if there are any in use."""
    of_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *of_gpus]


def _check_random_draws(model: nn.Module, inputs: Structure) -> None:
    """OsoError if with equal draws outputs differ, or depend on the others of the batch."""

    def outputs() -> list[Tensor]:
        seed_torch(1, _devices(model))
        return _outputs(model, inputs) or []

    if not all(map(torch.equal, outputs(), outputs())):
        raise OsoError(
            "module: outputs for equal inputs differ after torch.manual_seed; draw random numbers "
            "with torch only, so that the model can be checked"
        )
    if mixes_by_chance(lambda batch: _outputs(model, batch) or [], inputs, TOLERANCE):
        raise OsoError(MSG_MIXES)


def _check_mixing(model: nn.Module, inputs: Structure) -> None:
    """OsoError if outputs depend on other examples, for some tokens or in large batches."""

    def outputs(batch: Structure) -> list[Tensor]:
        return _outputs(model, batch) or []

    with torch.no_grad():
        if mixes_for_tokens(outputs, model, inputs, TOLERANCE) or mixes_in_large_batch(
            outputs, inputs, TOLERANCE
        ):
            raise OsoError(MSG_MIXES)


def _example(module: nn.Module, loader: DataLoader) -> Structure | None:
    """The first example's input, as a batch of one; None if it is unclear how to call the model.

    A tuple begins with the model's input. A dictionary has the arguments of the model's call by
    name; others, as a label, are left out. Opacus's loader always stacks along the first dimension.
    """
    collate = loader.collate_fn
    while hasattr(collate, "wrapped_collator_fn"):  # once for each make_private
        collate = collate.wrapped_collator_fn
    first = loader.dataset[0]
    if collate is not default_collate or not isinstance(first, tuple | list | Mapping) or not first:
        return None
    batch = default_collate([first])  # numpy's arrays become tensors
    if isinstance(batch, Mapping):
        named = inspect.signature(module.forward).parameters
        # With labels, Hugging Face models also return their mean loss.
        kept = named.keys() - {"labels"}
        arguments = {name: value for name, value in batch.items() if name in kept}
        return arguments if arguments and all(map(torch.is_tensor, arguments.values())) else None
    return batch[0] if torch.is_tensor(batch[0]) else None


def _random_batch(example: Tensor) -> Tensor:
    shape = (EXAMPLES, *example.shape[1:])
    if example.is_floating_point():
        return torch.randn(shape, dtype=torch.double).to(example.device)
    return torch.randint(0, 2, shape).to(example)


def _flat(model: nn.Module, names: set[str]) -> Tensor:
    return torch.cat(
        [
            (torch.zeros_like(p) if p.grad is None else p.grad).flatten()
            for name, p in model.named_parameters()
            if name in names
        ]
    )


def _compare(
    model: nn.Module,
    inputs: Structure,
    directions: list[Tensor],
    alone: Tensor,
    mode: str,
    batch_first: bool,
    names: set[str],
) -> None:
    trained = [p for name, p in model.named_parameters() if name in names]
    try:
        hooked: Any = wrap_model(model, mode, batch_first, "sum", wrap_model=False)
        hooked.expand_position_ids()
        with check_unchanged(model, argument="module"):  # by its backward pass
            _product(model, inputs, directions).backward()
        held = [per_sample_gradient(p) for p in trained]
    except OsoError:
        raise
    except Exception as error:
        line = " ".join(str(error).split())
        if "inplace" in line:
            line = "it changes a layer's output in place; use inplace=False, x = x + y for x += y"
        raise OsoError(f"module: fails in grad_sample_mode {mode!r}: {line}") from error
    sizes = [p.numel() for p in trained]
    together = PerSampleGradients(held, sizes, torch.double, alone.device)
    if together.size != EXAMPLES:
        raise OsoError(
            f"module: layers see {together.size} examples in a batch of {EXAMPLES}; row i of each "
            "layer's input must belong to example i"
        )
    weights = torch.eye(EXAMPLES, dtype=torch.double, device=alone.device)[None]
    with torch.no_grad():
        rows = together.weighted_sums(weights)[0]
        norms = together.norms()[0]
    scale = float(alone.abs().max())
    same = torch.allclose(rows, alone, rtol=TOLERANCE, atol=TOLERANCE * scale)
    lengths = alone.norm(dim=1)
    if not same or not torch.allclose(norms, lengths, rtol=TOLERANCE, atol=TOLERANCE * scale):
        raise OsoError(
            f"module: in grad_sample_mode {mode!r}, an example's gradient in a batch differs from "
            "its gradient alone; the model mixes examples, or has an unsupported layer"
        )
    hooked.cleanup()
