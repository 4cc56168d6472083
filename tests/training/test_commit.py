"""The commit that a row names is that of the code which trained it."""

import subprocess
from pathlib import Path

import pytest

from oso_dp.training import provenance
from oso_dp.training.provenance import COMMIT

WHO = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *WHO, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A package's folder in a repository, as which the code is taken."""
    package = tmp_path / "checkout/src/oso_dp"
    (package / "methods").mkdir(parents=True)
    for name in ("__init__.py", "methods/online.py"):
        (package / name).write_text("one = 1\n")
    (tmp_path / "checkout/README.md").write_text("one\n")
    monkeypatch.setattr(provenance.oso_dp, "__file__", str(package / "__init__.py"))
    monkeypatch.delenv(COMMIT, raising=False)
    return package


@pytest.fixture
def head(package) -> str:
    checkout = package.parents[1]
    git(checkout, "init", "-q")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "all")
    return git(checkout, "rev-parse", "HEAD")


def named() -> str | None:
    """Asked anew: a process has one commit otherwise."""
    return provenance.commit.__wrapped__()


def test_it_is_the_repositorys_whatever_else_is_said(head, monkeypatch) -> None:
    assert named() == head
    monkeypatch.setenv(COMMIT, "another")
    assert named() == head


@pytest.mark.parametrize("name", ["__init__.py", "methods/online.py", "methods/more.py"])
def test_code_that_was_changed_or_added_is_not_the_commits(head, package, name: str) -> None:
    """Nobody else could train again what it trained."""
    (package / name).write_text("one = 2\n")
    assert named() == f"{head}-dirty"


def test_what_is_no_code_makes_no_difference(head, package) -> None:
    (package.parents[1] / "README.md").write_text("two\n")
    (package.parents[1] / "results").touch()
    assert named() == head


@pytest.mark.parametrize(("said", "known"), [("abc", "abc"), ("", None), (None, None)])
def test_without_a_repository_it_is_what_the_environment_says(
    package, monkeypatch, said, known
) -> None:
    if said is not None:
        monkeypatch.setenv(COMMIT, said)
    assert named() == known


def test_a_repository_around_an_installation_is_not_its_own(package, tmp_path) -> None:
    """As where an environment lies in somebody's project."""
    git(tmp_path, "init", "-q")
    (tmp_path / "notes").touch()
    git(tmp_path, "add", "notes")
    git(tmp_path, "commit", "-qm", "all")
    assert named() is None
