"""A tiny problem that trains in milliseconds."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from oso_dp.data.arrays import Arrays
from oso_dp.methods import find_method
from oso_dp.privacy.draws import Draws
from oso_dp.privacy.streams import Seeded
from oso_dp.training.gradients import batch, rules
from oso_dp.training.loop import Start, Task


@pytest.fixture(scope="session")
def arrays() -> Arrays:
    rng = np.random.default_rng(0)
    inputs = rng.random((260, 1, 14, 14), dtype=np.float32)
    targets = (inputs.mean(axis=(1, 2, 3)) * 60).astype(np.int64) % 10
    return Arrays(inputs[:200], targets[:200], inputs[200:], targets[200:])


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch) -> torch.device:
    """An accelerator, or a CPU on which everything takes the lines written for one."""
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device is visible here")
        return torch.device("cuda")
    for module in (rules, batch):
        monkeypatch.setattr(module, "waits", lambda values: True)
    seeded = property(lambda self: isinstance(self.randomness, Seeded), lambda self, value: None)
    monkeypatch.setattr(Draws, "_there", seeded, raising=False)
    return torch.device("cpu")


@pytest.fixture
def make_task() -> Callable[..., Task]:
    def make(name: str, settings: dict | None = None, momentum: float = 0.9, **other) -> Task:
        method = find_method(name)
        shared = {
            "model": "small_cnn",
            "metric": "accuracy",
            "noise_multiplier": 1.0 if method.private else 0.0,
            "batch_size": 20,
            "steps": 12,
            "evaluate_every": 4,
        }
        return Task(method(method.Settings(**(settings or {})), momentum), **{**shared, **other})

    return make


@pytest.fixture
def make_start() -> Callable[..., Start]:
    def make(run_id: str = "a", seed: int = 0, rho: float = 0.1, c: float = 1.0) -> Start:
        return Start(run_id, seed, rho, c, 0.5)

    return make
