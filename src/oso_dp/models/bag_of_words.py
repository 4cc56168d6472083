"""AG News's network over the concatenated word vectors of a text."""

from torch import nn


def bag_of_words(final_activation: bool = False) -> nn.Module:
    """Galli et al., Table 7: 113,156 parameters; [B, 750] to [B, 4].

    750 = 15 words x 50 dimensions, which is what Table 1's count means (the text says 25 words).
    """
    return _network(750, final_activation)


def bag_of_words_25(final_activation: bool = False) -> nn.Module:
    """The same for the text's 25 words: 177,156 parameters; [B, 1250] to [B, 4]."""
    return _network(1250, final_activation)


def _network(inputs: int, final_activation: bool) -> nn.Module:
    layers = [
        nn.Linear(inputs, 128),
        nn.LeakyReLU(),
        nn.Linear(128, 128),
        nn.LeakyReLU(),
        nn.Linear(128, 4),
    ]
    return nn.Sequential(*layers, *([nn.LeakyReLU()] if final_activation else []))
