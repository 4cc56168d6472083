"""Detects gradients that do not come from the hooked layers, such as those of a weight penalty.

A term of the loss that depends on the parameters alone has no per-sample gradient, so it would
silently have no effect. Values cannot tell it from rounding, but the autograd graph can: a
parameter's gradient must be the sum of what the hooked layers' nodes send to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves


class GradientOrigins:
    """Watches one backward pass.

    `foreign`: a parameter that received a gradient from elsewhere, None if there is none.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.foreign: Tensor | None = None
        self._sent: dict[int, list[Tensor]] = defaultdict(list)
        self._nodes: set[Any] = set()
        self._parameters = {id(parameter) for parameter in parameters}
        self._handles = [
            parameter.register_hook(partial(self._compare, parameter)) for parameter in parameters
        ]

    def add_layer(self, outputs: Any) -> None:
        """Record the gradients that flow from a layer's outputs and from their ancestors."""
        nodes = [value.grad_fn for value in tree_leaves(outputs) if torch.is_tensor(value)]
        while nodes:
            node = nodes.pop()
            if node is None or node in self._nodes:
                continue
            self._nodes.add(node)
            targets = []
            for index, (following, _) in enumerate(node.next_functions):
                variable = getattr(following, "variable", None)
                if variable is None:
                    nodes.append(following)
                elif id(variable) in self._parameters:
                    targets.append((index, id(variable)))
            if targets:
                node.register_hook(partial(self._record, targets))

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._nodes.clear()
        self._sent.clear()

    def _record(self, targets: list[tuple[int, int]], gradients: Any, _: Any) -> None:
        for index, parameter in targets:
            if gradients[index] is not None:
                self._sent[parameter].append(gradients[index])

    def _compare(self, parameter: Tensor, gradient: Tensor) -> None:
        sent = self._sent.pop(id(parameter), [])
        if len(sent) == 1 and gradient is sent[0]:
            return
        if not sent or _differ(gradient, sent):
            self.foreign = parameter


def find_leaves(values: Sequence[Any], known: Sequence[Tensor] = ()) -> list[Tensor]:
    """The tensors that require a gradient from which these values were computed.

    Not those of which only `known` tensors were computed.
    """
    leaves = (getattr(node, "variable", None) for node in _walk(values, known))
    return [leaf for leaf in leaves if torch.is_tensor(leaf)]


def find_low_precision(values: Sequence[Any]) -> torch.dtype | None:
    """A type below float32 in which gradients of these values are computed, or None."""
    for node in _walk(values):
        for gradient in node._input_metadata:
            if gradient.dtype.is_floating_point and gradient.dtype.itemsize < 4:
                dtype: torch.dtype = gradient.dtype
                return dtype
    return None


def _walk(values: Sequence[Any], known: Sequence[Tensor] = ()) -> Iterator[Any]:
    """The nodes of the backward pass of these values, up to those of `known` tensors."""
    tensors = [value.data if isinstance(value, PackedSequence) else value for value in values]
    nodes: list[Any] = [tensor.grad_fn for tensor in tensors if torch.is_tensor(tensor)]
    seen: set[Any] = {tensor.grad_fn for tensor in known}
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        nodes += [following for following, _ in node.next_functions]


def _differ(gradient: Tensor, sent: list[Tensor]) -> bool:
    """Whether they differ by more than the order of summation explains; NaN does not count."""
    if gradient.is_sparse:
        return False
    rounding = 8 * len(sent) * torch.finfo(gradient.dtype).eps
    scale = sum(float(part.abs().max()) for part in sent if part.numel())
    difference = (gradient - reduce(torch.add, sent)).abs()
    return bool((difference > rounding * scale).any())
