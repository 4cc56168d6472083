"""Which rule a layer with parameters has."""

from torch import Tensor, nn

from oso_dp.gradients.conv1d import Conv1dGradients
from oso_dp.gradients.conv2d import ConvGradients
from oso_dp.gradients.embedding import EmbeddingGradients
from oso_dp.gradients.functional import FunctionalGradients
from oso_dp.gradients.linear import LinearGradients
from oso_dp.gradients.norm_layers import GroupNormGradients, LayerNormGradients
from oso_dp.gradients.sequence_linear import SequenceFactors, SequenceKernels, kernels_are_small

# Rules of layers that are products of inputs and parameters: a low precision rounds these.
PRODUCTS = (LinearGradients, SequenceKernels, SequenceFactors, ConvGradients, Conv1dGradients)


def find_rule(layer: nn.Module, inputs: Tensor) -> type:
    """The rule for this layer and input; the general one unless a closed form applies."""
    # Exact types: a subclass may compute something else.
    kind = type(layer)
    if isinstance(layer, nn.Linear) and kind is nn.Linear and inputs.dim() >= 2:
        if inputs.dim() == 2:
            return LinearGradients
        return SequenceKernels if kernels_are_small(layer, inputs) else SequenceFactors
    if isinstance(layer, nn.modules.conv._ConvNd) and _plain(layer):
        if kind in (nn.Conv2d, nn.ConvTranspose2d):
            return ConvGradients
        if kind in (nn.Conv1d, nn.ConvTranspose1d):
            return Conv1dGradients
    if kind is nn.Embedding:
        return EmbeddingGradients
    if isinstance(layer, nn.LayerNorm) and kind is nn.LayerNorm:
        # Fewer dimensions: what is normalised would be the batch.
        return LayerNormGradients if inputs.dim() > len(layer.normalized_shape) else _FALLBACK
    if kind is nn.GroupNorm:
        return GroupNormGradients
    return _FALLBACK


def is_product(layer: nn.Module, inputs: Tensor) -> bool:
    """Whether it takes factors of the precision."""
    return find_rule(layer, inputs) in PRODUCTS


_FALLBACK = FunctionalGradients


def _plain(layer: nn.modules.conv._ConvNd) -> bool:
    return (
        layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    )
