"""One forward and one backward pass of a model for R runs, and the rule of each layer.

While the model runs, its layers with parameters are called through a `BatchedLayer`, with each
run's parameters. As soon as the backward pass has the gradient of a layer's output, the layer's
rule takes it, so that neither that nor the layer's input is kept longer than in ordinary training.
A layer that is used once, with parameters that no other layer has, has its rule; everything else
comes in parts (`shared_parameters`).
"""

import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients.conv import ConvFactors, ConvGradients, conv_factors, factors_pay
from oso_dp.gradients.decompositions import Rows, find_decomposition
from oso_dp.gradients.layer_calls import MSG_MIXES_EXAMPLES, call_layer, only_tensor
from oso_dp.gradients.layer_gradients import LayerGradients, Loss, MaterializedGradients
from oso_dp.gradients.linear import (
    LinearGradients,
    SequenceFactors,
    SequenceKernels,
    kernels_are_small,
)
from oso_dp.gradients.other_layers import (
    EmbeddingGradients,
    FunctionalGradients,
    GroupNormGradients,
    LayerNormGradients,
)
from oso_dp.gradients.precision import Precision
from oso_dp.gradients.shared_parameters import (
    Lookups,
    PartedGradients,
    Products,
    Target,
    Use,
    add_views,
    check_disjoint,
    combine,
)
from oso_dp.gradients.structured import Structure, call_model, map_tensors, tensors_of
from oso_dp.gradients.transformed_weights import transformed_gradients

CONVOLUTIONS = (nn.Conv1d, nn.ConvTranspose1d, nn.Conv2d, nn.ConvTranspose2d)


def find_rule(layer: nn.Module, inputs: Tensor) -> type:
    """The rule for this layer and input; the general one unless a closed form applies."""
    # Exact types: a subclass may compute something else.
    kind = type(layer)
    if isinstance(layer, nn.Linear) and kind is nn.Linear and inputs.dim() >= 2:
        if inputs.dim() == 2:
            return LinearGradients
        return SequenceKernels if kernels_are_small(layer, inputs) else SequenceFactors
    if isinstance(layer, CONVOLUTIONS) and kind in CONVOLUTIONS:
        padded = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        if layer.groups > 1 or not padded:
            return FunctionalGradients
        return ConvFactors if factors_pay(layer, inputs) else ConvGradients
    if kind is nn.Embedding:
        return EmbeddingGradients
    if isinstance(layer, nn.LayerNorm) and kind is nn.LayerNorm:
        # Fewer dimensions: what is normalised would be the batch.
        enough = inputs.dim() > len(layer.normalized_shape)
        return LayerNormGradients if enough else FunctionalGradients
    return GroupNormGradients if kind is nn.GroupNorm else FunctionalGradients


def is_product(layer: nn.Module, inputs: Tensor) -> bool:
    """Whether it is a product of inputs and parameters, whose factors a low precision rounds."""
    products = (LinearGradients, SequenceKernels, SequenceFactors, ConvGradients, ConvFactors)
    return find_rule(layer, inputs) in products


Record = Callable[["BatchedLayer", Tensor], Tensor]


