"""Checks before training that a forward pass has no side effects on the model (purity).

A forward pass that changes a parameter in place (`F.embedding(max_norm=)`, rows normalised in
`forward`) writes data of its batch into the released weights without clipping and noise. One that
changes a buffer or an attribute keeps data of a batch for later passes. Gradients do not show this,
so the values are compared.

Examples and parameters are made up: an error that depends on real examples would reveal them.
"""

import copy
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients.random_numbers import seeded
from oso_dp.gradients.structured import Structure, call_model, map_tensors, tensors_of

EXAMPLES, MAX_EXAMPLES = 3, 16
# Rows longer than any bound, and shorter: what shortens or lengthens them, changes some.
LARGE, SMALL = 1e3, 1e-3
_HOOKS = tuple(key for key in vars(nn.Module()) if "_hooks" in key)
_REGISTERED = ("_parameters", "_buffers", "_modules")
_VALUES = (bool, int, float, complex, str, bytes, type(None))


class _Pass(NamedTuple):
    """How the model runs: its parameters times `scale`, with or without gradients, in eval mode."""

    scale: float
    gradients: bool
    eval: bool


_PASSES = (
    _Pass(1.0, gradients=False, eval=False),
    _Pass(1.0, gradients=True, eval=False),
    _Pass(1.0, gradients=False, eval=True),
    _Pass(LARGE, gradients=False, eval=False),
    _Pass(LARGE, gradients=True, eval=False),
    _Pass(LARGE, gradients=False, eval=True),
    _Pass(SMALL, gradients=False, eval=False),
)


def check_forward_is_pure(module: nn.Module, *inputs: Any, argument: str = "model") -> None:
    """Check that forward passes change no parameter, buffer or attribute of a module.

    Copies of the module run on made-up batches: in the current and in eval mode, with and without
    gradients, with its parameters and with much larger and smaller ones. The module and torch's
    random state stay unchanged. Exceptions of a pass are ignored. Attributes are tensors, arrays,
    numbers, strings, and lists, dictionaries and sets of them, of each submodule. An attribute that
    depends on the shape of the batch only (a cached mask) may change, and so may a call counter.

    Args:
        module: trained and frozen parameters are both compared.
        *inputs: the arguments of the module: tensors [*, ...], or structures of them; a single
            dictionary has its keywords. Only shapes and dtypes are used, so they may be empty.
        argument: the name of the caller's argument, for the message.

    Raises:
        OsoError: names the parameter, buffer or attribute that changes.
    """
    given: Structure = inputs[0] if len(inputs) == 1 else inputs
    for how in _PASSES:
        if how.eval and not any(layer.training for layer in module.modules()):
            continue
        _check_pass(_prepared(module, how), given, how, argument)


@contextmanager
def check_unchanged(
    module: nn.Module, views: Mapping[str, Tensor] | None = None, argument: str = "model"
) -> Iterator[None]:
    """OsoError if what runs inside changes a parameter or a buffer of the module.

    views: further tensors by the names of the parameters in whose places they are.
    """
    before = _copy_tensors(_registered_tensors(module, views))
    try:
        yield
    finally:  # a change explains what else was found
        _compare(before, _registered_tensors(module, views), argument)


def _prepared(module: nn.Module, how: _Pass) -> nn.Module:
    made = copy.deepcopy(module)
    if how.eval:
        made.eval()
    if not how.gradients:  # else torch itself stops some changes, with a line of its own
        made.requires_grad_(False)
    with torch.no_grad():
        for values in (*made.parameters(), *made.buffers()):
            if how.scale != 1 and values.is_floating_point():
                values.mul_(how.scale)
    return made


