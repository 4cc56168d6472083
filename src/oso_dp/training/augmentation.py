"""Augmented views of examples, whose gradients are averaged before clipping (De et al. 2022)."""

from collections.abc import Callable

import torch
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.gradients.structured import Structure, map_tensors, select, tensors_of

Augment = Callable[[Structure], Structure]


def make_views(augment: Augment, inputs: Structure, views: int) -> Structure:
    """Inputs [R, B, ...] as [R, B, K, ...], or as they are in shape for one view.

    Each call of `augment` gets one example and nothing of the others, since a view that depends on
    several examples would not be bounded by the clip. It draws from torch's generator.
    """
    runs, size = tensors_of(inputs)[0].shape[:2]
    rows = [
        augment(select(inputs, (run, row)))
        for run in range(runs)
        for row in range(size)
        for _ in range(views)
    ]
    by_view = (views,) if views > 1 else ()
    stacked = map(torch.stack, zip(*map(tensors_of, rows), strict=True))

    def of_views(one: Tensor) -> Tensor:
        shape = runs, size, *by_view, *one.shape[2:]
        return next(stacked).view(shape) if rows else one.new_empty(shape)

    return map_tensors(of_views, inputs)


def check_augment(augment: Augment, empty: Structure) -> None:
    """OsoError if it changes the shape or type of an example; tried on made-up zeros.

    empty: inputs [0, ...].
    """
    example = map_tensors(lambda one: one.new_zeros(one.shape[1:]), empty)
    try:
        found = augment(example)
    except Exception as error:  # user code may raise anything
        line = " ".join(str(error).split())
        raise OsoError(f"augment: fails on an example of zeros: {line}") from error
    before, after = (
        [(list(one.shape), one.dtype) for one in tensors_of(values)] for values in (example, found)
    )
    if before != after:
        raise OsoError(
            f"augment: makes {after} of an example of {before}; shape and type must stay"
        )
