"""Networks for rows of numbers."""

import torch
from case import Case, classes
from torch import nn


def mlp() -> Case:
    """Three Linear layers of 64 units."""
    model = nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
    )
    return Case(model, torch.randn(8000, 20), classes(8000, 2))
