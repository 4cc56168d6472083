"""Checks before training that a model and loss do not mix examples (batch independence).

Clipping bounds the contribution of an example only if row i of each layer's input depends on
example i alone, which no declaration in a model guarantees. So the per-sample gradients of batches
are compared with differentiation of one example at a time, which cannot attribute a gradient to
another example. Examples and parameters are made up: an error that depends on real examples would
reveal them.

In float64, rounding errors are too small to hide mixing. But class weights of a loss, or zeros that
a forward pass creates, may be float32 and fail in float64. In float32, one draw of made-up examples
does not suffice: where rounding moves an example across a ReLU's kink, gradients differ by far more
than rounding, and a tolerance for that would accept mixing of 1 %. So there are several draws. A
model that mixes examples does so in all of them; below 1e-4 of a gradient it is not detected.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from oso_dp.errors import OsoError, warn_once
from oso_dp.gradients.engine import GradientEngine
from oso_dp.gradients.forward_backward import Traits
from oso_dp.gradients.layer_calls import MSG_MIXES_EXAMPLES
from oso_dp.gradients.loss_checks import NotFiniteError, check_loss, loss_error, singles
from oso_dp.gradients.model_traits import find_traits
from oso_dp.gradients.output_mixing import (
    EXAMPLES,
    is_close,
    mixes_by_chance,
    mixes_for_tokens,
    mixes_in_large_batch,
    padded_inputs,
)
from oso_dp.gradients.pure_forward import check_unchanged
from oso_dp.gradients.random_numbers import SameForAllExamples
from oso_dp.gradients.structured import Structure, map_tensors, select, tensors_of

_log = logging.getLogger(__name__)

MANY = 7
BATCHES = (tuple(range(MANY)), (5, 0, 3))  # another size, other places
PASSES = 3  # a dropout of few numbers may come out the same once


class Tolerance(NamedTuple):
    """Relative differences that are put down to rounding."""

    outputs: float
    gradients: float


# Of a whole gradient. A part may be nothing else: softmax ignores the bias of attention's keys.
ROUNDING = {torch.float64: 1e-11, torch.float32: 1e-5}
TOLERANCES = {torch.float64: Tolerance(1e-9, 1e-8), torch.float32: Tolerance(1e-4, 1e-2)}
# Ten layers of 32 units differ by up to 2e-6, one layer by 2e-7.
NARROW, DRAWS = Tolerance(2e-5, 1e-4), 3


def check_model(
    engine: GradientEngine,
    flat: Tensor,
    inputs: Structure,
    targets: Tensor,
    classes: int = 2,
) -> None:
    """Raise OsoError if model and loss mix examples, or fail on made-up examples.

    In float64, or in float32 where float64 is not possible. Where the rules of the layers are wrong
    for the model (it uses their parameters elsewhere, or calls an unknown layer with several
    tensors), and the model treats examples independently, the engine takes the whole model from
    then on. A loss that fails on normal targets is tried on targets in (0, 1). The arguments are
    those of `check_independence`.
    """
    case = _Case(flat, inputs, targets, classes)
    try:
        try:
            _check_model(engine, engine.copy, case)
        except Exception as error:
            if _is_refusal(error):
                raise
            _check_in_unit_interval(engine, error, case)
    except (OsoError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a model or a loss may raise any exception
        line = " ".join(str(error).split())
        raise OsoError(f"model, loss: fail on made-up examples: {line}") from error


class _Case(NamedTuple):
    """What examples are made up from: the arguments of `check_independence`."""

    flat: Tensor
    inputs: Structure
    targets: Tensor
    classes: int


def _is_refusal(error: Exception) -> bool:
    """Whether other targets would not help: all but a failure of the model or the loss."""
    of_loss = isinstance(error, NotFiniteError)
    return isinstance(error, OsoError | torch.OutOfMemoryError) and not of_loss


def _check_in_unit_interval(engine: GradientEngine, failed: Exception, case: _Case) -> None:
    """The same with targets in (0, 1): a binary cross-entropy takes no others, a log no negatives.

    Raises `failed` for targets that are no floats, or if the loss fails again.
    """
    if not case.targets.is_floating_point():
        raise failed

    def copy_engine(**options: Any) -> GradientEngine:
        copied = engine.copy(**options)
        loss = copied.loss
        copied.loss = lambda outputs, targets: loss(outputs, _in_unit_interval(targets))
        return copied

    try:
        _check_model(engine, copy_engine, case)
    except Exception as error:
        if _is_refusal(error):
            raise
        raise failed from None


def _in_unit_interval(targets: Tensor) -> Tensor:
    return torch.where((targets == 0) | (targets == 1), targets, targets.sigmoid())


def _check_model(
    engine: GradientEngine, copy_engine: Callable[..., GradientEngine], case: _Case
) -> None:
    """Check copies of the engine, first by the rules of the layers, then as a whole model."""
    if engine.is_whole_model:
        engine.traits = _check_whole_model(engine, copy_engine, case)
        return
    try:
        engine.traits = find_traits(engine, case.flat, case.inputs)
        _check_in_float64(copy_engine, *case)
    except torch.OutOfMemoryError:
        raise
    except Exception as refused:
        try:
            traits = _check_whole_model(engine.copy(whole_model=True), copy_engine, case)
        except Exception:  # what the layers' rules are refused for says more
            raise refused from None
        engine.take_whole_model()
        engine.traits = traits
        warn_of_whole_model(refused)


def _check_whole_model(
    whole: GradientEngine, copy_engine: Callable[..., GradientEngine], case: _Case
) -> Traits:
    """The model's traits; raises what the check of it raises.

    Where it has dropout for rows that are not examples (windows of an image), all examples cannot
    be given the same random numbers. Then it is compared without dropout.
    """
    traits = find_traits(whole, case.flat, case.inputs)

    def copy_whole(**options: Any) -> GradientEngine:
        copied = copy_engine(whole_model=True, **options)
        copied.traits = traits
        return copied

    def copy_without_dropout(**options: Any) -> GradientEngine:
        copied = copy_engine(whole_model=True, **options)
        for layer in copied.model.modules():
            if next(layer.named_parameters(recurse=False), None) is None:
                layer.training = False
        copied.traits = Traits()  # what still draws fails: its outputs differ between calls
        return copied

    try:
        _check_in_float64(copy_whole, *case)
    except OsoError as error:
        if not traits.draws_random or MSG_MIXES_EXAMPLES in str(error):
            raise
        _check_in_float64(copy_without_dropout, *case)
    return traits


def warn_of_whole_model(refused: Exception) -> None:
    """Log once that the rules of layers do not apply, and why."""
    reason = " ".join(str(refused).split()).removeprefix("model: ")[:200]
    text = f"model: trained by torch.func, which takes more time and memory: {reason}"
    warn_once(_log, text)


def _check_in_float64(
    copy_engine: Callable[..., GradientEngine],
    flat: Tensor,
    inputs: Structure,
    targets: Tensor,
    classes: int,
) -> None:
    # Of the structure, so without the rounding of a low precision. Copies: buffers change.
    exact, inside = copy_engine(exact=True), _FloatTypes()
    if _computes_in_float64(exact, flat.double(), inputs, targets, inside):
        try:
            check_independence(exact, flat.double(), inputs, targets, classes=classes)
            return
        except OsoError:
            if inside.types == {torch.float64}:
                raise  # else it may be rounding: T5 and DeBERTa normalise in float32
    _check_rounded(copy_engine(), flat.float(), inputs, targets, classes)


class _FloatTypes(TorchDispatchMode):
    """Inside, collects the types of all numbers that are computed and not whole."""

    def __init__(self) -> None:
        super().__init__()
        self.types: set[torch.dtype] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        self.types |= {one.dtype for one in tensors_of(made) if one.is_floating_point()}
        return made


def _check_rounded(
    engine: GradientEngine, flat: Tensor, inputs: Structure, targets: Tensor, classes: int
) -> None:
    """Each draw within the wide tolerance of float32, and one of them within the narrow one."""
    refused: OsoError | None = None
    wide = TOLERANCES[torch.float32]
    for draw in range(DRAWS):
        check_independence(engine, flat, inputs, targets, wide, classes, draw)
    for draw in range(DRAWS):
        try:
            check_independence(engine, flat, inputs, targets, NARROW, classes, draw)
            return
        except OsoError as error:
            refused = error
    assert refused is not None
    raise refused


def _computes_in_float64(
    engine: GradientEngine,
    flat: Tensor,
    inputs: Structure,
    targets: Tensor,
    inside: AbstractContextManager[Any],
) -> bool:
    """Whether it does, from parameters to losses; else float64 would hold nothing more exact.

    `inside` is entered for the pass.
    """

    def zeros(part: Tensor) -> Tensor:
        made = part.new_zeros(1, *part.shape[1:])
        return made.to(flat.dtype) if part.is_floating_point() else made

    xs, ys = map_tensors(zeros, inputs), zeros(targets)
    try:
        with _fixed_random(engine), inside:
            outputs = engine.outputs(flat, xs)
            losses = engine.loss(outputs, ys)
            engine(flat[None], map_tensors(lambda one: one[None], xs), ys[None]).norms()
    except (OsoError, torch.OutOfMemoryError):
        return True  # its own line is to come
    except Exception:  # of float32 alone, or of a model that fails in any type
        return False
    types = {one.dtype for one in (*tensors_of(outputs), losses) if one.is_floating_point()}
    return types == {torch.float64}


def check_independence(
    engine: GradientEngine,
    flat: Tensor,
    inputs: Structure,
    targets: Tensor,
    tolerance: Tolerance | None = None,
    classes: int = 2,
    draw: int = 0,
) -> None:
    """Raise OsoError if per-sample gradients in a batch differ from those of single examples.

    For two batch sizes it compares the losses, the norms (total and by layer) and two weighted
    sums; it also compares the output of an example beside much larger examples, and the losses of
    each class and their gradients. None of this may change a parameter or a buffer.

    Args:
        engine: the model and loss.
        flat: [P]; determines the scale of each made-up parameter, and the dtype.
        inputs: tensors [*, ...]; only shapes and dtypes are used, so they may be empty. Made-up
            integers are 0 and 1.
        targets: as `inputs`; made-up integers are in [0, classes).
        tolerance: default: that of the dtype in `TOLERANCES`.
        classes: the number of classes.
        draw: the seed of the made-up examples and parameters.
    """
    random = torch.Generator().manual_seed(draw)

    def like(given: Tensor, shape: Sequence[int], below: int = 2) -> Tensor:
        if not given.is_floating_point():
            return torch.randint(0, below, tuple(shape), generator=random).to(given)
        made = torch.randn(tuple(shape), generator=random, dtype=torch.float64)
        return made.to(given.device, flat.dtype)

    # Off the starting point, where a layer of zeros would hide what stands before it.
    flat = flat.detach() + _spreads(engine, flat) * like(flat, flat.shape)
    inputs = map_tensors(lambda one: like(one, (MANY, *one.shape[1:])), inputs)
    targets = like(targets, (MANY, *targets.shape[1:]), classes)
    within = TOLERANCES[flat.dtype] if tolerance is None else tolerance
    # A pass may write into the parameters that are handed in, and nowhere else.
    with check_unchanged(engine.model, engine.parameters(flat)):
        few = select(inputs, slice(EXAMPLES))
        check_outputs(engine, flat, few, within.outputs)
        _check_rarer_mixing(engine, flat, few, within.outputs)
        alone = _ExamplesAlone(engine, flat, inputs, targets, BATCHES)
        _check_losses(engine, flat, inputs, targets, alone.losses, within.outputs)
        with torch.no_grad():
            outputs = _outputs(engine, flat, inputs)
        check_loss(engine.loss, outputs, targets, classes, within.outputs, random)
        for rows in BATCHES:
            _check_gradients(engine, flat, inputs, targets, rows, alone, within.gradients)
        _check_padded(engine, flat, few, targets[:EXAMPLES], within.gradients)


def _spreads(engine: GradientEngine, flat: Tensor) -> Tensor:
    """Each number's scale, [P]: its parameter's standard deviation, 0.05 where that is zero.

    By parameter: the scale of an embedding would make a recurrent layer chaotic, so that rounding
    passes for mixing.
    """
    parts = engine.parameters(flat.detach()).values()
    spreads = [float(part.std()) if part.numel() > 1 else 0.0 for part in parts]
    sizes = torch.tensor([part.numel() for part in parts], device=flat.device)
    return torch.tensor(
        [spread or 0.05 for spread in spreads], dtype=flat.dtype, device=flat.device
    ).repeat_interleave(sizes)


def _fixed_random(engine: GradientEngine) -> AbstractContextManager[Any]:
    """Inside, a pass draws the same random numbers for each example, if it draws any."""
    return SameForAllExamples() if engine.traits.draws_random else nullcontext()


def _outputs(engine: GradientEngine, flat: Tensor, inputs: Structure) -> Structure:
    with _fixed_random(engine):
        return engine.outputs(flat, inputs)


def check_outputs(
    engine: GradientEngine, flat: Tensor, inputs: Structure, tolerance: float
) -> None:
    """One example among three, whose place and neighbours change."""
    turned = select(inputs, [2, 0, 1])
    with torch.no_grad():
        outputs = tensors_of(_outputs(engine, flat, inputs))
        there = tensors_of(_outputs(engine, flat, turned))
        again = [tensors_of(_outputs(engine, flat, inputs)) for _ in range(PASSES)]
    exact = ([one.double() for one in parts] for parts in (outputs, there, *again))
    for part, moved, *repeated in zip(*exact, strict=True):
        if part.shape[:1] != (3,):
            raise OsoError(
                f"model: returns a tensor of shape {list(part.shape)} for 3 examples; must have "
                "one row for each"
            )
        if not part.isfinite().all():
            raise OsoError(
                "model: its output on a made-up example is NaN or infinite; must be finite"
            )
        here, most = part[0], float(part.abs().max())
        if not all(is_close(part, other, most, max(tolerance, 1e-4)) for other in repeated):
            raise OsoError(
                "model: its output for an example differs between calls; it may draw random "
                "numbers from torch's generator only (dropout)"
            )
        if not is_close(here, moved[1], 0.1 * float(here.abs().max()), tolerance):
            raise OsoError(f"model: its output for an example {MSG_MIXES_EXAMPLES}")


def _check_rarer_mixing(
    engine: GradientEngine, flat: Tensor, inputs: Structure, tolerance: float
) -> None:
    def drawn(batch: Structure) -> list[Tensor]:
        return tensors_of(engine.outputs(flat, batch))

    def fixed(batch: Structure) -> list[Tensor]:
        return tensors_of(_outputs(engine, flat, batch))

    with torch.no_grad():
        if (
            (engine.traits.draws_random and mixes_by_chance(drawn, inputs, tolerance))
            or mixes_for_tokens(fixed, engine.model, inputs, tolerance)
            or mixes_in_large_batch(fixed, inputs, tolerance)
        ):
            raise OsoError(f"model: its output for an example {MSG_MIXES_EXAMPLES}")


def _check_losses(
    engine: GradientEngine,
    flat: Tensor,
    inputs: Structure,
    targets: Tensor,
    alone: Tensor,
    tolerance: float,
) -> None:
    """A loss may take something of the batch that no gradient shows: its least, held constant."""
    if not alone.isfinite().all():
        raise NotFiniteError("loss: NaN or infinite on made-up examples; must be finite")
    with torch.no_grad():
        for few in map(list, BATCHES):
            losses = engine.loss(_outputs(engine, flat, select(inputs, few)), targets[few])
            if not is_close(losses, alone[few], float(alone.abs().max()), tolerance):
                raise loss_error("loss", len(few))


class _ExamplesAlone:
    """What each example has in a batch of its own, by ordinary differentiation.

    losses: [B]. norms: float64 [B] by layer. sums: for each of `batches`, two weighted sums of its
    gradients, [2, P].
    """

    def __init__(
        self,
        engine: GradientEngine,
        flat: Tensor,
        inputs: Structure,
        targets: Tensor,
        batches: Iterable[tuple[int, ...]],
    ) -> None:
        losses, norms = [], []
        self.sums = {rows: flat.new_zeros(2, len(flat)) for rows in batches}
        for row, one in enumerate(singles(len(targets))):
            with _fixed_random(engine):
                loss, gradient = engine.weighted_gradient(
                    flat, select(inputs, one), targets[one], flat.new_ones(1)
                )
            losses.append(loss)
            parts = gradient.split(list(engine.layer_sizes.values()))
            norms.append([torch.linalg.vector_norm(part, dtype=torch.float64) for part in parts])
            for rows, sums in self.sums.items():
                if row in rows:  # in place: with many parameters, memory takes most of the time
                    sums.addr_(_weights(rows, flat)[:, rows.index(row)], gradient)
        self.losses = torch.cat(losses)
        by_layer = map(torch.stack, zip(*norms, strict=True))
        self.norms = dict(zip(engine.layer_sizes, by_layer, strict=True))


def _check_padded(
    engine: GradientEngine, flat: Tensor, inputs: Structure, targets: Tensor, tolerance: float
) -> None:
    """The gradients of examples of different lengths; inputs that the model refuses are skipped.

    A model may sort a batch by length and restore the order of its outputs: then only the inputs of
    its layers are in another order.
    """
    rows = tuple(range(EXAMPLES))
    for made in padded_inputs(engine.model, inputs):
        try:
            alone = _ExamplesAlone(engine, flat, made, targets, [rows])
        except Exception:  # whatever a model may do with numbers that mean nothing
            continue
        if all(one.isfinite().all() for one in (alone.losses, *alone.norms.values())):
            _check_gradients(engine, flat, made, targets, rows, alone, tolerance)


def _weights(rows: Sequence[int], flat: Tensor) -> Tensor:
    """Of two sums, [2, B]."""
    weights = torch.linspace(0.5, 2.0, 2 * MANY, dtype=flat.dtype, device=flat.device)
    return weights[: 2 * len(rows)].view(2, -1)


def _check_gradients(
    engine: GradientEngine,
    flat: Tensor,
    inputs: Structure,
    targets: Tensor,
    rows: tuple[int, ...],
    alone: _ExamplesAlone,
    tolerance: float,
) -> None:
    """A batch's norms, whole and by layer, and two weighted sums, against `alone`."""
    few = list(rows)
    one_run = map_tensors(lambda one: one[few][None], inputs)
    together = engine(flat[None], one_run, targets[few][None])
    with _fixed_random(engine):
        together.norms()
    sums = together.weighted_sums(_weights(rows, flat)[None])[0]
    layers = together.layer_norms()
    assert layers.keys() == alone.norms.keys()
    whole = torch.linalg.vector_norm(torch.stack([*alone.norms.values()]), dim=0)
    pairs = {_in_layer(name): (layers[name][0], alone.norms[name]) for name in layers}
    pairs[""] = together.norms()[0], whole
    least = ROUNDING[flat.dtype] / tolerance * float(whole.max())
    for where, (norms, right) in pairs.items():
        if not is_close(norms.double(), right[few], max(float(right.max()), least), tolerance):
            raise _mixing_error("norm", where, len(rows))
    right = alone.sums[rows]
    least = ROUNDING[flat.dtype] / tolerance * float(_norms(right).max())
    _check_sums(sums.sub_(right), right, tolerance, least, len(rows))
    if engine.is_whole_model:  # which has each example alone: so the batch's own gradient, too
        for weights, expected in zip(_weights(rows, flat), right, strict=True):
            with _fixed_random(engine):
                batch = select(inputs, few), targets[few]
                _, found = engine.weighted_gradient(flat, *batch, weights)
            by_parameter = (engine.parameters(each[None]).values() for each in (found, expected))
            for one, other in zip(*by_parameter, strict=True):
                part = other.flatten(1)
                _check_sums(one.flatten(1) - part, part, tolerance, least, len(rows))


def _in_layer(name: str) -> str:
    return f" in layer {name!r}" if name else " in the model's own parameters"


def _check_sums(
    difference: Tensor, right: Tensor, tolerance: float, least: float, size: int
) -> None:
    """`least`: the scale of parameters whose gradients are smaller."""
    error = _norms(difference)
    scale = max(float(_norms(right).max()), least)
    if not is_close(error, torch.zeros_like(error), scale, tolerance):
        raise _mixing_error("part of a sum", "", size)


def _norms(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)


def _mixing_error(value: str, where: str, size: int) -> OsoError:
    return OsoError(
        f"model: the {value} of an example's gradient{where} differs between a batch of {size} and "
        "a batch of 1; row i of each layer's input must be example i's, in the order of the batch"
    )
