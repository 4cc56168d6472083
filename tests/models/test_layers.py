"""The networks compute what the paper's Tables 5 to 7 write down, layer by layer."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from oso_dp.models import build_model

SLOPE = 0.01  # of a LeakyReLU, where nobody says another


def table_5(x: Tensor, weights: list[Tensor]) -> Tensor:
    """MNIST's CNN: a pool that moves by single pixels, and ReLUs."""
    w = iter(weights)
    x = F.relu(F.conv2d(x, next(w), next(w), padding=3))
    x = F.relu(F.conv2d(F.max_pool2d(x, 2, stride=1), next(w), next(w)))
    x = F.relu(F.linear(x.flatten(1), next(w), next(w)))
    return F.linear(x, next(w), next(w))


def table_6(x: Tensor, weights: list[Tensor], strides=(1, 1, 1, 1), paddings=(0,) * 4) -> Tensor:
    """Fashion-MNIST's autoencoder: four layers and back, LeakyReLUs, a sigmoid at the end."""
    w = iter(weights)
    for stride, padding in zip(strides, paddings, strict=True):
        x = F.leaky_relu(F.conv2d(x, next(w), next(w), stride, padding), SLOPE)
    for stride, padding in reversed([*zip(strides, paddings, strict=True)]):
        x = F.conv_transpose2d(x, next(w), next(w), stride, padding, output_padding=stride - 1)
        x = F.leaky_relu(x, SLOPE) if x.shape[1] > 1 else x.sigmoid()
    return x


def table_7(x: Tensor, weights: list[Tensor]) -> Tensor:
    """AG News's network: three layers, LeakyReLUs between them."""
    w = iter(weights)
    x = F.leaky_relu(F.linear(x, next(w), next(w)), SLOPE)
    x = F.leaky_relu(F.linear(x, next(w), next(w)), SLOPE)
    return F.linear(x, next(w), next(w))


def of_the_demo(x: Tensor, weights: list[Tensor]) -> Tensor:
    """One convolution and two layers, ReLUs between them."""
    w = iter(weights)
    x = F.relu(F.conv2d(x, next(w), next(w), stride=2, padding=2))
    x = F.relu(F.linear(x.flatten(1), next(w), next(w)))
    return F.linear(x, next(w), next(w))


def halved(x: Tensor, weights: list[Tensor]) -> Tensor:
    return table_6(x, weights, (2, 2, 1, 1), (1, 1, 1, 1))


@pytest.mark.parametrize(
    ("name", "shape", "by_hand"),
    [
        ("cnn", (1, 28, 28), table_5),
        ("autoencoder", (1, 28, 28), table_6),
        ("autoencoder_strided", (1, 28, 28), halved),
        ("bag_of_words", (750,), table_7),
        ("bag_of_words_25", (1250,), table_7),
        ("small_cnn", (1, 14, 14), of_the_demo),
    ],
)
def test_a_network_is_the_papers_layer_by_layer(name, shape, by_hand) -> None:
    """With weights so large that each nonlinearity has negative values to act on."""
    torch.manual_seed(0)
    model = build_model(name)
    weights = [(3 * weight).detach() for weight in model.parameters()]
    for weight, ours in zip(weights, model.parameters(), strict=True):
        ours.data.copy_(weight)
    examples = torch.rand(3, *shape) - 0.5
    with torch.no_grad():
        torch.testing.assert_close(model(examples), by_hand(examples, weights))
