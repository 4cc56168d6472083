"""LayerNorm and GroupNorm: the gradients of what scales and shifts the normalised inputs.

Per example they are as small as the layer's parameters, so they are kept.
"""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.gradients.materialized import MaterializedGradients


class LayerNormGradients(MaterializedGradients):
    """inputs and output gradients [N, ..., *normalized_shape]."""

    def __init__(self, layer: nn.LayerNorm, inputs: Tensor, output_gradients: Tensor) -> None:
        normalised = F.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
        between = range(1, inputs.dim() - len(layer.normalized_shape))
        super().__init__(_affine(layer, normalised, output_gradients, between))


class GroupNormGradients(MaterializedGradients):
    """inputs and output gradients [N, C, ...]."""

    def __init__(self, layer: nn.GroupNorm, inputs: Tensor, output_gradients: Tensor) -> None:
        normalised = F.group_norm(inputs, layer.num_groups, eps=layer.eps)
        super().__init__(_affine(layer, normalised, output_gradients, range(2, inputs.dim())))


def _affine(
    layer: nn.LayerNorm | nn.GroupNorm, normalised: Tensor, output_gradients: Tensor, over: range
) -> dict[str, Tensor]:
    """The output is weight * normalised + bias, at every place along the dimensions `over`."""
    gradients = {"weight": normalised * output_gradients}
    if layer.bias is not None:
        gradients["bias"] = output_gradients
    if over:  # torch takes no dimensions for all of them
        gradients = {name: values.sum(dim=tuple(over)) for name, values in gradients.items()}
    return gradients
