"""Conv1d and ConvTranspose1d: an image of one row."""

from dataclasses import dataclass

from torch import Tensor, nn

from oso_dp.gradients.conv2d import ConvGradients
from oso_dp.gradients.protocol import Sums


@dataclass(frozen=True)
class Conv1dAsConv2d:
    """What `conv2d` asks of a layer."""

    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    bias: Tensor | None


class Conv1dGradients(ConvGradients):
    """inputs [N, C, L], output gradients [N, O, L'] of either kind of layer."""

    def __init__(
        self, layer: nn.Conv1d | nn.ConvTranspose1d, inputs: Tensor, output_gradients: Tensor
    ) -> None:
        assert not isinstance(layer.padding, str)  # `rule_for` keeps these away
        image = Conv1dAsConv2d(
            (1, *layer.kernel_size),
            (1, *layer.stride),
            (0, *layer.padding),
            (1, *layer.dilation),
            layer.transposed,
            layer.bias,
        )
        super().__init__(image, inputs.unsqueeze(2), output_gradients.unsqueeze(2))

    def weighted_sums(self, weights: Tensor, onto: Sums | None = None) -> Sums:
        if onto is not None:
            onto = {**onto, "weight": onto["weight"].unsqueeze(4)}
        sums = super().weighted_sums(weights, onto)
        return {**sums, "weight": sums["weight"].squeeze(4)}
