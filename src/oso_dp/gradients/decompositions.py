"""Attention and recurrent layers as products with their weights, so that the rule of Linear layers
applies to each, dropout included.

A decomposition gets the layer, a function `product(inputs, weight, bias)` and the arguments of the
call. `product` is a Linear layer with the named parameters: `weight` and `bias` are names of
tensors of the layer, or of some of their rows.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.errors import OsoError


class Rows(NamedTuple):
    """A layer's parameter by name, or a part of it: rows from `start` to `end`."""

    name: str
    start: int = 0
    end: int | None = None
    transposed: bool = False  # the product's weight is its transpose

    @property
    def whole(self) -> bool:
        return self.start == 0 and self.end is None and not self.transposed

    def of(self, values: Tensor) -> Tensor:
        """This part of [R, rows, ...]; [R] of a parameter that is one number."""
        if self.whole:
            return values
        part = values[:, self.start : self.end]
        return part.transpose(1, 2) if self.transposed else part


Product = Callable[[Tensor, Rows, Rows | None], Tensor]
Decomposition = Callable[..., Any]


def find_decomposition(layer: nn.Module) -> Decomposition | None:
    """How the layer is computed by products; None for layers that have a rule, or none."""
    kind = type(layer)  # exact: a subclass may compute something else
    if isinstance(layer, nn.MultiheadAttention) and kind is nn.MultiheadAttention:
        plain = layer.bias_k is None and layer.bias_v is None and not layer.add_zero_attn
        return _attention if plain else None
    if kind in (nn.LSTM, nn.GRU, nn.RNN):
        return _recurrent
    if (kind.__module__, kind.__qualname__) == ("transformers.pytorch_utils", "Conv1D"):
        return _transposed_linear  # of GPT-2; no convolution
    return None


def _transposed_linear(layer: nn.Module, product: Product, x: Tensor) -> Tensor:
    return product(x, Rows("weight", transposed=True), Rows("bias"))


def _attention(layer: nn.MultiheadAttention, product: Product, *args: Any, **kwargs: Any) -> Any:
    bound = inspect.signature(nn.MultiheadAttention.forward).bind(layer, *args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    query, key, value = given["query"], given["key"], given["value"]
    if query.dim() != 3:
        raise OsoError(
            f"model: a {type(layer).__name__} is called without a batch; tensors must be [N, T, E]"
        )
    q, k, v = (
        part.unflatten(2, (layer.num_heads, -1)).transpose(1, 2)
        for part in _projections(layer, product, query, key, value)
    )
    mask = _attention_mask(given["attn_mask"], given["key_padding_mask"], q, k)
    dropout = layer.dropout if layer.training else 0.0
    weights = None
    if given["need_weights"]:
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(2, 3)
        weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
        weights = F.dropout(weights, dropout, training=dropout > 0)
        mixed = weights @ v
        if given["average_attn_weights"]:
            weights = weights.mean(dim=1)
    else:
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    bias = None if layer.out_proj.bias is None else Rows("out_proj.bias")
    return product(mixed.transpose(1, 2).flatten(2), Rows("out_proj.weight"), bias), weights


def _projections(
    layer: nn.MultiheadAttention, product: Product, query: Tensor, key: Tensor, value: Tensor
) -> Sequence[Tensor]:
    """Queries, keys and values, [N, T, E] each."""
    size, has_bias = layer.embed_dim, layer.in_proj_bias is not None
    if layer._qkv_same_embed_dim and query is key and key is value:
        bias = Rows("in_proj_bias") if has_bias else None
        return product(query, Rows("in_proj_weight"), bias).chunk(3, dim=2)
    found = []
    for number, (name, inputs) in enumerate((("q", query), ("k", key), ("v", value))):
        start, end = number * size, (number + 1) * size
        packed = Rows("in_proj_weight", start, end)
        weight = packed if layer._qkv_same_embed_dim else Rows(f"{name}_proj_weight")
        bias = Rows("in_proj_bias", start, end) if has_bias else None
        found.append(product(inputs, weight, bias))
    return found


def _attention_mask(
    mask: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor
) -> Tensor | None:
    """What is added to the scores [N, H, T, S]: a mask [T, S] or [N H, T, S], and of padding."""
    added = None
    if mask is not None:
        added = _additive(mask, q.dtype)
        if added.dim() == 3:
            added = added.unflatten(0, (len(q), -1))
    if padding is not None:
        hidden = _additive(padding, q.dtype)[:, None, None]
        added = hidden if added is None else added + hidden
    return added


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -torch.inf)


