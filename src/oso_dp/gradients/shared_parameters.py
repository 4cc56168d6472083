"""Parameters that a model uses in several places: an example's gradient is the sum over the uses.

A layer that is called several times, weights that two layers share (tied), the weights of a
recurrent layer, and parts of a parameter. What a Linear layer adds is an outer product for each row
that it sees, so the rows of all its calls are those of one sequence. So is what an Embedding adds,
with one-hot rows, where it shares its table with a Linear layer.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients.decompositions import Rows
from oso_dp.gradients.layer_gradients import LayerGradients, MaterializedGradients, Sums
from oso_dp.gradients.linear import SequenceFactors, SequenceKernels, kernels_are_small
from oso_dp.gradients.other_layers import EmbeddingGradients


class Target(NamedTuple):
    """Where a gradient belongs: a part of a parameter of a layer, both by name."""

    layer: str
    rows: Rows


class Products(NamedTuple):
    """A weight [O, I], or [O, ...], in a product: inputs [N, T, I], output gradients [N, T, O]."""

    inputs: Tensor
    errors: Tensor


class Lookups(NamedTuple):
    """A weight [V, D] as a table: words [N, T], output gradients [N, T, D]."""

    words: Tensor
    errors: Tensor
    padding: int | None  # whose row is a constant


Use = Products | Lookups | Tensor  # a tensor is the per-sample gradient itself, [N, ...]


def add_views(use: Use, views: int) -> Use:
    """Of N K rows, K of each example: those of an example are added up."""
    if views == 1:
        return use
    if isinstance(use, Tensor):
        return use.unflatten(0, (-1, views)).sum(dim=1)

    def joined(rows: Tensor) -> Tensor:
        return rows.unflatten(0, (-1, views)).flatten(1, 2)

    if isinstance(use, Products):
        return Products(joined(use.inputs), joined(use.errors))
    return Lookups(joined(use.words), joined(use.errors), use.padding)


def combine(uses: Sequence[Use], shape: torch.Size) -> LayerGradients:
    """The gradients of one parameter (or part of one) of this shape, by the name `weight`."""
    products = [use for use in uses if isinstance(use, Products)]
    lookups = [use for use in uses if isinstance(use, Lookups)]
    if len(lookups) == len(uses) and len({use.padding for use in lookups}) == 1:
        vocabulary, width = shape
        table = nn.Embedding(vocabulary, width, lookups[0].padding, device="meta")
        words = torch.cat([use.words for use in lookups], dim=1)
        return EmbeddingGradients(table, words, torch.cat([use.errors for use in lookups], dim=1))
    if len(products) + len(lookups) == len(uses):
        if len(uses) > 1 or lookups:
            products += [_as_products(use, shape[0]) for use in lookups]
        inputs = torch.cat([use.inputs for use in products], dim=1)
        errors = torch.cat([use.errors for use in products], dim=1)
        layer = nn.Linear(inputs.shape[2], errors.shape[2], bias=False, device="meta")
        small = kernels_are_small(layer, inputs)
        return (SequenceKernels if small else SequenceFactors)(layer, inputs, errors)
    total: Tensor | None = None
    for use in uses:
        one = _materialised(use, shape)
        total = one if total is None else total + one
    assert total is not None
    return MaterializedGradients({"weight": total})


def _as_products(use: Lookups, vocabulary: int) -> Products:
    """A word's row of the table is the product with a one-hot row."""
    errors = use.errors
    if use.padding is not None:
        errors = errors.masked_fill((use.words == use.padding)[..., None], 0.0)
    return Products(errors, F.one_hot(use.words, vocabulary).to(errors.dtype))


def _materialised(use: Use, shape: torch.Size) -> Tensor:
    if isinstance(use, Tensor):
        return use
    rows = _as_products(use, shape[0]) if isinstance(use, Lookups) else use
    return torch.bmm(rows.errors.transpose(1, 2), rows.inputs).view(-1, *shape)


def check_disjoint(rows: Sequence[Rows]) -> None:
    """OsoError where a number of a parameter is in two parts, whose gradients would not add up."""
    ends: dict[str, float] = {}
    for one in sorted(rows, key=lambda one: one.start):
        if one.start < ends.get(one.name, 0) or (one.name in ends and one.transposed):
            raise OsoError(f"model: parameter {one.name!r} is used whole and in parts")
        ends[one.name] = math.inf if one.end is None else one.end


class PartedGradients:
    """Of a layer whose gradients come in parts: (gradients, where each of their names belongs).

    shapes: of the layer's parameters. What no part has is zero.
    """

    def __init__(
        self,
        parts: Sequence[tuple[LayerGradients, Mapping[str, Rows]]],
        shapes: Mapping[str, torch.Size],
    ) -> None:
        self.parts, self.shapes = parts, shapes

    def norms(self) -> Tensor:
        return torch.linalg.vector_norm(torch.stack([one.norms() for one, _ in self.parts]), dim=0)

    def drop(self, bad: Tensor) -> None:
        for gradients, _ in self.parts:
            gradients.drop(bad)

    def weighted_sums(self, weights: Tensor, onto: Sums | None = None) -> Sums:
        found: dict[str, list[tuple[int, Tensor]]] = {name: [] for name in self.shapes}
        for gradients, places in self.parts:
            for key, sums in gradients.weighted_sums(weights).items():
                rows = places[key]
                values = sums.transpose(2, 3) if rows.transposed else sums
                found[rows.name].append((rows.start, values))
        totals = {}
        for name, shape in self.shapes.items():
            pieces = [piece for _, piece in sorted(found[name], key=lambda one: one[0])]
            if not pieces:
                totals[name] = weights.new_zeros(*weights.shape[:2], *shape)
            else:
                whole = pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=2)
                totals[name] = whole.reshape(*weights.shape[:2], *shape)
        if onto is None:
            return totals
        for name, sums in totals.items():
            onto[name] += sums
        return onto
