"""The fixture that finds the official data files, which are no part of the repository."""

import os
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    return find_shared(REPO)


def find_shared(repo: Path) -> Path:
    """The folder beside the repository that holds the official data files in `data/`.

    `OSO_TEST_SHARED` names another one. Where there is none the test skips, or fails if
    `OSO_REQUIRE_SHARED=1`, so that continuous integration cannot skip it unnoticed.
    """
    folder = Path(os.environ.get("OSO_TEST_SHARED") or repo.parent / "shared")
    if (folder / "data" / "mnist").is_dir():
        return folder
    reason = f"no official data: there is no folder data/mnist in {folder} (see OSO_TEST_SHARED)"
    if os.environ.get("OSO_REQUIRE_SHARED") == "1":
        pytest.fail(f"OSO_REQUIRE_SHARED=1, but {reason}", pytrace=False)
    pytest.skip(reason)
