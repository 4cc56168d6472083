"""Which rule a layer with parameters has."""

from torch import Tensor, nn

from oso_dp.gradients.conv2d import ConvGradients
from oso_dp.gradients.functional import FunctionalGradients
from oso_dp.gradients.linear import LinearGradients


def rule_for(layer: nn.Module, inputs: Tensor) -> type:
    """The rule for this layer and input; the general one unless a closed form applies."""
    # Exact types: a subclass may compute something else.
    if type(layer) is nn.Linear and inputs.dim() == 2:
        return LinearGradients
    if (
        type(layer) in (nn.Conv2d, nn.ConvTranspose2d)
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
    ):
        return ConvGradients
    return FunctionalGradients


def has_rule(layer: nn.Module, inputs: Tensor) -> bool:
    """Whether a closed form applies."""
    return rule_for(layer, inputs) is not FunctionalGradients
