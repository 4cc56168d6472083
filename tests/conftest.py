"""Fixtures and settings for every room's tests."""

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from tests.offered import offer  # noqa: F401
from tests.official_data import shared  # noqa: F401

from oso_dp.analysis.load import read_result_set
from oso_dp.analysis.result_set import ResultSet
from oso_dp.data.arrays import Arrays
from oso_dp.gradients import engine, layer_gradients, linear
from oso_dp.methods import find_method
from oso_dp.privacy.batch_rng import BatchRNG
from oso_dp.study.cohort import Run
from oso_dp.study.plan import read_plan
from oso_dp.training.task import StudyTask

# Small tensors; on few cores, threads cost more than they bring.
torch.set_num_threads(1)

REPO = Path(__file__).resolve().parents[1]

# Tests press Ctrl-C, also where they run in a shell's background, whose jobs ignore it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No window is ever opened.
os.environ.setdefault("MPLBACKEND", "Agg")

# How long one example takes says more about the machine than about the code. Under CI hypothesis
# loads a profile of its own, which has no deadline either.
if settings.get_current_profile_name() == "default":
    settings.register_profile("no_deadline", deadline=None)
    settings.load_profile("no_deadline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole studies first: one that came last would keep one core busy and the others waiting."""
    items.sort(key=lambda item: "workflow" not in item.path.parts)


def pytest_collection_finish() -> None:
    """What the modules and the tests are made of stays; to look through it again takes a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Whatever a command in this process chose, the tests after it have one thread again."""
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def repo() -> Path:
    """The repository's root."""
    return REPO


@pytest.fixture(scope="session")
def stored(repo: Path) -> ResultSet:
    """The rows of results/, read once: look, and change nothing."""
    return read_result_set(repo / "results", [read_plan(repo / "results/plan.json")])


@pytest.fixture(scope="session")
def arrays() -> Arrays:
    """A tiny problem that trains in milliseconds."""
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
    for module in (layer_gradients, engine, linear):
        monkeypatch.setattr(module, "is_async_device", lambda values: True)
    always = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(BatchRNG, "is_on_accelerator", always, raising=False)
    return torch.device("cpu")


@pytest.fixture
def make_task() -> Callable[..., StudyTask]:
    def make(name: str, settings: dict | None = None, momentum: float = 0.9, **other) -> StudyTask:
        method = find_method(name)
        known = {
            "model": "small_cnn",
            "metric": "accuracy",
            "noise_multiplier": 1.0 if method.is_private else 0.0,
            "batch_size": 20,
            "steps": 12,
            "evaluate_every": 4,
        }
        return StudyTask(
            method=method(method.Options(**(settings or {})), momentum), **{**known, **other}
        )

    return make


@pytest.fixture
def make_run() -> Callable[..., Run]:
    def make(run_id: str = "a", seed: int = 0, rho: float = 0.1, c: float = 1.0) -> Run:
        return Run(run_id, seed, rho, c, 0.5)

    return make
