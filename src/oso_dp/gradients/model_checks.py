"""The check of a model before training, in float64, or in float32 where float64 is not possible.

In float64, rounding errors are too small to hide mixing. But class weights of a loss, or zeros that
a forward pass creates, may be float32 and fail in float64. In float32, one draw of made-up examples
does not suffice: where rounding moves an example across a ReLU's kink, gradients differ by far more
than rounding, and a tolerance for that would accept mixing of 1 %. So there are several draws. A
model that mixes examples does so in all of them; below 1e-4 of a gradient it is not detected.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients.engine import GradientEngine
from oso_dp.gradients.independence_checks import TOLERANCES, Tolerance, check_independence
from oso_dp.gradients.protocol import Loss

# Ten layers of 32 units differ by up to 2e-6, one layer by 2e-7 (test_model_checks.py).
NARROW, DRAWS = Tolerance(2e-5, 1e-4), 3


def check_model(
    code: GradientEngine,
    flat: Tensor,
    inputs: Tensor,
    targets: Tensor,
    classes: Sequence[int] = (2,),
) -> None:
    """Raise OsoError if model and loss mix examples, or fail on made-up examples.

    flat [P], inputs and targets [*, ...]: as in `check_independence`, which runs for each number
    in `classes`.
    """
    try:
        _check(code, flat, inputs, targets, classes)
    except (OsoError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a model or a loss may raise any exception
        line = " ".join(str(error).split())
        raise OsoError(f"model, loss: fail on made-up examples: {line}") from error


def _check(
    code: GradientEngine, flat: Tensor, inputs: Tensor, targets: Tensor, classes: Sequence[int]
) -> None:
    # Of the model's structure, so without the rounding of a low precision. Copies: buffers change.
    exact = GradientEngine(copy.deepcopy(code.model).double(), _as_float64(code.loss))
    if _computes_in_float64(exact, flat.double(), inputs, targets):
        for number in classes:
            check_independence(exact, flat.double(), inputs, targets, classes=number)
        return
    rounded, flat = GradientEngine(copy.deepcopy(code.model), code.loss), flat.float()
    for number in classes:
        _check_rounded(rounded, flat, inputs, targets, number)


def _check_rounded(
    code: GradientEngine, flat: Tensor, inputs: Tensor, targets: Tensor, classes: int
) -> None:
    """Each draw within the wide tolerance of float32, and one of them within the narrow one."""
    refused: OsoError | None = None
    wide = TOLERANCES[torch.float32]
    for draw in range(DRAWS):
        check_independence(code, flat, inputs, targets, wide, classes, draw)
    for draw in range(DRAWS):
        try:
            check_independence(code, flat, inputs, targets, NARROW, classes, draw)
            return
        except OsoError as error:
            refused = error
    assert refused is not None
    raise refused


def _computes_in_float64(
    code: GradientEngine, flat: Tensor, inputs: Tensor, targets: Tensor
) -> bool:
    """Whether it does, from parameters to losses; else float64 would hold nothing more exact."""
    zeros = (part.new_zeros(3, *part.shape[1:]) for part in (inputs, targets))
    made = [part.to(flat.dtype) if part.is_floating_point() else part for part in zeros]
    try:
        outputs = code.outputs(flat, made[0])
        losses = code.loss(outputs, made[1])
        code(flat[None], made[0][None], made[1][None]).norms()
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
