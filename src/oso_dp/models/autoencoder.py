"""Fashion-MNIST's convolutional autoencoder."""

from itertools import pairwise

from torch import nn


def autoencoder(last_layer_nonlinearity: bool = False) -> nn.Module:
    """Galli et al., Table 6: 48,705 parameters; [B, 1, 28, 28] to the same, in [0, 1].

    Table 6 ends in a sigmoid in any case, so the flag has nothing to add here.
    """
    channels = [1, 8, 16, 32, 64]
    layers: list[nn.Module] = []
    for narrow, wide in pairwise(channels):
        layers += [nn.Conv2d(narrow, wide, 3), nn.LeakyReLU()]
    for wide, narrow in pairwise(reversed(channels)):
        layers += [nn.ConvTranspose2d(wide, narrow, 3), nn.LeakyReLU()]
    layers[-1] = nn.Sigmoid()
    return nn.Sequential(*layers)