def _recurrent(layer: nn.RNNBase, product: Product, input: Any, hx: Any = None) -> Any:
    if not isinstance(input, Tensor) or input.dim() != 3:
        is_tensor = isinstance(input, Tensor)
        what = f"shape {tuple(input.shape)}" if is_tensor else type(input).__name__
        raise OsoError(
            f"model: a {type(layer).__name__} is called with {what}; must be a batch of padded "
            "sequences, [N, T, I]"
        )
    given = () if hx is None else (hx,) if isinstance(hx, Tensor) else tuple(hx)
    values, lasts = input, []
    directions = 2 if layer.bidirectional else 1
    for number in range(layer.num_layers):
        passes = []
        for direction in range(directions):
            place = number * directions + direction
            suffix = f"l{number}" + "_reverse" * direction
            first = [state[place] for state in given]
            outputs, last = _one_direction(layer, product, suffix, values, first, direction == 1)
            passes.append(outputs)
            lasts.append(last)
        values = torch.cat(passes, dim=2) if directions == 2 else passes[0]
        if number < layer.num_layers - 1:
            values = F.dropout(values, layer.dropout, training=layer.training)
    states = tuple(torch.stack(parts) for parts in zip(*lasts, strict=True))
    return values, states if isinstance(layer, nn.LSTM) else states[0]


def _one_direction(
    layer: nn.RNNBase,
    product: Product,
    suffix: str,
    inputs: Tensor,
    first: Sequence[Tensor],
    reverse: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs [N, T, H] and the last states, [N, H] each."""
    of_input, of_state = (
        (Rows(f"weight_{kind}_{suffix}"), Rows(f"bias_{kind}_{suffix}") if layer.bias else None)
        for kind in ("ih", "hh")
    )
    seen = product(inputs, *of_input)
    projected = getattr(layer, "proj_size", 0)
    state = first[0] if first else inputs.new_zeros(len(inputs), projected or layer.hidden_size)
    memory = first[1] if len(first) > 1 else inputs.new_zeros(len(inputs), layer.hidden_size)
    outputs: list[Tensor] = []
    for step in reversed(range(inputs.shape[1])) if reverse else range(inputs.shape[1]):
        new, old = seen[:, step], product(state, *of_state)
        if isinstance(layer, nn.LSTM):
            state, memory = _lstm_cell(new + old, memory)
            if projected:
                state = product(state, Rows(f"weight_hr_{suffix}"), None)
        elif isinstance(layer, nn.GRU):
            state = _gru_cell(new, old, state)
        else:
            state = torch.tanh(new + old) if layer.mode == "RNN_TANH" else torch.relu(new + old)
        outputs.append(state)
    stacked = torch.stack(outputs[::-1] if reverse else outputs, dim=1)
    return stacked, (state, memory) if isinstance(layer, nn.LSTM) else (state,)


def _lstm_cell(gates: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    inward, forget, new, outward = gates.chunk(4, dim=1)
    memory = torch.sigmoid(forget) * memory + torch.sigmoid(inward) * torch.tanh(new)
    return torch.sigmoid(outward) * torch.tanh(memory), memory


def _gru_cell(seen: Tensor, recalled: Tensor, state: Tensor) -> Tensor:
    reset, update = torch.sigmoid(
        seen[:, : 2 * state.shape[1]] + recalled[:, : 2 * state.shape[1]]
    ).chunk(2, dim=1)
    new = torch.tanh(seen[:, 2 * state.shape[1] :] + reset * recalled[:, 2 * state.shape[1] :])
    return new + update * (state - new)
