"""A small problem: two classes that a line parts, and a network for it."""

from functools import cache

import pytest
import torch
from torch import nn

from oso_dp import search_private, train_private
from oso_dp.api.budget import remaining_noise_multiplier
from oso_dp.privacy.ledger import Ledger

N = 400


@cache
def priced(sampling, steps, epsilon, delta, accountant, *spent):
    """As `remaining_noise_multiplier`, whose search takes up to two seconds; `spent`: ledgers."""
    ledgers = [Ledger.from_json(text) for text in spent]
    return remaining_noise_multiplier(sampling, steps, epsilon, delta, accountant, ledgers)


@pytest.fixture(autouse=True)
def no_price_is_computed_twice(monkeypatch):
    def price(sampling, steps, epsilon, delta, accountant, ledgers=()):
        spent = [ledger.to_json() for ledger in ledgers]
        return priced(sampling, steps, epsilon, delta, accountant, *spent)

    monkeypatch.setattr("oso_dp.api.train.remaining_noise_multiplier", price)
    monkeypatch.setattr("oso_dp.api.search.remaining_noise_multiplier", price)


def flat(trained) -> torch.Tensor:
    """The parameters of a model, or of a training's, in one vector."""
    model = trained if isinstance(trained, nn.Module) else trained.model
    return nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.fixture
def data():
    random = torch.Generator().manual_seed(3)
    inputs = torch.randn(N, 6, generator=random)
    return inputs, (inputs @ torch.randn(6, generator=random) > 0).long()


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


@pytest.fixture
def search(model, data):
    """search_private with what every test would say; all examples in each batch: priced at once."""

    def call(grid=None, **changed):
        given = {"model": model, "loss": nn.CrossEntropyLoss(reduction="none"), "data": data}
        usual = {"epsilon": 3.0, "delta": 1e-5, "epochs": 2, "batch_size": N, "progress": False}
        if "validation" not in changed:
            usual["score"] = lambda model: 0.5
        grid = {"learning_rate": [0.1, 0.5, 1.0]} if grid is None else grid
        return search_private(**{**given, **usual, "grid": grid, **changed})

    return call


@pytest.fixture
def train(model, data):
    """train_private with what every test would say."""

    def call(**changed):
        given = {"model": model, "loss": nn.CrossEntropyLoss(reduction="none"), "data": data}
        usual = {"epsilon": 3.0, "delta": 1e-5, "epochs": 2, "batch_size": 50, "progress": False}
        usual["method"] = "online"
        return train_private(**{**given, **usual, **changed})

    return call
