"""Any layer that treats examples independently: per-example gradients by torch.func.

Holds all per-example gradients of the one layer, so it is the rule of last resort.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from oso_dp.gradients.layer_calls import LayerCall, find_call_convention
from oso_dp.gradients.materialized import MaterializedGradients

Outputs = Callable[[dict[str, Tensor], tuple[Tensor, ...]], tuple[Tensor, ...]]


class FunctionalGradients(MaterializedGradients):
    """taken: what the layer was called with, tensors [R B, ...]; output gradients [R B, ...].

    parameters: the layer's own by name, [R, ...]; fixed: those of layers inside it, likewise.
    """

    def __init__(
        self,
        layer: nn.Module,
        taken: LayerCall,
        output_gradients: Sequence[Tensor],
        parameters: Mapping[str, Tensor],
        fixed: Mapping[str, Tensor],
    ) -> None:
        form = find_call_convention(layer)
        runs = len(next(iter(parameters.values())))

        def per_example(
            run: int, inputs: tuple[Tensor, ...], output_gradients: tuple[Tensor, ...]
        ) -> dict[str, Tensor]:
            inside = {name: values[run] for name, values in fixed.items()}
            run_parameters = {name: values[run] for name, values in parameters.items()}

            def outputs(
                parameters: dict[str, Tensor], example: tuple[Tensor, ...]
            ) -> tuple[Tensor, ...]:
                batch_of_one = taken.with_tensors(tuple(part[None] for part in example))
                everything = {**inside, **parameters}
                return tuple(part[0] for part in form.call(layer, everything, batch_of_one))

            return _gradients_of_all(outputs, run_parameters, inputs, output_gradients)

        parts = zip(_by_run(taken.tensors, runs), _by_run(output_gradients, runs), strict=True)
        by_run = [per_example(run, *part) for run, part in enumerate(parts)]
        super().__init__({name: torch.cat([run[name] for run in by_run]) for name in parameters})


def _by_run(tensors: Sequence[Tensor], runs: int) -> list[tuple[Tensor, ...]]:
    return list(zip(*(part.chunk(runs) for part in tensors), strict=True))


def _gradients_of_all(
    outputs: Outputs,
    parameters: dict[str, Tensor],
    inputs: tuple[Tensor, ...],
    output_gradients: tuple[Tensor, ...],
) -> dict[str, Tensor]:
    """Of all examples at once; one after the other where torch cannot (recurrent layers)."""

    def pull_back(example: tuple[Tensor, ...], gradients: tuple[Tensor, ...]) -> dict[str, Tensor]:
        return torch.func.vjp(lambda run_parameters: outputs(run_parameters, example), parameters)[
            1
        ](gradients)[0]

    try:
        with warnings.catch_warnings():
            # torch warns that vmap falls back to a loop for some kernels.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            return torch.func.vmap(pull_back)(inputs, output_gradients)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # no rule for batches, or control flow that depends on values
        alone = [
            _gradients_of_one(outputs, parameters, example, gradients)
            for example, gradients in zip(
                zip(*inputs, strict=True), zip(*output_gradients, strict=True), strict=True
            )
        ]
        return {name: torch.stack([one[name] for one in alone]) for name in parameters}


def _gradients_of_one(
    outputs: Outputs,
    parameters: dict[str, Tensor],
    example: tuple[Tensor, ...],
    gradients: tuple[Tensor, ...],
) -> dict[str, Tensor]:
    """By ordinary differentiation, which every layer knows."""
    with torch.enable_grad():
        run_parameters = {
            name: values.detach().requires_grad_(True) for name, values in parameters.items()
        }
        results = torch.autograd.grad(
            outputs(run_parameters, example),
            list(run_parameters.values()),
            gradients,
            materialize_grads=True,
        )
    return dict(zip(run_parameters, results, strict=True))
