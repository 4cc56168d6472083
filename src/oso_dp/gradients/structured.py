"""What models take and return: one tensor, or a tuple, dictionary or dataclass of tensors.

Examples are the first dimension of each tensor. A model is called with a tensor or with the
elements of a tuple as its arguments, with a dictionary as keywords.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
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


def call_model(
    model: nn.Module, inputs: Structure, parameters: Mapping[str, Tensor] | None = None
) -> Structure:
    """The model's outputs. parameters: by their first names, in place of the model's own."""
    args, kwargs = call_arguments(inputs)
    if parameters is None:
        return model(*args, **kwargs)
    # Torch would set the parameters of a layer with two names twice, and restore neither.
    first = {parameter: name for name, parameter in model.named_parameters()}
    named = {
        name: parameters.get(name, parameters.get(first[parameter]))
        for prefix, module in model.named_modules()  # each once
        for name, parameter in module.named_parameters(
            prefix, recurse=False, remove_duplicate=False
        )
    }
    given = {name: value for name, value in named.items() if value is not None}
    return torch.func.functional_call(model, given, args, kwargs, tie_weights=False)
