"""The `shared` fixture finds the data, skips without it, and fails where it is required."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

USES_IT = "def test_data(shared):\n    assert (shared / 'data' / 'mnist').is_dir()\n"


def outcome(repo: Path, folder: Path, **env: str) -> str:
    """Pytest's output for one test that uses the fixture, in a checkout of its own.

    As small as can be: what else stands in conftest.py loads for seconds.
    """
    tests = folder / "repo" / "tests"
    tests.mkdir(parents=True)
    shutil.copy(repo / "tests" / "official_data.py", tests / "conftest.py")
    (tests / "test_uses_it.py").write_text(USES_IT)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OSO_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", "tests"],
        cwd=tests.parent,
        env=inherited | env,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


@pytest.mark.parametrize("named", [False, True], ids=["beside", "named"])
def test_it_finds_the_folder(repo: Path, tmp_path: Path, named: bool) -> None:
    folder = tmp_path / ("elsewhere" if named else "shared")
    (folder / "data" / "mnist").mkdir(parents=True)
    env = {"OSO_TEST_SHARED": str(folder)} if named else {}
    assert "1 passed" in outcome(repo, tmp_path, OSO_REQUIRE_SHARED="1", **env)


def test_it_skips_with_a_reason(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()  # a folder of that name need not be ours
    output = outcome(repo, tmp_path)
    assert "1 skipped" in output
    assert "no official data" in output


def test_it_fails_where_the_data_is_required(repo: Path, tmp_path: Path) -> None:
    output = outcome(repo, tmp_path, OSO_REQUIRE_SHARED="1")
    assert "1 error" in output
    assert "no official data" in output