class BatchedLayer:
    """One layer with the parameters of R runs, each [R, ...], ready for as many passes as wanted.

    `targets`: where the gradients of its parameters belong, by their names. `holds_layers`: layers
    with parameters are inside this one. Products take factors of the precision; any other layer
    computes in the dtype of the parameters.

    On a CPU, or with factors of two bytes, convolutions keep their channels last: what stands
    together then is read together, by the products that form per-sample kernels, too.
    """

    def __init__(
        self,
        module: nn.Module,
        parameters: Mapping[str, Tensor],
        targets: Mapping[str, Target],
        precision: Precision,
        holds_layers: bool = False,
    ) -> None:
        self.module = module
        self.layer = copy.copy(module)  # while the model runs, the module itself calls this object
        self.parameters, self.targets = parameters, targets
        self.precision, self.holds_layers = precision, holds_layers
        first = next(iter(parameters.values()))
        self.runs, self.dtype = len(first), first.dtype
        is_2d = type(module) in (nn.Conv2d, nn.ConvTranspose2d)
        self.channels_last = is_2d and (not first.is_cuda or precision.low)
        self.decomposition = find_decomposition(module)
        self._products: dict[tuple[Rows, Rows | None], BatchedLayer | None] = {}
        self._rounded: dict[str, Tensor] = {}

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any], record: Record) -> Any:
        """What the model gets for its call; `record` computes the output of a layer."""
        if self.decomposition is None:
            return record(self, self.bind(only_tensor(self.layer, args, kwargs)))

        def product(inputs: Tensor, weight: Rows, bias: Rows | None) -> Tensor:
            if (weight, bias) not in self._products:
                self._products[weight, bias] = self._linear_layer(weight, bias)
            layer = self._products[weight, bias]
            if layer is None:  # frozen
                shift = None if bias is None else self._rounded_part(bias)
                return _linear(self.precision.rounded(inputs), self._rounded_part(weight), shift)
            return record(layer, layer.bind(inputs))

        return self.decomposition(self.layer, product, *args, **kwargs)

    def _linear_layer(self, weight: Rows, bias: Rows | None) -> "BatchedLayer | None":
        """A Linear layer with parts of this layer's parameters; None if none of them is trained."""
        parts = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
        values = {key: rows.of(self.values(rows.name)) for key, rows in parts.items()}
        _, outputs, inputs = values["weight"].shape
        linear = nn.Linear(inputs, outputs, bias is not None, device="meta")
        targets = {}
        for key, rows in parts.items():
            if rows.name not in self.parameters:
                delattr(linear, key)
                linear.register_buffer(key, values.pop(key)[0])
                continue
            layer, whole = self.targets[rows.name]
            targets[key] = Target(layer, rows._replace(name=whole.name))
        return BatchedLayer(linear, values, targets, self.precision) if values else None

    def _rounded_part(self, rows: Rows) -> Tensor:
        return self.precision.rounded(rows.of(self.values(rows.name)))

    def values(self, name: str) -> Tensor:
        """A parameter of the module, frozen or not, [R, ...]."""
        if name in self.parameters:
            return self.parameters[name]
        frozen = self.module.get_buffer(name)
        return frozen.expand(self.runs, *frozen.shape)

    def bind(self, inputs: Tensor) -> Tensor:
        """The inputs in the type and layout in which the layer takes them."""
        if is_product(self.layer, inputs):
            rounded = self.precision.rounded(inputs)
            return _channels_last(rounded) if self.channels_last else rounded
        # Whole numbers, as places in a vocabulary, stay what they are.
        is_rounded = self.precision.low and inputs.is_floating_point()
        return inputs.to(self.dtype) if is_rounded else inputs

    def outputs(self, inputs: Tensor) -> Tensor:
        """The outputs [R B, ...], each run's part with that run's parameters."""
        factors = self.parameters
        if is_product(self.layer, inputs):
            if not self._rounded:  # once for all passes
                names = [name for name in ("weight", "bias") if self._has(name)]
                self._rounded = {name: self.precision.rounded(self.values(name)) for name in names}
            factors = self._rounded
        if type(self.layer) is nn.Linear:
            return _linear(inputs, factors["weight"], factors.get("bias"))
        if self.runs > 1 and self.holds_layers:
            raise OsoError(
                f"model: {type(self.layer).__name__} has parameters and layers with parameters; "
                "train one run at a time only"
            )
        # Of one run as it is: a part's gradient would be copied into the whole's.
        parts = [
            call_layer(self.layer, {name: values[run] for name, values in factors.items()}, part)
            for run, part in enumerate([inputs] if self.runs == 1 else inputs.chunk(self.runs))
        ]
        return parts[0] if self.runs == 1 else torch.cat(parts)

    def _has(self, name: str) -> bool:
        return getattr(self.layer, name, None) is not None

    def gradients(self, inputs: Tensor, output_gradients: Tensor) -> LayerGradients:
        """The layer's rule for this call."""
        rule = find_rule(self.layer, inputs)
        if rule is FunctionalGradients:
            if found := self._transformed(inputs, output_gradients):
                return found
            return FunctionalGradients(self.layer, inputs, output_gradients, self.parameters)
        if "weight" not in self.parameters:
            return _bias_gradients(self.layer, output_gradients)
        layer = self.layer
        if "bias" not in self.parameters and self._has("bias"):  # frozen: no part of the gradient
            layer = copy.copy(layer)
            layer.__dict__["bias"] = None
        gradients: LayerGradients = rule(layer, inputs, output_gradients)
        return gradients

    def uses(self, inputs: Tensor, errors: Tensor, views: int = 1) -> Iterator[tuple[Target, Use]]:
        """What this call adds to each parameter, from its output gradients; of K views, those of an
        example together."""
        if found := self._transformed(inputs, errors, views):
            for name, values in found.gradients.items():
                yield self.targets[name], values
            return
        for target, use in self._uses_of_rows(inputs, errors):
            yield target, add_views(use, views)

    def _uses_of_rows(self, inputs: Tensor, errors: Tensor) -> Iterator[tuple[Target, Use]]:
        if products := self._rows_of_product(inputs, errors):
            if "weight" in self.parameters:
                yield self.targets["weight"], products
            if "bias" in self.parameters:
                yield self.targets["bias"], _bias_gradients(self.layer, errors).gradients["bias"]
        elif isinstance(self.layer, nn.Embedding) and type(self.layer) is nn.Embedding:
            words = inputs.reshape(len(inputs), -1).long()
            by_word = errors.reshape(*words.shape, -1)
            yield self.targets["weight"], Lookups(words, by_word, self.layer.padding_idx)
        else:
            gradients: Any = self.gradients(inputs, errors)
            for name, values in gradients.gradients.items():
                yield self.targets[name], values

    def _rows_of_product(self, inputs: Tensor, errors: Tensor) -> Products | None:
        """The rows that are multiplied by the weight; None for layers that keep gradients."""
        rule = find_rule(self.layer, inputs)
        if isinstance(self.layer, nn.Conv2d) and rule is ConvFactors:
            return Products(*conv_factors(self.layer, inputs, errors))
        if rule not in (LinearGradients, SequenceKernels, SequenceFactors):
            return None
        by_row = (
            part.flatten(1, -2) if part.dim() > 2 else part[:, None] for part in (inputs, errors)
        )
        return Products(*by_row)

    def _transformed(
        self, inputs: Tensor, errors: Tensor, views: int = 1
    ) -> MaterializedGradients | None:
        """Of a product with a function of the weight; None for other layers."""
        if self.holds_layers or find_rule(self.layer, inputs) is not FunctionalGradients:
            return None
        return transformed_gradients(self.layer, inputs, errors, self.parameters, views)


