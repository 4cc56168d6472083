"""What a rule gives for one layer and one batch."""

from typing import Protocol

from torch import Tensor, nn


class LayerGradients(Protocol):
    """Per-example gradients of one layer's parameters, in whatever form is small."""

    def squared_norms(self) -> Tensor:
        """Squared 2-norm over all the layer's parameters, [B]."""

    def drop(self, bad: Tensor) -> None:
        """Make the gradients of these examples (bool [B]) zero; they are not finite."""

    def weighted_sums(self, weights: Tensor) -> dict[str, Tensor]:
        """For weights [J, B]: parameter name to sum_i weights[j, i] g_i, [J, *parameter shape]."""


def rule_for(layer: nn.Module, inputs: Tensor) -> type:
    """The rule for this layer and input; the general one unless a closed form applies."""
    from oso.training.gradients.conv2d import Conv2dGradients
    from oso.training.gradients.functional import FunctionalGradients
    from oso.training.gradients.linear import LinearGradients

    # Exact types: a subclass may compute something else.
    if type(layer) is nn.Linear and inputs.dim() == 2:
        return LinearGradients
    if type(layer) is nn.Conv2d and layer.groups == 1 and layer.padding_mode == "zeros":
        return FunctionalGradients if isinstance(layer.padding, str) else Conv2dGradients
    return FunctionalGradients
