"""Call conventions of layers: the tensors that a layer takes and returns, and their examples.

Between the model and the rules, examples are the first dimension of all tensors. A layer of an
unknown type must take and return one tensor: with several, examples could not be told from a mask
that all examples share.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from oso_dp.errors import OsoError


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer: its tensors by name, [N, ...] each, and what all examples share."""

    names: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> LayerCall:
        """The same call with other tensors."""
        return replace(self, tensors=tensors)


class CallConvention:
    """A layer that takes one tensor [N, ...] and returns one."""

    is_opaque = False  # whether the parameters of layers inside count as its own

    def bind(self, layer: nn.Module, given: Sequence[Any], named: Mapping[str, Any]) -> LayerCall:
        """From the call's arguments; OsoError for those whose examples are not known."""
        values = [*given, *named.values()]
        if len(values) != 1 or not isinstance(values[0], Tensor):
            raise _unsupported(
                layer, f"is called with {len(values)} arguments; must be called with one tensor"
            )
        return LayerCall(("input",), (values[0],))

    def call(self, layer: nn.Module, parameters: Mapping[str, Tensor], taken: LayerCall) -> Any:
        """The outputs with these parameters, a tuple of tensors [N, ...]."""
        output = torch.func.functional_call(layer, dict(parameters), taken.tensors)
        if not isinstance(output, Tensor):
            raise _unsupported(layer, f"returns a {type(output).__name__}; must return one tensor")
        return (output,)

    def as_returned(self, outputs: Sequence[Tensor]) -> Any:
        """What the layer itself would return."""
        return outputs[0]


class AttentionConvention(CallConvention):
    """nn.MultiheadAttention: query, key, value, and a mask of padding for each example.

    It uses its last layer's parameters without calling that layer.
    """

    is_opaque = True
    names = ("query", "key", "value", "key_padding_mask")

    def bind(self, layer: nn.Module, given: Sequence[Any], named: Mapping[str, Any]) -> LayerCall:
        bound = inspect.signature(nn.MultiheadAttention.forward).bind(layer, *given, **named)
        values = {name: value for name, value in bound.arguments.items() if name != "self"}
        mask = values.get("attn_mask")
        if mask is not None and mask.dim() != 2:
            raise _unsupported(layer, "is called with an attn_mask per example; must be [T, T]")
        if values["query"].dim() != 3:
            raise _unsupported(layer, "is called without a batch; tensors must be [N, T, E]")
        tensors = {name: values.pop(name) for name in self.names if values.get(name) is not None}
        return LayerCall(tuple(tensors), tuple(tensors.values()), values)

    def call(self, layer: nn.Module, parameters: Mapping[str, Tensor], taken: LayerCall) -> Any:
        arguments = {**dict(zip(taken.names, taken.tensors, strict=True)), **taken.options}
        outputs = torch.func.functional_call(layer, dict(parameters), (), arguments)
        return tuple(output for output in outputs if output is not None)

    def as_returned(self, outputs: Sequence[Tensor]) -> Any:
        return outputs[0], outputs[1] if len(outputs) > 1 else None


class RecurrentConvention(CallConvention):
    """nn.LSTM, nn.GRU, nn.RNN: a batch of sequences, and states [layers, N, H], or none."""

    def bind(self, layer: nn.Module, given: Sequence[Any], named: Mapping[str, Any]) -> LayerCall:
        values = dict(zip(("input", "hx"), given, strict=False)) | dict(named)
        inputs, hx = values["input"], values.get("hx")
        if not isinstance(inputs, Tensor) or inputs.dim() != 3:
            raise _unsupported(layer, "is called without a batch of sequences; must be [N, T, I]")
        states = () if hx is None else (hx,) if isinstance(hx, Tensor) else tuple(hx)
        first = tuple(state.transpose(0, 1) for state in states)
        return LayerCall(("input", "h", "c")[: 1 + len(first)], (inputs, *first))

    def call(self, layer: nn.Module, parameters: Mapping[str, Tensor], taken: LayerCall) -> Any:
        inputs, *states = taken.tensors
        turned = [state.transpose(0, 1).contiguous() for state in states]
        hx = None if not turned else turned[0] if len(turned) == 1 else tuple(turned)
        output, last = torch.func.functional_call(layer, dict(parameters), (inputs, hx))
        lasts = (last,) if isinstance(last, Tensor) else last
        return (output, *(state.transpose(0, 1) for state in lasts))

    def as_returned(self, outputs: Sequence[Tensor]) -> Any:
        output, *states = (outputs[0], *(state.transpose(0, 1) for state in outputs[1:]))
        return output, states[0] if len(states) == 1 else tuple(states)


def find_call_convention(layer: nn.Module) -> CallConvention:
    """How this layer is called."""
    # Exact types: a subclass may take something else.
    if type(layer) is nn.MultiheadAttention:
        return AttentionConvention()
    if type(layer) in (nn.LSTM, nn.GRU, nn.RNN):
        return RecurrentConvention()
    return CallConvention()


def check_options(name: str, layer: nn.Module) -> None:
    """OsoError for options of known layers that would make per-sample gradients wrong."""
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        # max_norm changes parameters in the forward pass; scale_grad_by_freq mixes examples.
        for option in ("max_norm", "scale_grad_by_freq", "sparse"):
            if getattr(layer, option):
                raise OsoError(
                    f"model: layer {name!r} is an {type(layer).__name__} with {option}; "
                    f"use {option}={'None' if option == 'max_norm' else 'False'}"
                )
    if isinstance(layer, nn.MultiheadAttention | nn.RNNBase):
        if not layer.batch_first:
            raise OsoError(
                f"model: layer {name!r} is a {type(layer).__name__} with batch_first=False; "
                "use batch_first=True"
            )
        if layer.dropout > 0:
            raise OsoError(
                f"model: layer {name!r} is a {type(layer).__name__} with dropout {layer.dropout}; "
                "must be 0"
            )


def _unsupported(layer: nn.Module, why: str) -> OsoError:
    return OsoError(f"model: a {type(layer).__name__} {why}")
