"""Convolutional classifiers."""

from torch import nn

from oso_dp.models.layers import Flatten, StrideOneMaxPool


def cnn(final_activation: bool = False) -> nn.Module:
    """MNIST's network (Galli et al., Table 5): 551,322 parameters; [B, 1, 28, 28] to [B, 10].

    One pool only and a padding of 3: that is what Table 1's count means.
    """
    layers = [
        nn.Conv2d(1, 16, 8, padding=3),
        nn.ReLU(),
        StrideOneMaxPool(),
        nn.Conv2d(16, 32, 4),
        nn.ReLU(),
        Flatten(),
        nn.Linear(32 * 23 * 23, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    ]
    return nn.Sequential(*layers, *([nn.ReLU()] if final_activation else []))


def small_cnn(final_activation: bool = False) -> nn.Module:
    """A quick one for the demo's images: [B, 1, 14, 14] to [B, 10]."""
    layers = [
        nn.Conv2d(1, 8, 5, stride=2, padding=2),
        nn.ReLU(),
        Flatten(),
        nn.Linear(8 * 7 * 7, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    ]
    return nn.Sequential(*layers, *([nn.ReLU()] if final_activation else []))
