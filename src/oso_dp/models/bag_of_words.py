"""AG News's network over the concatenated word vectors of a text."""

from torch import nn


def bag_of_words(last_layer_nonlinearity: bool = False) -> nn.Module:
    """Galli et al., Table 7: 113,156 parameters; [B, 750] to [B, 4].

    750 = 15 words x 50 dimensions, which is what Table 1's count means (the text says 25 words).
    """
    return _network(750, last_layer_nonlinearity)


def bag_of_words_25(last_layer_nonlinearity: bool = False) -> nn.Module:
    """The same for the text's 25 words: 177,156 parameters; [B, 1250] to [B, 4]."""
    return _network(1250, last_layer_nonlinearity)


def _network(inputs: int, last_layer_nonlinearity: bool) -> nn.Module:
    layers = [
        nn.Linear(inputs, 128),
        nn.LeakyReLU(),
        nn.Linear(128, 128),
        nn.LeakyReLU(),
        nn.Linear(128, 4),
    ]
    return nn.Sequential(*layers, *([nn.LeakyReLU()] if last_layer_nonlinearity else []))