def _bias_gradients(layer: nn.Module, errors: Tensor) -> MaterializedGradients:
    """Of the bias alone: output gradients [N, ...], added up over places."""
    if isinstance(layer, nn.Linear):
        over = range(1, errors.dim() - 1)
    elif isinstance(layer, nn.LayerNorm):
        over = range(1, errors.dim() - len(layer.normalized_shape))
    else:  # channels are the second dimension
        over = range(2, errors.dim())
    exact = torch.promote_types(errors.dtype, torch.float32)
    return MaterializedGradients(
        {"bias": errors.sum(dim=tuple(over), dtype=exact) if over else errors}
    )


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Each run's layer on its own part: inputs [R B, ..., I], weight [R, O, I], bias [R, O]."""
    if len(weight) == 1:
        return F.linear(inputs, weight[0], None if bias is None else bias[0])
    parts = inputs.flatten(0, -2).unflatten(0, (len(weight), -1))
    if bias is None:
        outputs = torch.bmm(parts, weight.transpose(1, 2))
    else:
        outputs = torch.baddbmm(bias[:, None], parts, weight.transpose(1, 2))
    return outputs.view(*inputs.shape[:-1], weight.shape[1])


def _channels_last(images: Tensor) -> Tensor:
    """The same numbers, channels last. For a single channel it is the strides that tell torch."""
    if images.shape[1] == 1:
        return images.contiguous().squeeze(1).unsqueeze(-1).permute(0, 3, 1, 2)
    return images.contiguous(memory_format=torch.channels_last)


