"""Layers whose per-sample gradients are held: embeddings, LayerNorm, GroupNorm, any other layer."""

import warnings
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.gradients.layer_calls import call_layer
from oso_dp.gradients.layer_gradients import Loss, MaterializedGradients, Sums, row_norms
from oso_dp.gradients.random_numbers import seeded
from oso_dp.gradients.structured import Structure, call_model, map_tensors, select, tensors_of


class EmbeddingGradients:
    """inputs, whole numbers [N, ...]; output gradients [N, ..., D].

    Of each example only the words that it holds have a gradient. Where a word stands several times
    in an example, its output gradients add up to one row of the table; the norm is that of the
    rows. These sums are kept, T rows of an example at most, so that what is measured is what is
    summed. The table itself, V rows, exists for the sums over the batch alone.
    """

    def __init__(self, layer: nn.Embedding, inputs: Tensor, output_gradients: Tensor) -> None:
        words = inputs.reshape(len(inputs), -1).long()
        errors = output_gradients.reshape(*words.shape, -1)
        if layer.padding_idx is not None:  # its row is a constant
            errors = errors.masked_fill((words == layer.padding_idx)[..., None], 0.0)
        self.table = layer.num_embeddings
        self.words, self.rows = _sum_by_word(words, errors)

    def norms(self) -> Tensor:
        return row_norms(self.rows)

    def drop(self, bad: Tensor) -> None:
        self.rows = self.rows.masked_fill(bad[:, None, None], 0.0)

    def weighted_sums(self, weights: Tensor, onto: Sums | None = None) -> Sums:
        runs, sums, batch = weights.shape
        rows = self.rows.to(weights.dtype)
        if onto is None:
            onto = {"weight": weights.new_zeros(runs, sums, self.table, rows.shape[2])}
        table = onto["weight"].view(-1, rows.shape[2])  # [R J V, D]
        first = torch.arange(runs, device=rows.device).repeat_interleave(batch) * sums * self.table
        places = self.words + first[:, None]
        for number, column in enumerate(weights.unbind(dim=1)):
            weighted = column.flatten()[:, None, None] * rows
            table.index_add_(0, (places + number * self.table).flatten(), weighted.flatten(0, 1))
        return onto


def _sum_by_word(words: Tensor, errors: Tensor) -> tuple[Tensor, Tensor]:
    """Each example's different words [N, T] with the sums of their rows of errors, [N, T, D].

    What is left over of T has word 0 and a sum of zero.
    """
    count, length = words.shape
    in_order, order = words.sort(dim=1)
    ranks = torch.zeros_like(words)
    ranks[:, 1:] = (in_order[:, 1:] != in_order[:, :-1]).cumsum(dim=1)
    places = torch.empty_like(words).scatter_(1, order, ranks)
    different = torch.zeros_like(words).scatter_(1, places, words)
    exact = torch.promote_types(errors.dtype, torch.float32)
    sums = errors.new_zeros(count * length, errors.shape[2], dtype=exact)
    first = torch.arange(count, device=words.device)[:, None] * length
    sums.index_add_(0, (first + places).flatten(), errors.flatten(0, 1).to(exact))
    return different, sums.unflatten(0, (count, length))


class LayerNormGradients(MaterializedGradients):
    """inputs and output gradients [N, ..., *normalized_shape]."""

    def __init__(self, layer: nn.LayerNorm, inputs: Tensor, output_gradients: Tensor) -> None:
        normalised = F.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
        between = range(1, inputs.dim() - len(layer.normalized_shape))
        super().__init__(_affine(layer, normalised, output_gradients, between))


class GroupNormGradients(MaterializedGradients):
    """inputs and output gradients [N, C, ...]."""

    def __init__(self, layer: nn.GroupNorm, inputs: Tensor, output_gradients: Tensor) -> None:
        normalised = F.group_norm(inputs, layer.num_groups, eps=layer.eps)
        super().__init__(_affine(layer, normalised, output_gradients, range(2, inputs.dim())))


def _affine(
    layer: nn.LayerNorm | nn.GroupNorm, normalised: Tensor, output_gradients: Tensor, over: range
) -> dict[str, Tensor]:
    """The output is weight * normalised + bias, at every place along the dimensions `over`."""
    gradients = {"weight": normalised * output_gradients}
    if layer.bias is not None:
        gradients["bias"] = output_gradients
    if over:  # torch takes no dimensions for all of them
        gradients = {name: values.sum(dim=tuple(over)) for name, values in gradients.items()}
    return gradients


