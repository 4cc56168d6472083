"""Four tasks on which the default is chosen, and four held-out tasks that judge it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from sklearn import datasets
from torch import Tensor, nn

from oso_dp.data.arrays import load_arrays
from oso_dp.models import build_model

CHOOSE, JUDGE = "choose", "judge"
Split = tuple[Tensor, Tensor, Tensor, Tensor]  # training and test inputs and targets


@dataclass(frozen=True)
class Task:
    """A model, its data, the expected batch size. `score`: of outputs and targets, in percent."""

    role: str
    model: Callable[[], nn.Module]
    data: Callable[[], Split]
    batch_size: int = 512
    loss: Callable[[], nn.Module] = lambda: nn.CrossEntropyLoss(reduction="none")
    score: Callable[[Tensor, Tensor], float] = lambda outputs, targets: (
        100 * float((outputs.argmax(dim=1) == targets).double().mean())
    )


def opacus_mnist() -> nn.Module:
    """The network of Opacus's example for MNIST: 26,010 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


def norm_cnn() -> nn.Module:
    """Three convolutions with GroupNorm: 24,906 parameters."""
    layers: list[nn.Module] = []
    for before, after in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.GroupNorm(4, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Transformer(nn.Module):
    """Two encoder layers on the vectors of 15 words: 54,000 parameters."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.words, self.places = nn.Linear(50, width), nn.Embedding(15, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 4)

    def forward(self, vectors: Tensor) -> Tensor:
        places = self.places(torch.arange(15, device=vectors.device))
        return self.head(self.layers(self.words(vectors.unflatten(1, (15, 50))) + places).mean(1))


def mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, outputs))


def prepared(name: str) -> Split:
    """A data set that `oso data` has prepared."""
    arrays, _ = load_arrays(Path("build/data") / f"{name}.npz")
    parts = arrays.train_inputs, arrays.train_targets, arrays.test_inputs, arrays.test_targets
    inputs, targets, test_inputs, test_targets = map(torch.from_numpy, parts)
    return inputs, targets, test_inputs, test_targets


def table(name: str) -> Split:
    """One of scikit-learn's, a fifth of it for the test; its ranges count as public."""
    loaded = getattr(datasets, f"load_{name}")()
    inputs, targets = torch.from_numpy(loaded.data).float(), torch.from_numpy(loaded.target)
    low, high = inputs.amin(dim=0), inputs.amax(dim=0)
    inputs = (inputs - low) / (high - low).clamp(min=1e-6)
    if targets.is_floating_point():
        targets = ((targets - targets.mean()) / targets.std()).float()[:, None]
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    return inputs[train], targets[train], inputs[test], targets[test]


def explained(outputs: Tensor, targets: Tensor) -> float:
    """The explained share of the variance."""
    return 100 * float(1 - ((outputs - targets) ** 2).mean() / targets.var(correction=0))


TASKS = {
    "opacus_mnist": Task(CHOOSE, opacus_mnist, lambda: prepared("mnist")),
    "ag_news_words": Task(
        CHOOSE, lambda: build_model("bag_of_words"), lambda: prepared("ag_news_partial")
    ),
    "digits": Task(CHOOSE, lambda: mlp(64, 10), lambda: table("digits"), batch_size=128),
    "diabetes": Task(
        CHOOSE,
        lambda: mlp(10, 1),
        lambda: table("diabetes"),
        batch_size=64,
        loss=lambda: nn.MSELoss(reduction="none"),
        score=explained,
    ),
    "mnist_cnn": Task(JUDGE, lambda: build_model("cnn"), lambda: prepared("mnist")),
    "fashion_mnist_labels": Task(JUDGE, norm_cnn, lambda: prepared("fashion_mnist_labels")),
    "ag_news_transformer": Task(JUDGE, Transformer, lambda: prepared("ag_news_partial")),
    "breast_cancer": Task(JUDGE, lambda: mlp(30, 2), lambda: table("breast_cancer"), batch_size=64),
}


@cache
def data_of(name: str) -> Split:
    return TASKS[name].data()
