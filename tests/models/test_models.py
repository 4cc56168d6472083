"""The networks have the sizes of the paper's Table 1, and one loss per example."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.models import MODELS, build_model, parameter_count
from oso_dp.models.losses import METRICS, correct, cross_entropy, squared_error, training_loss


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("cnn", 551_322),
        ("autoencoder", 48_705),
        ("autoencoder_strided", 48_705),
        ("bag_of_words", 113_156),
    ],
)
def test_parameter_count_matches_table_1(name: str, count: int) -> None:
    assert parameter_count(build_model(name)) == count


def test_parameter_count_25_words_exceeds_table() -> None:
    assert parameter_count(build_model("bag_of_words_25")) == 177_156


def test_build_model_final_activation_added() -> None:
    assert isinstance(build_model("cnn", True)[-1], nn.ReLU)
    assert isinstance(build_model("bag_of_words", True)[-1], nn.LeakyReLU)
    assert isinstance(build_model("cnn")[-1], nn.Linear)
    for name in MODELS:
        assert parameter_count(build_model(name, True)) == parameter_count(build_model(name))


def test_build_model_linear_starts_at_zero() -> None:
    """The model has no bias, since all gradients would share its direction."""
    model = build_model("linear")
    assert [name for name, _ in model.named_parameters()] == ["weight"]
    assert parameter_count(model) == 8192
    outputs = model(torch.rand(3, 4096))
    assert outputs.shape == (3, 2)
    assert not outputs.any()


def test_build_model_unknown_name_rejected() -> None:
    with pytest.raises(OsoError, match="must be one of autoencoder"):
        build_model("resnet")


def test_losses_computed_per_example() -> None:
    """A loss averaged over the batch would shrink each gradient before its clip."""
    outputs, targets = torch.randn(4, 10), torch.tensor([1, 2, 3, 4])
    alone = torch.stack(
        [cross_entropy(outputs[i : i + 1], targets[i : i + 1])[0] for i in range(4)]
    )
    torch.testing.assert_close(cross_entropy(outputs, targets), alone)
    images = torch.rand(3, 1, 4, 4)
    per_pixel = squared_error(images + 0.1, images)
    torch.testing.assert_close(per_pixel, torch.full((3,), 0.01))


def test_training_loss_sum_only_for_mse() -> None:
    outputs, images = torch.rand(2, 3, 1, 4, 4)
    mean, total = training_loss("mse"), training_loss("mse", "sum")
    torch.testing.assert_close(total(outputs, images), 16 * mean(outputs, images))
    assert mean is METRICS["mse"]
    assert training_loss("accuracy", "sum") is training_loss("accuracy") is cross_entropy


def test_correct_counts_largest_output() -> None:
    outputs = torch.tensor([[0.1, 0.9], [0.9, 0.1]])
    assert correct(outputs, torch.tensor([1, 1])).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("apart", [1.0, 60.0, 1e6])
def test_cross_entropy_grows_unbounded(apart: float) -> None:
    """A clamped loss would give the examples with the largest losses no gradient."""
    outputs = torch.tensor([[apart, 0.0]], requires_grad=True)
    loss = cross_entropy(outputs, torch.tensor([1]))
    assert loss.item() == pytest.approx(math.log1p(math.exp(-apart)) + apart)
    loss.sum().backward()
    share = 1 / (1 + math.exp(-apart))
    assert outputs.grad[0].tolist() == pytest.approx([share, -share])


@pytest.mark.parametrize("apart", [1.0, 30.0, 1e3])
def test_squared_error_grows_unbounded(apart: float) -> None:
    outputs = torch.zeros(1, 4, requires_grad=True)
    loss = squared_error(outputs, torch.full((1, 4), apart))
    loss.sum().backward()
    assert loss.item() == pytest.approx(apart**2)
    assert outputs.grad[0].tolist() == pytest.approx([-2 * apart / 4] * 4)


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
def test_build_model_matches_manual_layers(name, shape, by_hand) -> None:
    """The weights are large enough that each nonlinearity gets negative inputs."""
    torch.manual_seed(0)
    model = build_model(name)
    weights = [(3 * weight).detach() for weight in model.parameters()]
    for weight, ours in zip(weights, model.parameters(), strict=True):
        ours.data.copy_(weight)
    examples = torch.rand(3, *shape) - 0.5
    with torch.no_grad():
        torch.testing.assert_close(model(examples), by_hand(examples, weights))
