"""Call conventions of layers: what a layer takes and returns, and which layers are refused.

Between the model and the rules, examples are the first dimension of all tensors. A layer must take
and return one tensor: with several, examples could not be told from a mask that all examples share.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients.structured import call_model

MSG_MIXES_EXAMPLES = (
    "mixes examples; use layers that process each example separately, such as GroupNorm"
)
# Layers that normalise a batch by its own statistics, unless they are in eval mode.
BATCH_NORMS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


class UnsupportedCallError(OsoError):
    """A layer takes or returns something else than one tensor: the rules of layers do not apply."""


def only_tensor(layer: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
    """The one tensor [N, ...] that a layer is called with; OsoError for any other call."""
    values = [*args, *kwargs.values()]
    if len(values) != 1 or not isinstance(values[0], Tensor):
        raise _unsupported(
            layer, f"is called with {len(values)} arguments; must be called with one tensor"
        )
    return values[0]


def is_opaque(layer: nn.Module) -> bool:
    """Whether the parameters of layers inside count as its own.

    Attention uses its last layer's parameters without calling that layer.
    """
    return type(layer) is nn.MultiheadAttention


def call_layer(layer: nn.Module, parameters: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """The layer's output with these parameters."""
    output = call_model(layer, inputs, parameters)
    if not isinstance(output, Tensor):
        raise _unsupported(layer, f"returns a {type(output).__name__}; must return one tensor")
    return output


def check_layer(name: str, layer: nn.Module) -> None:
    """OsoError for layers and options that would make per-sample gradients wrong."""
    kind = type(layer).__name__
    batch_norm = isinstance(layer, nn.modules.batchnorm._BatchNorm)
    keeps_statistics = getattr(layer, "track_running_stats", False)
    # In eval mode it reads its statistics, and changes none.
    if (batch_norm or keeps_statistics) and (layer.training or not keeps_statistics):
        raise OsoError(
            f"model: layer {name!r} is a {kind}, which {MSG_MIXES_EXAMPLES} (train_private "
            "replaces it with fix=True), or freeze it in eval mode"
        )
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        # max_norm changes parameters in the forward pass; scale_grad_by_freq mixes examples.
        for option in ("max_norm", "scale_grad_by_freq", "sparse"):
            if getattr(layer, option):
                raise OsoError(
                    f"model: layer {name!r} is an {kind} with {option}; "
                    f"use {option}={'None' if option == 'max_norm' else 'False'}"
                )
    if isinstance(layer, nn.MultiheadAttention | nn.RNNBase) and not layer.batch_first:
        raise OsoError(
            f"model: layer {name!r} is a {kind} with batch_first=False; use batch_first=True"
        )


def _unsupported(layer: nn.Module, why: str) -> UnsupportedCallError:
    return UnsupportedCallError(f"model: a {type(layer).__name__} {why}")