def _check_pass(module: nn.Module, inputs: Structure, how: _Pass, argument: str) -> None:
    random = torch.Generator().manual_seed(0)
    devices = {p.device for p in module.parameters()}
    before = _copy_tensors(_registered_tensors(module))

    def run(module: nn.Module, size: int, below: int) -> bool:
        """Whether the module takes another batch of this size."""
        made = map_tensors(lambda part: _draw_made_up(part, size, below, random), inputs)
        try:
            # What the module itself draws at random tells of no example.
            with seeded(0, *devices), nullcontext() if how.gradients else torch.no_grad():
                call_model(module, made)
        except Exception:  # whatever a module may do with numbers that mean nothing
            taken = False
        else:
            taken = True
        _compare(before, _registered_tensors(module), argument)
        return taken

    if how.scale != 1:  # attributes do not depend on it
        for size, below in _batches(module, inputs):
            if run(module, size, below) and below > 2:
                return
        return
    twin, untouched = copy.deepcopy(module), _plain_attributes(module)
    run(module, EXAMPLES, 2)
    first = once = _plain_attributes(module)
    _compare_plain(untouched, once, argument, began=True)
    run(twin, EXAMPLES, 2)
    _compare_plain(once, _plain_attributes(twin), argument)  # its first batch had other examples
    calls = 0
    for size, below in _batches(module, inputs):
        if not run(module, size, below):
            first, calls = _plain_attributes(module), 0  # it may have counted before it failed
            continue
        once = _plain_attributes(module)  # what is made for this shape is there now
        calls += 1 + run(module, size, below)
        _compare_plain(once, _plain_attributes(module), argument)
        if below > 2:
            break
    if run(module, EXAMPLES, 1):  # of zeros
        _check_counts(first, _plain_attributes(module), calls + 1, argument)


