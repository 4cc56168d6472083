"""Checks before training that a model and loss do not mix examples (batch independence).

Clipping bounds the contribution of an example only if row i of each layer's input depends on
example i alone, which no declaration in a model guarantees. So the per-sample gradients of batches
are compared with differentiation of one example at a time, which cannot attribute a gradient to
another example.

Examples and parameters are made up: an error that depends on real examples would reveal them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.gradients.engine import GradientEngine
from oso_dp.gradients.microbatches import MSG_MIXES_EXAMPLES
from oso_dp.gradients.pure_forward import check_unchanged

MANY, FEW = 7, (5, 0, 3)  # a batch, and some of its examples: another size, other places
MAX_REPEATED_FRACTION = 3  # a dropout of few numbers may come out the same once


class Tolerance(NamedTuple):
    """Relative differences that are put down to rounding."""

    outputs: float
    gradients: float


# Rounding may put an example alone on the other side of a ReLU's kink than in company, which moves
# its gradient by far more than rounding does. In float64 that does not happen: training asks in it.
TOLERANCES = {torch.float64: Tolerance(1e-9, 1e-8), torch.float32: Tolerance(1e-4, 1e-2)}


def check_independence(
    code: GradientEngine,
    flat: Tensor,
    inputs: Tensor,
    targets: Tensor,
    tolerance: Tolerance | None = None,
    classes: int = 2,
    draw: int = 0,
) -> None:
    """Raise OsoError if per-sample gradients in a batch differ from those of single examples.

    For two batch sizes it compares the losses, the norms (total and by layer) and two weighted
    sums; it also compares the output of an example beside much larger examples. None of this may
    change a parameter or a buffer.

    Args:
        code: the model and loss.
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
    few = torch.tensor(FEW, device=inputs.device)
    within = TOLERANCES[flat.dtype] if tolerance is None else tolerance
    # A pass may write into the parameters that are handed in, and nowhere else.
    with check_unchanged(code.model, code.views(flat)):
        check_outputs(code, flat, inputs[:3], within.outputs)
        _check_losses(code, flat, inputs, targets, within.outputs)
        alone = _gradients_alone(code, flat, inputs, targets)
        weights = torch.linspace(0.5, 2.0, 2 * MANY, dtype=flat.dtype, device=flat.device)
        _check_gradients(code, flat, inputs, targets, alone, weights.view(2, -1), within.gradients)
        weights = weights[: 2 * len(few)].view(2, -1)
        _check_gradients(
            code, flat, inputs[few], targets[few], alone[few], weights, within.gradients
        )


def check_outputs(code: GradientEngine, flat: Tensor, inputs: Tensor, tolerance: float) -> None:
    """One example among three, whose company and place change, the company by a large factor."""
    one, second, third = inputs
    before, after = third, second
    if inputs.is_floating_point():
        before, after = 1e4 * third, -1e4 * second
    batch = torch.stack((one, second, third))
    with torch.no_grad():
        outputs = code.outputs(flat, batch)
        there = code.outputs(flat, torch.stack((before, one, after)))[1]
        again = [code.outputs(flat, batch) for _ in range(MAX_REPEATED_FRACTION)]
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
    code: GradientEngine, flat: Tensor, inputs: Tensor, targets: Tensor, tolerance: float
) -> None:
    """A loss may take something of the batch that no gradient shows: its least, held constant."""
    alone = torch.cat(
        [
            code.losses(flat[None], x[None, None], y[None, None])[0]
            for x, y in zip(inputs, targets, strict=True)
        ]
    )
    if not alone.isfinite().all():
        raise OsoError("loss: NaN or infinite on made-up examples; must be finite")
    for few in (list(range(MANY)), list(FEW)):
        together = code.losses(flat[None], inputs[None, few], targets[None, few])[0]
        if not _is_close(together, alone[few], float(alone.abs().max()), tolerance):
            raise OsoError(
                f"loss: an example's loss differs between a batch of {len(few)} and a batch of 1; "
                "it must depend on that example's output and target only"
            )


def _gradients_alone(code: GradientEngine, flat: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    """The gradient of each example in a batch of its own, by ordinary differentiation, [B, P]."""
    gradients = []
    for one, target in zip(inputs, targets, strict=True):
        at = flat.clone().requires_grad_(True)
        loss = code.loss(code.outputs(at, one[None]), target[None]).sum()
        gradients.append(torch.autograd.grad(loss, at)[0])
    return torch.stack(gradients)


def _check_gradients(
    code: GradientEngine,
    flat: Tensor,
    inputs: Tensor,
    targets: Tensor,
    alone: Tensor,
    weights: Tensor,
    tolerance: float,
) -> None:
    """The batch's norms [B], whole and by layer, and sums with weights [J, B], against `alone`."""
    together = code(flat[None], inputs[None], targets[None])
    sums, expected = together.weighted_sums(weights[None])[0], weights @ alone
    pairs = {}
    parts = alone.split(list(code.layer_sizes.values()), dim=1)
    for (layer, norms), part in zip(together.layer_norms().items(), parts, strict=True):
        pairs[f" in layer {layer!r}"] = norms[0], part
    pairs[""] = together.norms()[0], alone
    for where, (norms, gradients) in pairs.items():
        right = torch.linalg.vector_norm(gradients, dim=1, dtype=torch.float64)
        if not _is_close(norms.double(), right, float(right.max()), tolerance):
            raise _mixing_error("norm", where, len(inputs))
    error = torch.linalg.vector_norm(sums - expected, dim=1, dtype=torch.float64)
    scale = float(torch.linalg.vector_norm(expected, dim=1, dtype=torch.float64).max())
    if not _is_close(error, torch.zeros_like(error), scale, tolerance):
        raise _mixing_error("part of a sum", "", len(inputs))


def _is_close(one: Tensor, right: Tensor, scale: float, tolerance: float) -> bool:
    return torch.allclose(one, right, rtol=tolerance, atol=tolerance * scale)


def _mixing_error(value: str, where: str, size: int) -> OsoError:
    return OsoError(
        f"model: the {value} of an example's gradient{where} differs between a batch of {size} and "
        "a batch of 1; row i of each layer's input must be example i's, in the order of the batch"
    )
