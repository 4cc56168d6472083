"""Ordinary training of teachers and students, without privacy: of rows that one of them may see."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (everyone's name for it)
from torch import Tensor, nn

from oso_dp.gradients.random_numbers import seeded
from oso_dp.models import build_model

_ROWS = 2000  # in a forward pass


@dataclass(frozen=True)
class NetworkTraining:
    """How a network is trained: by SGD with momentum 0.9, at a rate that falls to zero.

    Attributes:
        epochs: passes over the rows.
        batch_size: rows of a step.
        learning_rate: of the first step.
        shift: images are moved by up to so many pixels in each direction.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    shift: int = 0


def train_network(
    model: str, inputs: Tensor, targets: Tensor, training: NetworkTraining, name: str
) -> nn.Module:
    """A network of the study, trained on these rows; everything random is drawn by its name."""
    with seeded(_seed(name)):
        network = build_model(model)
        if not len(targets):
            return network.eval()
        steps = training.epochs * -(-len(targets) // training.batch_size)
        optimizer = torch.optim.SGD(network.parameters(), training.learning_rate, momentum=0.9)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 1 - done / steps)
        for _ in range(training.epochs):
            for rows in torch.randperm(len(targets)).split(training.batch_size):
                outputs = network(_shifted(inputs[rows], training.shift))
                optimizer.zero_grad()
                F.cross_entropy(outputs, targets[rows]).backward()
                optimizer.step()
                schedule.step()
    return network.eval()


def predict(network: nn.Module, inputs: Tensor) -> Tensor:
    """Probabilities of the classes, [n, classes]."""
    with torch.no_grad():
        return torch.cat([network(rows).softmax(dim=1) for rows in inputs.split(_ROWS)])


def accuracy(network: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """The share of rows whose target is the network's likeliest class."""
    return float((predict(network, inputs).argmax(dim=1) == targets).double().mean())


def _shifted(images: Tensor, most: int) -> Tensor:
    """The batch, moved by as much as all its images are."""
    if most == 0:
        return images
    down, right = torch.randint(-most, most + 1, (2,)).tolist()
    padded = F.pad(images, [most] * 4)
    height, width = images.shape[-2:]
    return padded[..., most + down : most + down + height, most + right : most + right + width]


def _seed(name: str) -> int:
    """A seed that fits torch's generators; teachers' random numbers protect nothing."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "little")
