"""Where parameters' gradients come from: the layers whose per-example gradients are taken, or not.

A loss may add a term of the parameters, as a weight penalty. It has no per-example gradient, so it
would have no effect, without a word. The values do not tell it from rounding, but the graph does: a
parameter's gradient must be what the layers' own nodes send to it, and nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves


class GradientOrigins:
    """Watches one backward pass.

    parameters: those whose gradients are compared. `foreign`: one that got something else.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.foreign: Tensor | None = None
        self._sent: dict[int, list[Tensor]] = defaultdict(list)
        self._nodes: set[Any] = set()
        self._own = {id(parameter) for parameter in parameters}
        self._handles = [
            parameter.register_hook(partial(self._compare, parameter)) for parameter in parameters
        ]

    def add_layer(self, outputs: Any) -> None:
        """Note what is sent from a layer's outputs, and from all that they were computed from."""
        nodes = [value.grad_fn for value in tree_leaves(outputs) if torch.is_tensor(value)]
        while nodes:
            node = nodes.pop()
            if node is None or node in self._nodes:
                continue
            self._nodes.add(node)
            places = []
            for place, (following, _) in enumerate(node.next_functions):
                variable = getattr(following, "variable", None)
                if variable is None:
                    nodes.append(following)
                elif id(variable) in self._own:
                    places.append((place, id(variable)))
            if places:
                node.register_hook(partial(self._note, places))

    def close(self) -> None:
        """Watch no more."""
        for handle in self._handles:
            handle.remove()
        self._nodes.clear()
        self._sent.clear()

    def _note(self, places: list[tuple[int, int]], gradients: Any, _: Any) -> None:
        for place, parameter in places:
            if gradients[place] is not None:
                self._sent[parameter].append(gradients[place])

    def _compare(self, parameter: Tensor, gradient: Tensor) -> None:
        sent = self._sent.pop(id(parameter), [])
        if len(sent) == 1 and gradient is sent[0]:
            return
        if not sent or _differ(gradient, sent):
            self.foreign = parameter


def find_parameter(values: Sequence[Any]) -> bool:
    """Whether tensors among these were computed from a parameter that requires a gradient."""
    tensors = [one.data if isinstance(one, PackedSequence) else one for one in values]
    nodes: list[Any] = [one.grad_fn for one in tensors if torch.is_tensor(one)]
    seen: set[Any] = set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(getattr(node, "variable", None), nn.Parameter):
            return True
        nodes += [following for following, _ in node.next_functions]
    return False


def _differ(gradient: Tensor, sent: list[Tensor]) -> bool:
    """By more than the order in which they are added makes; numbers that are none do not."""
    if gradient.is_sparse:
        return False
    rounding = 8 * len(sent) * torch.finfo(gradient.dtype).eps
    most = sum(float(one.abs().max()) for one in sent if one.numel())
    difference = (gradient - reduce(torch.add, sent)).abs()
    return bool((difference > rounding * most).any())
