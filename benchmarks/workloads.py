"""What is trained: the study's three networks and a transformer, on made-up data of their size.

Only shapes and sizes matter for time and memory, so the values are random and nothing is fetched.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from torch import nn
from transformer import ImageTransformer

from oso_dp.data.catalogue import DATASETS
from oso_dp.errors import OsoError


@dataclass(frozen=True)
class Workload:
    """One network with what it takes, and the data set that the study trains it on."""

    model: str
    metric: str  # names the loss: oso_dp.models.losses
    shape: tuple[int, ...]  # of one example
    classes: int
    dataset: str
    tested: int  # examples of its test set
    examples: int  # n of the training set
    network: Callable[[], nn.Module] | None = None  # where it is not one of the package's models

    @classmethod
    def of(cls, model: str, dataset: str, network: Callable[[], nn.Module] | None = None) -> Self:
        """The network on a data set of the catalogue."""
        spec = DATASETS[dataset]
        sizes = spec.test_examples, spec.examples
        return cls(model, spec.metric, spec.input_shape, spec.classes, dataset, *sizes, network)


WORKLOADS = {
    "bag_of_words": Workload.of("bag_of_words", "ag_news"),
    "cnn": Workload.of("cnn", "mnist"),
    "autoencoder": Workload.of("autoencoder", "fashion_mnist"),
}
# The bench measures it where it is named.
KNOWN = WORKLOADS | {"transformer": Workload.of("transformer", "mnist", ImageTransformer)}


def find_workload(model: str) -> Workload:
    """The workload of this network; OsoError names the allowed ones."""
    if model not in KNOWN:
        raise OsoError(f"model: {model!r}; allowed are {', '.join(KNOWN)}")
    return KNOWN[model]


@dataclass(frozen=True)
class Data:
    """A training set: inputs float32 [n, ...], targets int64 [n]."""

    inputs: np.ndarray
    targets: np.ndarray

    def first(self, count: int) -> "Data":
        return Data(self.inputs[:count], self.targets[:count])


def make_data(workload: Workload, examples: int, seed: int = 0) -> Data:
    """Random pixels in [0, 1), or random word vectors; random classes."""
    rng = np.random.default_rng(seed)
    draw = rng.random if len(workload.shape) == 3 else rng.standard_normal
    inputs = draw((examples, *workload.shape), dtype=np.float32)
    return Data(inputs, rng.integers(workload.classes, size=examples))


def save_data(data: Data, folder: Path) -> None:
    np.save(folder / "inputs.npy", data.inputs)
    np.save(folder / "targets.npy", data.targets)


def load_data(folder: Path) -> Data:
    """Map the files into memory, which all processes share, and touch every page of them."""
    arrays = [
        np.asarray(np.load(folder / name, mmap_mode="c", allow_pickle=False))
        for name in ("inputs.npy", "targets.npy")
    ]
    for array in arrays:
        array.max()
    return Data(*arrays)
