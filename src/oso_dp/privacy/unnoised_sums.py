"""The sums of a batch before noise is added; private, for use by the mechanism only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from oso_dp.privacy.noise_composition import LayerGroup
from oso_dp.privacy.queries import Query, Runs, have_same_components


class PerExampleGradients(Protocol):
    """Per-sample gradients of a batch of B examples for each of R runs; P parameters."""

    def norms(self) -> Tensor:
        """2-norms of the per-sample gradients, [R, B]; inf for one that must not contribute."""

    def layer_norms(self) -> Mapping[str, Tensor]:
        """The norms of each layer's gradients, by the layer's name, each [R, B]."""

    def weighted_sums(self, weights: Tensor, layers: Sequence[str] | None = None) -> Tensor:
        """sum_i weights[r, j, i] g_ri for weights [R, J, B], as [R, J, P].

        With `layers`, of the parameters of these layers only, in this order.
        """

    def plain_sums(self, present: Tensor) -> Tensor:
        """sum_i g_ri over the examples that are present, bool [R, B], as [R, P]."""


def unnoised_sums(
    queries: Sequence[Query],
    runs: Runs,
    gradients: PerExampleGradients,
    present: Tensor,
) -> list[Tensor]:
    """The sums without noise, in the order of the queries; one pass per layer group.

    present: bool [R, B]; the other examples are padding and get no weight.
    """
    if not any(query.needs_norms for query in queries):
        return [gradients.plain_sums(present) for _ in queries]
    sums: dict[str, Tensor] = {}
    for group in dict.fromkeys(query.group for query in queries):
        norms = _norms(group, gradients).masked_fill(~present, torch.inf)
        members = [query for query in queries if query.group == group]
        scalars = [query for query in members if query.scalar]
        sums |= {query.name: query.weights(norms, runs).sum(dim=1) for query in scalars}
        if vectors := [query for query in members if not query.scalar]:
            sums |= _vector_sums(vectors, runs, norms, group, gradients)
    return [sums[query.name] for query in queries]


def _vector_sums(
    queries: Sequence[Query],
    runs: Runs,
    norms: Tensor,
    group: LayerGroup | None,
    gradients: PerExampleGradients,
) -> dict[str, Tensor]:
    """By the query's name, [R, P] or [R, P_g] of the group's layers, in one pass."""
    clipping = have_same_components(queries) if len(queries) > 1 else []
    if clipping:
        weights: Sequence[Tensor] = clipping[0].components(norms, runs)
    else:
        weights = [query.weights(norms, runs) for query in queries]
    sums = _group_sums(torch.stack([*weights], dim=1), group, gradients).unbind(dim=1)
    if clipping:
        short, units = sums
        return {query.name: query.combined(short, units, runs) for query in clipping}
    return {query.name: total for query, total in zip(queries, sums, strict=True)}


def _group_sums(
    weights: Tensor, group: LayerGroup | None, gradients: PerExampleGradients
) -> Tensor:
    """For weights [R, J, B]; of a group with scales, the layers' sums over their scales."""
    if group is None or group.scales is None:
        return gradients.weighted_sums(weights, None if group is None else group.layers)
    parts = [
        gradients.weighted_sums(weights, [layer]) / scale
        for layer, scale in zip(group.layers, group.scales, strict=True)
    ]
    return torch.cat(parts, dim=2)


def _norms(group: LayerGroup | None, gradients: PerExampleGradients) -> Tensor:
    """The norms that determine the weights, of the complete gradient or of a group, [R, B]."""
    norms = gradients.norms()
    if group is None:
        return norms
    layer_norms = gradients.layer_norms()
    scales = group.scales or (1.0,) * len(group.layers)
    by_layer = torch.stack(
        [
            layer_norms[layer].double() / scale
            for layer, scale in zip(group.layers, scales, strict=True)
        ]
    )
    return torch.linalg.vector_norm(by_layer, dim=0).to(norms.dtype)
