"""A user's loss, checked: one loss per example, of that example's output and target alone.

Copies of the model train, with parameters of their own. What a loss adds past the outputs (a
penalty on the weights of the model that it closes over, weights of its own) has no gradient there,
and would be left out silently.
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
    """The loss; OsoError for what cannot be called, or says that it averages."""
    if not callable(loss):
        raise OsoError(f"loss: must be callable, not {type(loss).__name__}")
    reduction = getattr(loss, "reduction", "none")
    if reduction != "none":
        raise OsoError(
            f"loss: its reduction is {reduction!r}; the clip needs a loss of each example: 'none'"
        )
    given: Loss = loss
    return given


def check_loss(loss: Loss, model: nn.Module, outputs: Tensor, targets: Tensor) -> None:
    """OsoError for a loss with trainable parameters, or that changes itself as it is computed.

    Its parameters may be its own, the model's (a penalty on the weights) or anybody's. outputs and
    targets: made-up ones, which the loss takes.
    """
    of_model = {id(p): name for name, p in model.named_parameters()}
    if isinstance(loss, nn.Module):
        for name, parameter in loss.named_parameters():
            if parameter.requires_grad and id(parameter) not in of_model:
                raise OsoError(
                    f"loss: its parameter {name!r} requires a gradient, and the model's alone are "
                    "trained; freeze it by requires_grad_(False), or make it part of the model"
                )
        try:
            copy.deepcopy(loss)
        except Exception:  # whatever a module of the user's may hold: then it is not tried
            pass
        else:
            check_forward_is_pure(loss, outputs.detach(), targets, argument="loss")
    # What is made anew at each call is of the call: what both calls have is trainable.
    once, again = (_leaves(loss, outputs, targets) for _ in range(2))
    for leaf in (leaf for key, leaf in once.items() if key in again):
        if id(leaf) in of_model:
            raise OsoError(
                f"loss: depends on the model's parameter {of_model[id(leaf)]!r} past the outputs, "
                "which has no effect on the copies that train; leave that term (a penalty on the "
                "weights) out"
            )
        raise OsoError(
            f"loss: depends on a tensor of shape {list(leaf.shape)} that requires a gradient, and "
            "the model's parameters alone are trained; detach it, or make it part of the model"
        )


def _leaves(loss: Loss, outputs: Tensor, targets: Tensor) -> dict[int, Tensor]:
    """By identity, the tensors beside the outputs to which gradients of the losses would flow."""
    with torch.enable_grad():
        given = outputs.detach().requires_grad_(True)
        losses = loss(given.clone(), targets)
    return {id(leaf): leaf for leaf in _graph_ends(losses) if leaf is not given}


def _graph_ends(losses: Tensor) -> Iterator[Tensor]:
    waiting, seen = [losses.grad_fn], set()
    while waiting:
        node: Any = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):  # where a gradient is accumulated
            yield node.variable
        waiting += [before for before, _ in node.next_functions]
