"""The study's networks, by their name in configurations."""

from collections.abc import Callable

from torch import nn

from oso_dp.errors import OsoError
from oso_dp.models.autoencoder import autoencoder, autoencoder_strided
from oso_dp.models.bag_of_words import bag_of_words, bag_of_words_25
from oso_dp.models.cnn import cnn, small_cnn
from oso_dp.models.linear import linear

MODELS: dict[str, Callable[[bool], nn.Module]] = {
    "cnn": cnn,
    "autoencoder": autoencoder,
    "autoencoder_strided": autoencoder_strided,
    "bag_of_words": bag_of_words,
    "bag_of_words_25": bag_of_words_25,
    "small_cnn": small_cnn,
    "linear": linear,
}


def build_model(name: str, final_activation: bool = False) -> nn.Module:
    """A network with weights drawn from torch's global generator.

    final_activation: apply the ReLU or LeakyReLU of Tables 5 and 7 to the logits also.
    """
    if name not in MODELS:
        raise OsoError(f"model: {name!r}; must be one of {', '.join(sorted(MODELS))}")
    return MODELS[name](final_activation)


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
