"""Fixtures and settings for every room's tests."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Small tensors; on few cores, threads cost more than they bring.
torch.set_num_threads(1)

REPO = Path(__file__).resolve().parents[1]

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


@pytest.fixture(scope="session")
def repo() -> Path:
    """The repository's root."""
    return REPO


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder beside the repository that holds the official data files in `data/`.

    `OSO_TEST_SHARED` names another one. Where there is none the test skips, or fails if
    `OSO_REQUIRE_SHARED=1`, so that continuous integration cannot skip it unnoticed.
    """
    folder = Path(os.environ.get("OSO_TEST_SHARED") or REPO.parent / "shared")
    if (folder / "data" / "mnist").is_dir():
        return folder
    reason = f"no official data: there is no folder data/mnist in {folder} (see OSO_TEST_SHARED)"
    if os.environ.get("OSO_REQUIRE_SHARED") == "1":
        pytest.fail(f"OSO_REQUIRE_SHARED=1, but {reason}", pytrace=False)
    pytest.skip(reason)
