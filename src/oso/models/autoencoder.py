"""Fashion-MNIST's convolutional autoencoder."""

from torch import nn


def autoencoder(last_layer_nonlinearity: bool = False) -> nn.Module:
    """Galli et al., Table 6: 48,705 parameters; [B, 1, 28, 28] to the same, in [0, 1].

    Table 6 ends in a sigmoid in any case, so the flag has nothing to add here.
    """
    channels = [1, 8, 16, 32, 64]
    layers: list[nn.Module] = []
    for narrow, wide in zip(channels, channels[1:], strict=False):
        layers += [nn.Conv2d(narrow, wide, 3), nn.LeakyReLU()]
    for wide, narrow in zip(channels[:0:-1], channels[-2::-1], strict=True):
        layers += [nn.ConvTranspose2d(wide, narrow, 3), nn.LeakyReLU()]
    layers[-1] = nn.Sigmoid()
    return nn.Sequential(*layers)
