"""The study's networks, one function each."""

from collections.abc import Sequence
from itertools import pairwise

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


def tanh_cnn(final_activation: bool = False) -> nn.Module:
    """Papernot et al. 2021: 26,010 parameters, tanh; [B, 1, 28, 28] to [B, 10]."""
    layers = [
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    ]
    return nn.Sequential(*layers, *([nn.ReLU()] if final_activation else []))


def softmax_regression(final_activation: bool = False) -> nn.Module:
    """One linear layer, from zero: 7,850 parameters; [B, 1, 28, 28] to [B, 10]."""
    layer = nn.Linear(28 * 28, 10)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(Flatten(), layer, *([nn.ReLU()] if final_activation else []))


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


# How a layer of 3 x 3 changes an image's sides (and the layer back undoes it): as stride, padding.
_TWO_LESS, _THE_SAME, _HALVED = (1, 0), (1, 1), (2, 1)


def autoencoder(final_activation: bool = False) -> nn.Module:
    """Galli et al., Table 6: 48,705 parameters; [B, 1, 28, 28] to the same, in [0, 1].

    Table 6 ends in a sigmoid in any case, so the flag has nothing to add here.
    """
    return _autoencoder((_TWO_LESS, _TWO_LESS, _TWO_LESS, _TWO_LESS))


def autoencoder_strided(final_activation: bool = False) -> nn.Module:
    """The same weights, inputs and outputs, through images of 14 x 14 and 7 x 7.

    Not as Table 6 prints it, whose strides are all 1: see ambiguities.md, row 19.
    """
    return _autoencoder((_HALVED, _HALVED, _THE_SAME, _THE_SAME))


def _autoencoder(changes: Sequence[tuple[int, int]]) -> nn.Module:
    channels = [1, 8, 16, 32, 64]
    steps = list(zip(pairwise(channels), changes, strict=True))
    layers: list[nn.Module] = []
    for (narrow, wide), (stride, padding) in steps:
        layers += [nn.Conv2d(narrow, wide, 3, stride, padding), nn.LeakyReLU()]
    for (narrow, wide), (stride, padding) in reversed(steps):
        back = nn.ConvTranspose2d(wide, narrow, 3, stride, padding, output_padding=stride - 1)
        layers += [back, nn.LeakyReLU()]
    layers[-1] = nn.Sigmoid()
    return nn.Sequential(*layers)


def bag_of_words(final_activation: bool = False) -> nn.Module:
    """Galli et al., Table 7: 113,156 parameters; [B, 750] to [B, 4].

    750 = 15 words x 50 dimensions, which is what Table 1's count means (the text says 25 words).
    """
    return _bag_of_words(750, final_activation)


def bag_of_words_25(final_activation: bool = False) -> nn.Module:
    """The same for the text's 25 words: 177,156 parameters; [B, 1250] to [B, 4]."""
    return _bag_of_words(1250, final_activation)


def _bag_of_words(inputs: int, final_activation: bool) -> nn.Module:
    layers = [
        nn.Linear(inputs, 128),
        nn.LeakyReLU(),
        nn.Linear(128, 128),
        nn.LeakyReLU(),
        nn.Linear(128, 4),
    ]
    return nn.Sequential(*layers, *([nn.LeakyReLU()] if final_activation else []))


INPUTS = 4096


def linear(final_activation: bool = False) -> nn.Module:
    """Two classes, no bias: [B, 4096] to [B, 2], 8,192 parameters; the audit's model.

    An example's gradient is the outer product of its error and its inputs, so that examples without
    a common input have orthogonal gradients. The loss is convex: the weights start at zero.
    """
    layer = nn.Linear(INPUTS, 2, bias=False)
    nn.init.zeros_(layer.weight)
    return nn.Sequential(layer, nn.ReLU()) if final_activation else layer
