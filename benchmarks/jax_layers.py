"""The study's networks in JAX: each layer of the PyTorch model, with PyTorch's weight layouts."""

from collections.abc import Callable
from typing import Any

from torch import nn

from oso_dp.errors import OsoError

Apply = Callable[[list[Any], Any], Any]


def translate(model: nn.Sequential) -> Apply:
    """apply(parameters in the order of model.parameters(), inputs [B, ...]) -> outputs."""

    def apply(parameters: list[Any], values: Any) -> Any:
        rest = iter(parameters)
        for layer in model:
            own = [next(rest) for _ in layer.parameters()]
            values = _layer(layer, own, values)
        return values

    return apply


def _layer(layer: nn.Module, own: list[Any], x: Any) -> Any:
    import jax
    from jax import lax

    if isinstance(layer, nn.Linear):
        weight, bias = own
        return x @ weight.T + bias
    if isinstance(layer, nn.Conv2d):
        weight, bias = own
        padding = [(side, side) for side in layer.padding]
        return lax.conv_general_dilated(x, weight, layer.stride, padding) + bias[:, None, None]
    if isinstance(layer, nn.ConvTranspose2d) and (*layer.stride, *layer.padding) == (1, 1, 0, 0):
        weight, bias = own  # [in, out, height, width]: a convolution with the mirrored kernel
        padding = [(side - 1, side - 1) for side in layer.kernel_size]
        kernel = weight.swapaxes(0, 1)[:, :, ::-1, ::-1]
        return lax.conv_general_dilated(x, kernel, (1, 1), padding) + bias[:, None, None]
    if isinstance(layer, nn.MaxPool2d):
        window, strides = (1, 1, *[layer.kernel_size] * 2), (1, 1, *[layer.stride] * 2)
        return lax.reduce_window(x, -float("inf"), lax.max, window, strides, "VALID")
    if isinstance(layer, nn.Flatten):
        return x.reshape(len(x), -1)
    if isinstance(layer, nn.ReLU):
        return jax.nn.relu(x)
    if isinstance(layer, nn.LeakyReLU):
        return jax.nn.leaky_relu(x, layer.negative_slope)
    if isinstance(layer, nn.Sigmoid):
        return jax.nn.sigmoid(x)
    raise OsoError(
        f"jax: layer {type(layer).__name__}; has no translation in benchmarks/jax_layers.py"
    )
