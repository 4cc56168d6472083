"""Softmax regression: the model whose per-example gradients can be told by heart."""

from torch import nn

INPUTS = 4096


def linear(final_activation: bool = False) -> nn.Module:
    """Two classes, no bias: [B, 4096] to [B, 2], 8,192 parameters; the audit's model.

    An example's gradient is the outer product of its error and its inputs, so that examples without
    a common input have orthogonal gradients. The loss is convex: the weights start at zero.
    """
    layer = nn.Linear(INPUTS, 2, bias=False)
    nn.init.zeros_(layer.weight)
    return nn.Sequential(layer, nn.ReLU()) if final_activation else layer