class FunctionalGradients(MaterializedGradients):
    """Of any layer that treats examples independently, by torch.func: the rule of last resort.

    inputs [R B, ...] and output gradients [R B, ...]. parameters: the layer's own by name,
    [R, ...]; layers inside it are called with theirs, as in the forward pass.
    """

    def __init__(
        self,
        layer: nn.Module,
        inputs: Tensor,
        output_gradients: Tensor,
        parameters: Mapping[str, Tensor],
    ) -> None:
        runs = len(next(iter(parameters.values())))

        def of_run(run: int, inputs: Tensor, errors: Tensor) -> dict[str, Tensor]:
            own = {name: values[run] for name, values in parameters.items()}

            def product(parameters: dict[str, Tensor], example: Tensor, errors: Tensor) -> Tensor:
                output = call_layer(layer, parameters, example[None])[0]
                return (output * errors).sum()

            return gradients_of_all(product, own, inputs, errors)

        parts = zip(inputs.chunk(runs), output_gradients.chunk(runs), strict=True)
        by_run = [of_run(run, *part) for run, part in enumerate(parts)]
        super().__init__({name: torch.cat([one[name] for one in by_run]) for name in parameters})


class WholeModelGradients(MaterializedGradients):
    """Of a complete model and loss, each example's by itself: inputs and targets [R B, ...].

    parameters: all of the model by name, [R, ...]. views: K; inputs are [R B, K, ...] if K > 1.
    draws: whether the model draws random numbers.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        inputs: Structure,
        targets: Tensor,
        parameters: Mapping[str, Tensor],
        views: int = 1,
        draws: bool = False,
    ) -> None:
        runs = len(next(iter(parameters.values())))

        def value(parameters: dict[str, Tensor], example: Structure, target: Tensor) -> Tensor:
            of_views = example if views > 1 else map_tensors(lambda one: one[None], example)
            outputs = call_model(model, of_views, parameters)
            return loss(outputs, target.expand(views, *target.shape)).mean()

        by_run = []
        for run, each in enumerate(targets.chunk(runs)):
            part = slice(run * len(each), (run + 1) * len(each))
            own = {name: values[run] for name, values in parameters.items()}
            by_run.append(gradients_of_all(value, own, select(inputs, part), each, draws=draws))
        super().__init__({name: torch.cat([one[name] for one in by_run]) for name in parameters})


def gradients_of_all(
    function: Callable[..., Tensor],
    parameters: dict[str, Tensor],
    *examples: Structure,
    draws: bool = False,
) -> dict[str, Tensor]:
    """Of a number that a function has for parameters and one example: for all of them, [N, ...].

    One after the other where torch cannot (control flow that depends on values). draws: whether
    the function may draw random numbers, which are then each example's own.
    """
    randomness = "different" if draws else "error"
    try:
        with warnings.catch_warnings():
            # torch warns that vmap falls back to a loop for some kernels.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            of_one, places = torch.func.grad(function), (None, *(0 for _ in examples))
            return torch.func.vmap(of_one, places, randomness=randomness)(parameters, *examples)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # no rule for batches, or control flow that depends on values
        device, count = tensors_of(examples)[0].device, len(tensors_of(examples)[0])
        # Seeds, since how many numbers one example draws must not change the next one's.
        first = int(torch.randint(2**62, ())) if draws else 0
        alone = []
        for row in range(count):
            with seeded(first + row if draws else None, device):
                alone.append(_gradients_of_one(function, parameters, select(examples, row)))
        return {name: torch.stack([one[name] for one in alone]) for name in parameters}


def _gradients_of_one(
    function: Callable[..., Tensor], parameters: dict[str, Tensor], example: Structure
) -> dict[str, Tensor]:
    """By ordinary differentiation, which every layer knows."""
    with torch.enable_grad():
        values = {name: value.detach().requires_grad_(True) for name, value in parameters.items()}
        found = torch.autograd.grad(
            function(values, *example), list(values.values()), materialize_grads=True
        )
    return dict(zip(values, found, strict=True))
