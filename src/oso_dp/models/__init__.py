"""The study's networks: `MODELS` has one `ModelSpec` for each name in configurations.

Imports no torch, since planning needs the specs alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from oso_dp.errors import OsoError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ModelSpec:
    """One network.

    Attributes:
        name: in configurations; also of the function in `networks` that builds it.
        input_shape: of one example.
        metric: that its outputs are evaluated by.
        words: number of words of a text that it reads; None for images.
        parallel_runs: number of runs trained together on a CPU if nothing else is asked for.
    """

    name: str
    input_shape: tuple[int, ...]
    metric: str
    words: int | None = None
    parallel_runs: int = 1


MODELS: dict[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        ModelSpec("cnn", (1, 28, 28), "accuracy"),
        ModelSpec("autoencoder", (1, 28, 28), "mse"),
        ModelSpec("autoencoder_strided", (1, 28, 28), "mse"),
        ModelSpec("bag_of_words", (750,), "accuracy", 15, 8),
        ModelSpec("bag_of_words_25", (1250,), "accuracy", 25, 8),
        ModelSpec("tanh_cnn", (1, 28, 28), "accuracy"),
        ModelSpec("softmax_regression", (1, 28, 28), "accuracy", parallel_runs=8),
        ModelSpec("small_cnn", (1, 14, 14), "accuracy"),
        ModelSpec("linear", (4096,), "accuracy"),  # the audit's
    )
}


def fitting_models(input_shapes: Iterable[tuple[int, ...]], metric: str) -> list[str]:
    """The networks for data with one of these shapes, the paper's first."""
    shapes = [*input_shapes]
    return [m.name for m in MODELS.values() if m.input_shape in shapes and m.metric == metric]


def build_model(name: str, final_activation: bool = False) -> nn.Module:
    """A network with weights drawn from torch's global generator.

    final_activation: apply the ReLU or LeakyReLU of Tables 5 and 7 to the logits also.
    """
    if name not in MODELS:
        raise OsoError(f"model: {name!r}; must be one of {', '.join(sorted(MODELS))}")
    networks = import_module("oso_dp.models.networks")  # it needs torch
    network: nn.Module = getattr(networks, name)(final_activation)
    return network


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