def _batches(module: nn.Module, inputs: Structure) -> Iterator[tuple[int, int]]:
    """Sizes of batches, and below what their numbers are: all rows of the largest table come."""
    yield EXAMPLES, 2
    tensors = tensors_of(inputs)
    if any(part.is_cuda for part in tensors):  # a row too high would end the process's device
        return
    numbers = max((part.shape[1:].numel() for part in tensors), default=1) or 1
    tables = {values.shape[0] for _, values in module.named_parameters() if values.dim() > 1}
    tables |= {values.shape[0] for _, values in module.named_buffers() if values.dim() > 1}
    for rows in sorted((rows for rows in tables if rows > 2), reverse=True):
        yield min(max(2, -(-rows // numbers)), MAX_EXAMPLES), rows


def _draw_made_up(part: Tensor, size: int, below: int, random: torch.Generator) -> Tensor:
    """[size, ...]: whole numbers below a number; for decimals of `below` 2, normal ones."""
    shape = (size, *part.shape[1:])
    if part.is_floating_point() and below == 2:
        return torch.randn(shape, generator=random).to(part)
    return torch.randint(0, below, shape, generator=random).to(part)


_RegisteredTensors = list[tuple[str, Tensor, int]]


def _registered_tensors(
    module: nn.Module, views: Mapping[str, Tensor] | None = None
) -> _RegisteredTensors:
    """Parameters and buffers: what they are called, values, and how often they were written.

    In-place writing counts for parameters, also where it happens to leave the values as they were.
    """
    parameters = [*(views or {}).items(), *module.named_parameters()]
    return [
        *((f"parameter {name!r}", p, _write_counters(p)) for name, p in parameters),
        *((f"buffer {name!r}", b, 0) for name, b in module.named_buffers()),
    ]


def _copy_tensors(registered: _RegisteredTensors) -> _RegisteredTensors:
    return [(name, values.detach().clone(), writes) for name, values, writes in registered]


def _write_counters(values: Tensor) -> int:
    return 0 if values.is_inference() else values._version


def _compare(before: _RegisteredTensors, after: _RegisteredTensors, argument: str) -> None:
    names = [name for name, *_ in before]
    if names != [name for name, *_ in after]:  # a parameter that was made anew under another name
        raise OsoError(f"{argument}: its forward pass adds or removes parameters or buffers")
    for (what, *then), (_, *now) in zip(before, after, strict=True):
        if not _same(then, now):
            raise OsoError(
                f"{argument}: its forward pass changes {what}, without clipping and noise; "
                "change a copy instead"
            )


def _plain_attributes(module: nn.Module) -> dict[str, Any]:
    """Attributes that are neither parameter, buffer nor submodule, by what they are called."""
    return {
        f"attribute {key!r}" + (f" of layer {name!r}" if name else ""): _form(
            # Torch numbers all hooks of a process.
            [_opened(hook) for hook in value.values()] if key in _HOOKS else value,
            set(),
        )
        for name, layer in module.named_modules()
        for key, value in vars(layer).items()
        if key not in _REGISTERED
    }


def _opened(hook: Any) -> Any:
    """A hook; of one that is an object, or a method of one, the object's attributes."""
    holder = getattr(hook, "__self__", hook)
    if isinstance(holder, FunctionType | partial | nn.Module) or not hasattr(holder, "__dict__"):
        return hook
    return vars(holder)


def _form(value: Any, seen: set[int]) -> Any:
    """A copy that can be compared; of what is no number, text or collection of them, its type."""
    if isinstance(value, _VALUES):
        return value
    if id(value) in seen:  # it holds itself
        return type(value)
    seen = {*seen, id(value)}
    if torch.is_tensor(value):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.tobytes(), value.shape
    if isinstance(value, nn.Module):  # in a list, where torch does not see it
        tensors = value.state_dict(keep_vars=True)
        return {name: _form(one, seen) for name, one in tensors.items()}
    if isinstance(value, Mapping):
        return {_key(key): _form(one, seen) for key, one in value.items()}
    if isinstance(value, list | tuple | deque):
        return [_form(one, seen) for one in value]
    if isinstance(value, set | frozenset):
        return {_key(one) for one in value}
    if isinstance(value, FunctionType | partial):  # a hook: what it holds
        return {
            name: _form(one, seen)
            for name, one in _held_by(value).items()
            if not isinstance(one, nn.Module)
        }
    return type(value)


def _held_by(function: FunctionType | partial[Any]) -> dict[str, Any]:
    """Its arguments or defaults, and what it takes from the function that made it."""
    if isinstance(function, partial):
        return {"": function.func, "*": function.args, **function.keywords}
    held: dict[str, Any] = {"*": function.__defaults__, "**": function.__kwdefaults__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # nothing yet
            held[name] = cell.cell_contents
    return held


def _key(key: Any) -> Any:
    return key if isinstance(key, _VALUES) else repr(key)


def _compare_plain(
    before: dict[str, Any], after: dict[str, Any], argument: str, began: bool = False
) -> None:
    """`began`: before the first pass; what that makes anew may be a table of the model's own."""
    for what in [*before, *(name for name in after if name not in before)]:
        then, now = before.get(what), after.get(what)
        if began and not _same(then, now, values=False):
            continue
        if not _same(then, now) and not _counts_calls(then, now):
            raise OsoError(_changed_error(argument, what))


def _counts_calls(then: Any, now: Any) -> bool:
    """Whether a whole number grew by 1 in a pass: of batches, which says nothing of their examples.

    A number of rows grows by more, since made-up batches have two or more.
    """
    return type(then) is type(now) is int and now == then + 1


def _check_counts(before: dict[str, Any], after: dict[str, Any], calls: int, argument: str) -> None:
    """A number that grew by 1 in some passes and not in others counts batches of some kind."""
    for what, then in before.items():
        now = after.get(what)
        if type(then) is type(now) is int and now - then not in (0, calls):
            raise OsoError(_changed_error(argument, what))


def _changed_error(argument: str, what: str) -> str:
    return (
        f"{argument}: its forward pass changes {what}, which would keep data of examples without "
        "noise; do not store data of a batch in the model"
    )


def _same(one: Any, other: Any, values: bool = True) -> bool:
    """Values alike, NaN included; without `values`, tensors of one shape, or as many of them."""
    if torch.is_tensor(one) and torch.is_tensor(other):
        if not values or one.shape != other.shape:
            return one.shape == other.shape
        if one.dtype != other.dtype or one.device != other.device:
            return False
        if torch.equal(one, other):  # quick, but false where NaN is
            return True
        return bool(((one == other) | ((one != one) & (other != other))).all())
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k], values) for k in one)
    if isinstance(one, list | tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_same(*pair, values) for pair in pairs)
    return values and (bool(one == other) or (one != one and other != other))
