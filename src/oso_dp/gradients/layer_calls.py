"""Call conventions of layers: the tensors that a layer takes and returns, and their examples.

Between the model and the rules, examples are the first dimension of all tensors. A layer of an
unknown type must take and return one tensor: with several, examples could not be told from a mask
that all examples share.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from oso_dp.errors import OsoError

MSG_MIXES_EXAMPLES = (
    "mixes examples; use layers that process each example separately, such as GroupNorm"
)


class LayerCall(NamedTuple):
    """One call of a layer.

    tensors: what differs between examples, [N, ...] each. run: the outputs [N, ...] of the layer
    with these parameters and tensors; what all examples share is the same in each run. returned:
    what the model gets for the outputs.
    """

    tensors: tuple[Tensor, ...]
    run: Callable[[nn.Module, Mapping[str, Tensor], Sequence[Tensor]], tuple[Tensor, ...]]
    returned: Callable[[Sequence[Tensor]], Any]


def bind_call(layer: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> LayerCall:
    """From the call's arguments; OsoError for those whose examples are not known."""
    # Exact types: a subclass may take something else.
    if type(layer) is nn.MultiheadAttention:
        return _attention_call(layer, args, kwargs)
    if type(layer) in (nn.LSTM, nn.GRU, nn.RNN):
        return _recurrent_call(layer, args, kwargs)
    values = [*args, *kwargs.values()]
    if len(values) != 1 or not isinstance(values[0], Tensor):
        raise _unsupported(
            layer, f"is called with {len(values)} arguments; must be called with one tensor"
        )
    return LayerCall((values[0],), _run, lambda outputs: outputs[0])


def is_opaque(layer: nn.Module) -> bool:
    """Whether the parameters of layers inside count as its own.

    Attention uses its last layer's parameters without calling that layer.
    """
    return type(layer) is nn.MultiheadAttention


def _run(
    layer: nn.Module, parameters: Mapping[str, Tensor], tensors: Sequence[Tensor]
) -> tuple[Tensor]:
    output = torch.func.functional_call(layer, dict(parameters), tuple(tensors))
    if not isinstance(output, Tensor):
        raise _unsupported(layer, f"returns a {type(output).__name__}; must return one tensor")
    return (output,)


def _attention_call(layer: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> LayerCall:
    """Query, key, value, and a mask of padding for each example."""
    bound = inspect.signature(nn.MultiheadAttention.forward).bind(layer, *args, **kwargs)
    shared = {name: value for name, value in bound.arguments.items() if name != "self"}
    mask = shared.get("attn_mask")
    if mask is not None and mask.dim() != 2:
        raise _unsupported(layer, "is called with an attn_mask per example; must be [T, T]")
    if shared["query"].dim() != 3:
        raise _unsupported(layer, "is called without a batch; tensors must be [N, T, E]")
    names = ("query", "key", "value", "key_padding_mask")
    by_name = {name: shared.pop(name) for name in names if shared.get(name) is not None}

    def run(
        layer: nn.Module, parameters: Mapping[str, Tensor], tensors: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        arguments = {**dict(zip(by_name, tensors, strict=True)), **shared}
        outputs = torch.func.functional_call(layer, dict(parameters), (), arguments)
        return tuple(output for output in outputs if output is not None)

    return LayerCall(tuple(by_name.values()), run, _with_attention_weights)


def _with_attention_weights(outputs: Sequence[Tensor]) -> Any:
    return outputs[0], outputs[1] if len(outputs) > 1 else None


def _recurrent_call(layer: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> LayerCall:
    """A batch of sequences, and states [layers, N, H], or none."""
    values = dict(zip(("input", "hx"), args, strict=False)) | dict(kwargs)
    inputs, hx = values["input"], values.get("hx")
    if not isinstance(inputs, Tensor) or inputs.dim() != 3:
        raise _unsupported(layer, "is called without a batch of sequences; must be [N, T, I]")
    states = () if hx is None else (hx,) if isinstance(hx, Tensor) else tuple(hx)
    return LayerCall(
        (inputs, *(state.transpose(0, 1) for state in states)), _run_recurrent, _with_states
    )


def _run_recurrent(
    layer: nn.Module, parameters: Mapping[str, Tensor], tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    inputs, *states = tensors
    turned = [state.transpose(0, 1).contiguous() for state in states]
    hx = None if not turned else turned[0] if len(turned) == 1 else tuple(turned)
    output, last = torch.func.functional_call(layer, dict(parameters), (inputs, hx))
    lasts = (last,) if isinstance(last, Tensor) else last
    return (output, *(state.transpose(0, 1) for state in lasts))


def _with_states(outputs: Sequence[Tensor]) -> Any:
    output, *states = (outputs[0], *(state.transpose(0, 1) for state in outputs[1:]))
    return output, states[0] if len(states) == 1 else tuple(states)


def check_layer(name: str, layer: nn.Module) -> None:
    """OsoError for layers and options that would make per-sample gradients wrong."""
    kind = type(layer).__name__
    batch_norm = isinstance(layer, nn.modules.batchnorm._BatchNorm)
    if batch_norm or getattr(layer, "track_running_stats", False):
        raise OsoError(f"model: layer {name!r} is a {kind}, which {MSG_MIXES_EXAMPLES}")
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        # max_norm changes parameters in the forward pass; scale_grad_by_freq mixes examples.
        for option in ("max_norm", "scale_grad_by_freq", "sparse"):
            if getattr(layer, option):
                raise OsoError(
                    f"model: layer {name!r} is an {kind} with {option}; "
                    f"use {option}={'None' if option == 'max_norm' else 'False'}"
                )
    if isinstance(layer, nn.MultiheadAttention | nn.RNNBase):
        if not layer.batch_first:
            raise OsoError(
                f"model: layer {name!r} is a {kind} with batch_first=False; use batch_first=True"
            )
        if layer.dropout > 0:
            raise OsoError(
                f"model: layer {name!r} is a {kind} with dropout {layer.dropout}; must be 0"
            )


def _unsupported(layer: nn.Module, why: str) -> OsoError:
    return OsoError(f"model: a {type(layer).__name__} {why}")
