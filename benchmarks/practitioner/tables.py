"""Networks for rows of numbers."""

import torch
from case import Case, classes
from torch import Tensor, nn


def mlp(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(20, 64), *between, nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    )


def rows(model: nn.Module, **options: object) -> Case:
    return Case(model, torch.randn(8000, 20), classes(8000, 2), options=dict(options))


def mlp_plain() -> Case:
    """Three Linear layers of 64 units."""
    return rows(mlp())


def mlp_dropout() -> Case:
    """The same with dropout."""
    return rows(mlp(nn.Dropout(0.2)))


def mlp_batch_norm() -> Case:
    """The same with BatchNorm, which `fix=True` and Opacus's validator replace."""
    return rows(mlp(nn.BatchNorm1d(64)), fix=True)


def mlp_frozen_body() -> Case:
    """A frozen body with BatchNorm in eval mode under a trained head."""
    model = mlp(nn.BatchNorm1d(64))
    model[:-1].requires_grad_(False).eval()
    return rows(model)


def bias_only() -> Case:
    """BitFit: the biases alone."""
    model = mlp()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("bias" in name)
    return rows(model)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.words = nn.Linear(20, 64), nn.Embedding(100, 64)
        self.head = nn.Linear(64, 2)

    def forward(self, numbers: Tensor, words: Tensor) -> Tensor:
        return self.head(torch.relu(self.numbers(numbers) + self.words(words)))


def two_inputs() -> Case:
    """Numbers and a category, as two arguments."""
    inputs = torch.randn(8000, 20), torch.randint(100, (8000,))
    return Case(TwoInputs(), inputs, classes(8000, 2))


def multi_label() -> Case:
    """Five labels an example: a loss for each."""
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
    targets = torch.randint(2, (8000, 5)).float()
    return Case(model, torch.randn(8000, 20), targets, nn.BCEWithLogitsLoss(reduction="none"))


def regression() -> Case:
    """One number an example, outputs and targets [B, 1]."""
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
    return Case(model, torch.randn(8000, 20), torch.randn(8000, 1), nn.MSELoss(reduction="none"))