@contextmanager
def patched_forward(layers: Mapping[str, BatchedLayer], call: Callable[..., Any]) -> Iterator[None]:
    """While a model runs, these layers of it are called through `call`, by name.

    Layers that compute a whole block at once (torch's fast path of a transformer) call theirs.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        for name, layer in layers.items():
            layer.module.forward = partial(call, name)
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for layer in layers.values():
            layer.module.__dict__.pop("forward", None)


class Expanded(NamedTuple):
    """A parameter [1, ...] of a module that also holds layers: positions, a class token.

    For the pass it is one row for each example, as the module itself would make of it.
    """

    module: nn.Module
    name: str
    values: Tensor  # [R, 1, ...]
    target: Target


@contextmanager
def _replaced(expanded: Sequence[Expanded], rows: Sequence[Tensor]) -> Iterator[None]:
    """While a model runs, these parameters are these rows."""
    before = [one.module._parameters[one.name] for one in expanded]
    try:
        for one, values in zip(expanded, rows, strict=True):
            one.module._parameters[one.name] = values  # type: ignore[assignment]
        yield
    finally:
        for one, parameter in zip(expanded, before, strict=True):
            one.module._parameters[one.name] = parameter


Call = tuple[str, int, torch.Size]  # the layer, how often it was called before, its input


@dataclass(frozen=True)
class Traits:
    """What a model does in its forward pass, whatever the examples (`find_traits`).

    shared_rows: calls of layers, by the layer's name, the number of its call and the shape of its
    input, which is the same for all examples (places in a sequence). changed_outputs: layers whose
    outputs the model changes in place. draws_random: whether it draws random numbers (dropout).
    """

    shared_rows: frozenset[Call] = frozenset()
    changed_outputs: frozenset[str] = frozenset()
    draws_random: bool = False


class ForwardBackward:
    """One pass over N examples of R runs; `gradients` has the per-sample gradients of each layer.

    layers: those of the model that have parameters, by name. shapes: of the parameters of each
    layer that owns some, by the names of both. views: K, augmented copies of each example.
    """

    def __init__(
        self,
        layers: Mapping[str, BatchedLayer],
        expanded: Sequence[Expanded],
        shapes: Mapping[str, Mapping[str, torch.Size]],
        traits: Traits,
        views: int = 1,
    ) -> None:
        self.layers, self.expanded, self.shapes, self.traits = layers, expanded, shapes, traits
        self.views = views
        self.gradients: dict[str, LayerGradients] = {}
        self.calls: list[Call] = []
        self.changed: set[str] = set()  # layers whose outputs the model has changed in place
        self._users = Counter(owner for layer in layers.values() for owner in _owners(layer))
        self._numbers: Counter[str] = Counter()
        self._times: Counter[BatchedLayer] = Counter()  # of layers, and of products inside them
        self._leaves: list[Tensor] = []  # where the graph begins
        self._rows: list[Tensor] = []  # of the expanded parameters, [N, ...]
        self._returned: list[tuple[str, Tensor, int]] = []  # outputs and their versions
        self._seen: dict[int, Tensor] = {}  # inputs of the calls
        self._copies: list[tuple[str, Tensor, int]] = []  # that are handed to the model
        self._parts: dict[str, list[tuple[LayerGradients, Mapping[str, Rows]]]] = defaultdict(list)
        self._uses: dict[str, dict[Rows, list[Use]]] = defaultdict(lambda: defaultdict(list))
        self._is_backward, self._checks_rows = False, True

    def again(self) -> "ForwardBackward":
        """Another pass with the same parameters."""
        return ForwardBackward(self.layers, self.expanded, self.shapes, self.traits, self.views)

    def run(
        self, model: nn.Module, loss: Loss, inputs: Structure, targets: Tensor
    ) -> dict[str, LayerGradients]:
        """The per-sample gradients of each layer, for inputs [N, ...] and targets [N, ...].

        Of K views: inputs are [N, K, ...], and an example's loss is the mean over its views.
        """
        if self.views > 1:
            inputs = map_tensors(lambda one: one.flatten(0, 1), inputs)
            targets = targets.repeat_interleave(self.views, dim=0)
        with self._running(len(targets)):
            outputs = call_model(model, inputs)
            self._take_gradients(self._losses(loss, outputs, targets) / self.views)
        return {name: self.gradients[name] for name in self.shapes}

    def _losses(self, loss: Loss, outputs: Structure, targets: Tensor) -> Tensor:
        # A loss is no product: it is computed in the parameters' type.
        first = next(iter(self.layers.values()), None)
        dtype = self.expanded[0].values.dtype if first is None else first.dtype
        exact = map_tensors(lambda one: one.to(dtype) if one.is_floating_point() else one, outputs)
        losses = loss(exact, targets)
        if losses.shape != (len(targets),):  # a mean would be clipped as if it were one example's
            raise OsoError(
                f"loss: shape {list(losses.shape)} for {len(targets)} examples; must be one loss "
                "per example"
            )
        return losses

    def run_forward(self, model: nn.Module, inputs: Structure) -> None:
        """The forward pass alone, whatever the rows of the layers' inputs."""
        self._checks_rows = False
        with self._running(len(tensors_of(inputs)[0])):
            call_model(model, inputs)
            self.changed = _changed(self._returned + self._copies)

    @contextmanager
    def _running(self, examples: int) -> Iterator[None]:
        """Inside, layers of the model are called with each run's parameters, and recorded."""
        self._examples = examples
        for one in self.expanded:
            runs, _, *sizes = one.values.shape
            rows = one.values.detach().expand(runs, examples // runs, *sizes).flatten(0, 1)
            self._rows.append(rows.requires_grad_(True))
        self._leaves += self._rows
        try:
            with patched_forward(self.layers, self._call), _replaced(self.expanded, self._rows):
                yield
        finally:
            # They hold the graph, whose hooks hold this object.
            for kept in (self._leaves, self._rows, self._returned, self._copies):
                kept.clear()
            self._uses.clear()
            self._seen.clear()

    def _take_gradients(self, losses: Tensor) -> None:
        for name in _changed(self._returned):
            kind = type(self.layers[name].layer).__name__
            raise OsoError(f"model: the output of a {kind} is changed in place; use inplace=False")
        self._returned.clear()  # the backward pass frees an output once it is done with it
        self._copies.clear()
        expanded = {one.target.layer for one in self.expanded}
        self._check_used(expanded.union(*map(_owners, self._times)))
        self._is_backward = True
        # A layer may return what the model does not use.
        found = torch.autograd.grad(losses.sum(), self._leaves, allow_unused=True)
        for one, rows, gradient in zip(self.expanded, self._rows, found, strict=False):
            each = torch.zeros_like(rows) if gradient is None else gradient
            use = add_views(each[:, None], self.views)
            self._uses[one.target.layer][one.target.rows].append(use)
        for owner in {*self._parts, *self._uses}:
            self.gradients[owner] = self._combined(owner)
        self._check_used(self.gradients)

    def _combined(self, owner: str) -> LayerGradients:
        """Of a layer whose gradients came in parts."""
        shapes, parts = self.shapes[owner], list(self._parts[owner])
        for rows, uses in self._uses[owner].items():
            shape = rows.of(torch.empty(1, *shapes[rows.name], device="meta")).shape[1:]
            parts.append((combine(uses, shape), {"weight": rows}))
        check_disjoint([rows for _, places in parts for rows in places.values()])
        return PartedGradients(parts, shapes)

    def _check_used(self, used: Container[str]) -> None:
        if missing := sorted(name for name in self.shapes if name not in used):
            raise OsoError(f"model: layers {missing} are not used in the forward pass")

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """In the place of the layer's `forward`."""
        layer = self.layers[name]
        if self._is_backward:  # of a part that is computed once more (checkpointing)
            return layer(args, kwargs, BatchedLayer.outputs)
        number = self._numbers[name]
        self._numbers[name] += 1
        first = next((one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)), None)
        if first is not None:
            call = name, number, first.shape
            self.calls.append(call)
            if call in self.traits.shared_rows:
                args, kwargs = self._expand(layer, (args, kwargs))
            elif self._checks_rows and first.shape[:1] != (self._examples,):
                # Several rows of one example would be clipped separately.
                raise OsoError(
                    f"model: a layer's input {MSG_MIXES_EXAMPLES}; it must have one row each "
                    f"(layer {name!r})"
                )
        outputs = layer(args, kwargs, partial(self._record, name))
        if name in self.traits.changed_outputs:
            outputs = map_tensors(Tensor.clone, outputs)
            self._copies += [(name, one, one._version) for one in tensors_of(outputs)]
        return outputs

    def _expand(self, layer: BatchedLayer, arguments: Any) -> Any:
        """What all examples share, once for each of them: [1, ...] or [...] to [N, ...]."""
        if type(layer.layer) not in (nn.Embedding, nn.Linear):
            raise OsoError(
                f"model: a {type(layer.layer).__name__} sees one row for all examples; must have "
                "one row each"
            )

        def expand(values: Tensor) -> Tensor:
            if len(values) != 1:
                values = values[None]
            return values.expand(self._examples, *values.shape[1:])

        return map_tensors(expand, arguments)

    def _record(self, name: str, layer: BatchedLayer, inputs: Tensor) -> Tensor:
        """The output of a layer, or of a product inside the layer of this name."""
        self._times[layer] += 1
        output = layer.outputs(inputs)
        if not output.requires_grad:  # here the graph begins
            self._leaves.append(output.requires_grad_(True))
        # The very numbers that the product takes; gone as soon as the rule has taken them.
        place = len(self._returned)
        self._seen[place] = inputs.detach()
        output.register_hook(
            lambda gradient: self._backward(name, layer, self._seen.pop(place), gradient)
        )
        self._returned.append((name, output, output._version))
        return output

    def _backward(
        self, name: str, layer: BatchedLayer, inputs: Tensor, output_gradients: Tensor
    ) -> None:
        owners = _owners(layer)
        once = self._times[layer] == 1 and all(self._users[owner] == 1 for owner in owners)
        if not once or len(owners) > 1 or self.views > 1:
            for target, use in layer.uses(inputs, output_gradients, self.views):
                self._uses[target.layer][target.rows].append(use)
            return
        (owner,) = owners
        gradients = layer.gradients(inputs, output_gradients)
        if self.layers[name] is layer:
            self.gradients[owner] = gradients
        else:
            places = {key: target.rows for key, target in layer.targets.items()}
            self._parts[owner].append((gradients, places))


def _changed(outputs: Sequence[tuple[str, Tensor, int]]) -> set[str]:
    return {name for name, output, version in outputs if output._version != version}


def _owners(layer: BatchedLayer) -> set[str]:
    return {target.layer for target in layer.targets.values()}
