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

import copy
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients.engine import GradientEngine
from oso_dp.gradients.layer_calls import MSG_MIXES_EXAMPLES
from oso_dp.gradients.layer_gradients import Loss
from oso_dp.gradients.pure_forward import check_unchanged

MANY = 7
BATCHES = (tuple(range(MANY)), (5, 0, 3))  # another size, other places
MAX_CLASSES = 1000  # that a loss is tried on
MAX_REPEATED_FRACTION = 3  # a dropout of few numbers may come out the same once


class Tolerance(NamedTuple):
    """Relative differences that are put down to rounding."""

    outputs: float
    gradients: float


TOLERANCES = {torch.float64: Tolerance(1e-9, 1e-8), torch.float32: Tolerance(1e-4, 1e-2)}
# Ten layers of 32 units differ by up to 2e-6, one layer by 2e-7 (test_model_checks.py).
NARROW, DRAWS = Tolerance(2e-5, 1e-4), 3


def check_model(
    engine: GradientEngine,
    flat: Tensor,
    inputs: Tensor,
    targets: Tensor,
    classes: int = 2,
) -> None:
    """Raise OsoError if model and loss mix examples, or fail on made-up examples.

    In float64, or in float32 where float64 is not possible. The arguments are those of
    `check_independence`.
    """
    try:
        # Of the structure, so without the rounding of a low precision. Copies: buffers change.
        exact = GradientEngine(copy.deepcopy(engine.model).double(), _as_float64(engine.loss))
        if _computes_in_float64(exact, flat.double(), inputs, targets):
            check_independence(exact, flat.double(), inputs, targets, classes=classes)
            return
        rounded = GradientEngine(copy.deepcopy(engine.model), engine.loss)
        _check_rounded(rounded, flat.float(), inputs, targets, classes)
    except (OsoError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a model or a loss may raise any exception
        line = " ".join(str(error).split())
        raise OsoError(f"model, loss: fail on made-up examples: {line}") from error


def _check_rounded(
    engine: GradientEngine, flat: Tensor, inputs: Tensor, targets: Tensor, classes: int
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
    engine: GradientEngine, flat: Tensor, inputs: Tensor, targets: Tensor
) -> bool:
    """Whether it does, from parameters to losses; else float64 would hold nothing more exact."""
    zeros = (part.new_zeros(1, *part.shape[1:]) for part in (inputs, targets))
    made = [part.to(flat.dtype) if part.is_floating_point() else part for part in zeros]
    try:
        outputs = engine.outputs(flat, made[0])
        losses = engine.loss(outputs, made[1])
        engine(flat[None], made[0][None], made[1][None]).norms()
    except (OsoError, torch.OutOfMemoryError):
        return True  # its own line is to come
    except Exception:  # of float32 alone, or of a model that fails in any type
        return False
    return outputs.dtype == losses.dtype == torch.float64


def _as_float64(loss: Loss) -> Loss:
    """A loss that is a module holds its weights of classes in float32."""
    if not isinstance(loss, nn.Module):
        return loss
    try:
        exact: Loss = copy.deepcopy(loss).double()
    except Exception:  # whatever a module of the user's may hold: then as it is
        return loss
    return exact


def check_independence(
    engine: GradientEngine,
    flat: Tensor,
    inputs: Tensor,
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
        flat: [P]; determines the scale of the made-up parameters, and the dtype.
        inputs: [*, ...]; only shape and dtype are used, so it may be empty. Made-up integers are 0
            and 1.
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
    spread = float(flat.std()) if flat.numel() > 1 else 0.0
    flat = flat.detach() + (spread or 0.05) * like(flat, flat.shape)
    inputs = like(inputs, (MANY, *inputs.shape[1:]))
    targets = like(targets, (MANY, *targets.shape[1:]), classes)
    within = TOLERANCES[flat.dtype] if tolerance is None else tolerance
    # A pass may write into the parameters that are handed in, and nowhere else.
    with check_unchanged(engine.model, engine.views(flat)):
        check_outputs(engine, flat, inputs[:3], within.outputs)
        alone = _ExamplesAlone(engine, flat, inputs, targets)
        _check_losses(engine, flat, inputs, targets, alone.losses, within.outputs)
        with torch.no_grad():
            outputs = engine.outputs(flat, inputs)
        for made in _targets_of_classes(targets, classes, random):
            _check_loss_alone(engine.loss, outputs[: len(made)], made, within.outputs)
        for rows in BATCHES:
            _check_gradients(engine, flat, inputs, targets, rows, alone, within.gradients)


def check_outputs(engine: GradientEngine, flat: Tensor, inputs: Tensor, tolerance: float) -> None:
    """One example among three, whose company and place change, the company by a large factor."""
    one, second, third = inputs
    before, after = third, second
    if inputs.is_floating_point():
        before, after = 1e4 * third, -1e4 * second
    batch = torch.stack((one, second, third))
    with torch.no_grad():
        outputs = engine.outputs(flat, batch)
        there = engine.outputs(flat, torch.stack((before, one, after)))[1]
        again = [engine.outputs(flat, batch) for _ in range(MAX_REPEATED_FRACTION)]
    if not outputs.isfinite().all():
        raise OsoError("model: its output on a made-up example is NaN or infinite; must be finite")
    here, most = outputs[0], float(outputs.abs().max())
    if not all(_is_close(outputs, other, most, max(tolerance, 1e-4)) for other in again):
        raise OsoError(
            "model: its output for an example differs between calls; random layers (dropout) are "
            "not supported"
        )
    if not _is_close(here, there, 0.1 * float(here.abs().max()), tolerance):
        raise OsoError(f"model: its output for an example {MSG_MIXES_EXAMPLES}")


def _check_losses(
    engine: GradientEngine,
    flat: Tensor,
    inputs: Tensor,
    targets: Tensor,
    alone: Tensor,
    tolerance: float,
) -> None:
    """A loss may take something of the batch that no gradient shows: its least, held constant."""
    if not alone.isfinite().all():
        raise OsoError("loss: NaN or infinite on made-up examples; must be finite")
    with torch.no_grad():
        for few in map(list, BATCHES):
            losses = engine.loss(engine.outputs(flat, inputs[few]), targets[few])
            if not _is_close(losses, alone[few], float(alone.abs().max()), tolerance):
                raise _loss_error("loss", len(few))


def _targets_of_classes(targets: Tensor, classes: int, random: torch.Generator) -> Iterator[Tensor]:
    """Batches of targets: of two classes, and every class; none where targets are no classes."""
    if targets.is_floating_point() or targets.dtype == torch.bool:
        return
    yield torch.randint(0, 2, targets.shape, generator=random).to(targets)
    for start in range(2, min(classes, MAX_CLASSES), MANY):
        numbers = torch.arange(start, min(start + MANY, classes)).to(targets)
        yield numbers.view(-1, *[1] * (targets.dim() - 1)).expand(-1, *targets.shape[1:]).clone()


def _check_loss_alone(loss: Loss, outputs: Tensor, targets: Tensor, tolerance: float) -> None:
    """The losses of a batch and their gradients at the outputs, against those of one example."""
    weights = torch.linspace(0.5, 2.0, len(targets)).to(outputs)

    def losses(rows: slice) -> tuple[Tensor, Tensor]:
        at = outputs[rows].clone().requires_grad_(True)
        found = loss(at, targets[rows])
        return found.detach(), torch.autograd.grad(found @ weights[rows], at)[0]

    together = losses(slice(None))
    alone = [torch.cat(parts) for parts in zip(*map(losses, _singles(len(targets))), strict=True)]
    for what, one, right in zip(("loss", "loss's gradient"), together, alone, strict=True):
        if not right.isfinite().all():
            raise OsoError("loss: NaN or infinite on made-up examples; must be finite")
        if not _is_close(one, right, float(right.abs().max()), tolerance):
            raise _loss_error(what, len(targets))


def _singles(count: int) -> list[slice]:
    return [slice(row, row + 1) for row in range(count)]


def _loss_error(what: str, size: int) -> OsoError:
    return OsoError(
        f"loss: an example's {what} differs between a batch of {size} and a batch of 1; it must "
        "depend on that example's output and target only"
    )


class _ExamplesAlone:
    """What each example has in a batch of its own, by ordinary differentiation.

    losses: [B]. norms: float64 [B] by layer. sums: for each of `BATCHES`, two weighted sums of its
    gradients, [2, P].
    """

    def __init__(
        self, engine: GradientEngine, flat: Tensor, inputs: Tensor, targets: Tensor
    ) -> None:
        losses, norms = [], []
        self.sums = {rows: flat.new_zeros(2, len(flat)) for rows in BATCHES}
        for row, one in enumerate(_singles(len(inputs))):
            at = flat.clone().requires_grad_(True)
            loss = engine.loss(engine.outputs(at, inputs[one]), targets[one])
            (gradient,) = torch.autograd.grad(loss.sum(), at)
            losses.append(loss.detach())
            parts = gradient.split(list(engine.layer_sizes.values()))
            norms.append([torch.linalg.vector_norm(part, dtype=torch.float64) for part in parts])
            for rows, sums in self.sums.items():
                if row in rows:  # in place: with many parameters, memory takes most of the time
                    sums.addr_(_weights(rows, flat)[:, rows.index(row)], gradient)
        self.losses = torch.cat(losses)
        by_layer = map(torch.stack, zip(*norms, strict=True))
        self.norms = dict(zip(engine.layer_sizes, by_layer, strict=True))


def _weights(rows: Sequence[int], flat: Tensor) -> Tensor:
    """Of two sums, [2, B]."""
    weights = torch.linspace(0.5, 2.0, 2 * MANY, dtype=flat.dtype, device=flat.device)
    return weights[: 2 * len(rows)].view(2, -1)


def _check_gradients(
    engine: GradientEngine,
    flat: Tensor,
    inputs: Tensor,
    targets: Tensor,
    rows: tuple[int, ...],
    alone: _ExamplesAlone,
    tolerance: float,
) -> None:
    """A batch's norms, whole and by layer, and two weighted sums, against `alone`."""
    few = list(rows)
    together = engine(flat[None], inputs[few][None], targets[few][None])
    sums = together.weighted_sums(_weights(rows, flat)[None])[0]
    layers = together.layer_norms()
    assert layers.keys() == alone.norms.keys()
    whole = torch.linalg.vector_norm(torch.stack([*alone.norms.values()]), dim=0)
    pairs = {f" in layer {name!r}": (layers[name][0], alone.norms[name]) for name in layers}
    pairs[""] = together.norms()[0], whole
    for where, (norms, right) in pairs.items():
        if not _is_close(norms.double(), right[few], float(right.max()), tolerance):
            raise _mixing_error("norm", where, len(rows))
    error = _norms(sums.sub_(alone.sums[rows]))
    scale = float(_norms(alone.sums[rows]).max())
    if not _is_close(error, torch.zeros_like(error), scale, tolerance):
        raise _mixing_error("part of a sum", "", len(rows))


def _norms(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)


def _is_close(one: Tensor, right: Tensor, scale: float, tolerance: float) -> bool:
    return torch.allclose(one, right, rtol=tolerance, atol=tolerance * scale)


def _mixing_error(value: str, where: str, size: int) -> OsoError:
    return OsoError(
        f"model: the {value} of an example's gradient{where} differs between a batch of {size} and "
        "a batch of 1; row i of each layer's input must be example i's, in the order of the batch"
    )
