"""Validation of a user-defined loss: one loss per example, of its output and target only.

Copies of the model are trained. A term of the loss that bypasses the outputs (a penalty on the
weights of the captured model, trainable weights of the loss) has no gradient in the copies, and
would silently be ignored.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients import check_forward_is_pure

Loss = Callable[[Tensor, Tensor], Tensor]


def make_per_example(loss: Any) -> Loss:
    """The loss; OsoError if it is not callable, or its reduction is not 'none'."""
    if not callable(loss):
        raise OsoError(f"loss: {type(loss).__name__}; must be callable")
    reduction = getattr(loss, "reduction", "none")
    if reduction != "none":
        raise OsoError(
            f"loss: reduction {reduction!r}; must be 'none', since clipping needs one loss per "
            "example"
        )
    checked: Loss = loss
    return checked


def check_loss(loss: Loss, model: nn.Module, outputs: Tensor, targets: Tensor) -> None:
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
            check_forward_is_pure(loss, outputs.detach(), targets, argument="loss")
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


def _leaves(loss: Loss, outputs: Tensor, targets: Tensor) -> dict[int, Tensor]:
    """The graph's leaves other than the outputs, by `id`."""
    with torch.enable_grad():
        inputs = outputs.detach().requires_grad_(True)
        losses = loss(inputs.clone(), targets)
    return {id(leaf): leaf for leaf in _graph_ends(losses) if leaf is not inputs}


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
