"""What models take and return: one tensor, or a tuple, dictionary or dataclass of tensors.

Examples are the first dimension of each tensor. A model is called with a tensor or with the
elements of a tuple as its arguments, with a dictionary as keywords.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

Structure = Any  # of tensors


def map_tensors(function: Callable[..., Tensor], values: Structure) -> Structure:
    """The same structure with each tensor replaced."""
    return (
        function(values) if isinstance(values, Tensor) else tree_map_only(Tensor, function, values)
    )


def select(values: Structure, index: Any) -> Structure:
    """Each tensor's part at this index."""
    return map_tensors(lambda one: one[index], values)


def tensors_of(values: Structure) -> list[Tensor]:
    """Its tensors, in order."""
    if isinstance(values, Tensor):
        return [values]
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def call_arguments(inputs: Structure) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments and keywords of a model's call."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, tuple | list) else ((inputs,), {})


def call_model(model: nn.Module, inputs: Structure) -> Structure:
    """The model's outputs."""
    args, kwargs = call_arguments(inputs)
    return model(*args, **kwargs)
