"""AG News's network over the concatenated word vectors of a text."""

from torch import nn


def bag_of_words(last_layer_nonlinearity: bool = False) -> nn.Module:
    """Galli et al., Table 7: 113,156 parameters; [B, 750] to [B, 4].

    750 = 15 words x 50 dimensions, which is what Table 1's count means (the text says 25 words).
    """
    layers = [
        nn.Linear(750, 128),
        nn.LeakyReLU(),
        nn.Linear(128, 128),
        nn.LeakyReLU(),
        nn.Linear(128, 4),
    ]
    return nn.Sequential(*layers, *([nn.LeakyReLU()] if last_layer_nonlinearity else []))
