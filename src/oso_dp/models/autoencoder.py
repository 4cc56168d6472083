"""Fashion-MNIST's convolutional autoencoders."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

# How a layer of 3 x 3 changes an image's sides (and the layer back undoes it): as stride, padding.
_TWO_LESS, _THE_SAME, _HALVED = (1, 0), (1, 1), (2, 1)


def autoencoder(final_activation: bool = False) -> nn.Module:
    """Galli et al., Table 6: 48,705 parameters; [B, 1, 28, 28] to the same, in [0, 1].

    Table 6 ends in a sigmoid in any case, so the flag has nothing to add here.
    """
    return _network((_TWO_LESS, _TWO_LESS, _TWO_LESS, _TWO_LESS))


def autoencoder_strided(final_activation: bool = False) -> nn.Module:
    """The same weights, inputs and outputs, through images of 14 x 14 and 7 x 7.

    Not as Table 6 prints it, whose strides are all 1: see ambiguities.md, row 19.
    """
    return _network((_HALVED, _HALVED, _THE_SAME, _THE_SAME))


def _network(changes: Sequence[tuple[int, int]]) -> nn.Module:
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
