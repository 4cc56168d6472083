"""Checks before training that an example's loss depends on its own output and target only.

A loss may mix examples for certain targets (those that it ignores, exact zeros and ones), or in
large batches alone (it keeps the hardest examples). Outputs and targets are made up.
"""

import math
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from oso_dp.errors import OsoError
from oso_dp.gradients.layer_gradients import Loss
from oso_dp.gradients.output_mixing import is_close, places
from oso_dp.gradients.structured import Structure, map_tensors, tensors_of

MAX_CLASSES: Final = 1000  # that a loss is tried on
_IGNORED: Final = (-100, -1, 255, -999)  # where people write one for an unknown target
_COUNTS: Final = 16  # below it are most counts
_FEW, _ROWS = 7, 512  # examples compared, and those of a large batch
_MOST_NUMBERS: Final = 2**22  # of its outputs


class NotFiniteError(OsoError):
    """A loss is NaN or infinite on made-up examples."""


def check_loss(
    loss: Loss,
    outputs: Structure,
    targets: Tensor,
    classes: int,
    tolerance: float,
    random: torch.Generator,
) -> None:
    """OsoError if an example's loss, or its gradient at the outputs, differs from that alone.

    Args:
        loss: of outputs and targets, one number for each example.
        outputs: of a model for made-up examples, [B, ...].
        targets: of these, [B, ...].
        classes: integer targets are below it.
        tolerance: of relative differences.
        random: draws other targets.
    """
    for made in _targets_of_classes(targets, classes, random):
        few = map_tensors(lambda one: one[: len(made)], outputs)  # noqa: B023
        _check_alone(loss, few, made, tolerance)
    many = _many(outputs, random)
    rows = torch.randint(len(targets), (len(tensors_of(many)[0]),), generator=random)
    _check_alone(loss, many, _redrawn_classes(targets[rows], classes, random), tolerance)
    if _reads_without_checks(loss, outputs, targets):
        return
    for made in _unusual_targets(targets, outputs, classes, random):
        try:
            _check_alone(loss, outputs, made, tolerance, is_usual=False)
        except OsoError:
            raise
        except Exception:  # whatever a loss may do with targets that it is not for
            continue


def _reads_without_checks(loss: Loss, outputs: Structure, targets: Tensor) -> bool:
    """Whether unusual targets could end the process: CTC's, and functions beyond torch's own."""
    at = map_tensors(lambda one: one.detach().requires_grad_(one.is_floating_point()), outputs)
    nodes: list[Any] = [loss(at, targets).grad_fn]
    seen = set[Any]()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = node.name()
        if isinstance(node, BackwardCFunction) or "CtcLoss" in name or "CppNode" in name:
            return True
        nodes += [one for one, _ in node.next_functions]
    return False


def singles(count: int) -> list[slice]:
    """The rows of a batch, one by one."""
    return [slice(row, row + 1) for row in range(count)]


def loss_error(what: str, size: int) -> OsoError:
    """`what` differs between a batch of this size and one of 1."""
    return OsoError(
        f"loss: an example's {what} differs between a batch of {size} and a batch of 1; it must "
        "depend on that example's output and target only"
    )


def _check_alone(
    loss: Loss, outputs: Structure, targets: Tensor, tolerance: float, is_usual: bool = True
) -> None:
    """The losses of a batch and their gradients, for some of its rows against those alone.

    is_usual: the losses must be finite; else those that are not are left out.
    """
    weights = torch.linspace(0.5, 2.0, len(targets), device=targets.device)

    def losses(rows: slice) -> tuple[Tensor, Tensor]:
        at = map_tensors(
            lambda one: one[rows].clone().requires_grad_(one.is_floating_point()), outputs
        )
        found = loss(at, targets[rows])
        gradients = torch.autograd.grad(
            found @ weights[rows].to(found),
            [one for one in tensors_of(at) if one.requires_grad],
            materialize_grads=True,
        )
        return found.detach(), torch.cat([one.reshape(len(one), -1) for one in gradients], dim=1)

    rows = places(min(len(targets), _FEW), len(targets))
    together = losses(slice(None))
    alone = [
        torch.cat(parts)
        for parts in zip(*(losses(slice(row, row + 1)) for row in rows), strict=True)
    ]
    for what, one, right in zip(("loss", "loss's gradient"), together, alone, strict=True):
        finite = right.isfinite()
        if is_usual and not finite.all():
            raise NotFiniteError("loss: NaN or infinite on made-up examples; must be finite")
        one, right = one[rows][finite], right[finite]
        if len(right) and not is_close(one, right, float(right.abs().max()), tolerance):
            raise loss_error(what, len(targets))


def _targets_of_classes(targets: Tensor, classes: int, random: torch.Generator) -> Iterator[Tensor]:
    """Batches of targets: of two classes, and every class; none where targets are no classes."""
    if not _are_classes(targets):
        return
    yield torch.randint(0, 2, targets.shape, generator=random).to(targets)
    size = len(targets)
    for start in range(2, min(classes, MAX_CLASSES), size):
        numbers = torch.arange(start, min(start + size, classes)).to(targets)
        yield numbers.view(-1, *[1] * (targets.dim() - 1)).expand(-1, *targets.shape[1:]).clone()


def _unusual_targets(
    targets: Tensor, outputs: Structure, classes: int, random: torch.Generator
) -> Iterator[Tensor]:
    """Targets that a loss may refuse. On a GPU, a class too many would end its use."""

    def drawn(below: int) -> Tensor:
        return torch.randint(0, below, targets.shape, generator=random).to(targets)

    def half(made: Tensor, value: float) -> Tensor:
        """Half of the numbers are this value, or what a type of fewer bits makes of it."""
        chosen = torch.rand(made.shape, generator=random) < 0.5
        return made.masked_fill(chosen.to(made.device), torch.tensor(value).to(made))

    if targets.is_floating_point():
        for unknown in (*_IGNORED, math.nan):
            yield half(drawn(2), unknown)
    elif _are_classes(targets) and not targets.is_cuda:
        for ignored in _IGNORED:
            yield half(_redrawn_classes(targets, classes, random), ignored)
        shape = tensors_of(outputs)[0].shape  # [B, K, ...] or [B, ..., K]
        for below in {_COUNTS, *shape[1:2], *shape[-1:]} - {1}:
            yield drawn(below)
            yield half(drawn(below), below - 1)  # padding is often the last word


def _redrawn_classes(targets: Tensor, classes: int, random: torch.Generator) -> Tensor:
    if not _are_classes(targets):
        return targets
    return torch.randint(0, classes, targets.shape, generator=random).to(targets)


def _many(outputs: Structure, random: torch.Generator) -> Structure:
    """A large batch of outputs between two of the given ones: probabilities stay such."""
    given = tensors_of(outputs)
    numbers = max(one[0].numel() for one in given)
    size = max(len(given[0]), min(_ROWS, _MOST_NUMBERS // max(1, numbers)))
    one, other = (torch.randint(len(given[0]), (size,), generator=random) for _ in "ab")
    shares = torch.rand(size, generator=random, dtype=torch.float64)

    def mix(part: Tensor) -> Tensor:
        if not part.is_floating_point():
            return part[one]
        share = shares.to(part).view(-1, *[1] * (part.dim() - 1))
        return share * part[one] + (1 - share) * part[other]

    return map_tensors(mix, outputs)


def _are_classes(targets: Tensor) -> bool:
    return not targets.is_floating_point() and targets.dtype != torch.bool
