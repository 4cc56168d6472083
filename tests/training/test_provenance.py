"""The hash of the code: of every room that a run's numbers come from."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import oso_dp
from oso_dp.training import provenance
from oso_dp.training.provenance import COMMIT, PACKAGES

# What a training imports, too, and why no number comes from it: names, files, and what the plan,
# which a row and a checkpoint hold by itself, has decided before.
DECIDES_NOTHING = {
    *("checkpoint", "defaults", "errors", "files", "output_paths", "value_checks"),
    *("metrics", "study", "accounting"),
}


def test_code_hash_packages_cover_training_imports() -> None:
    code = (
        "import sys, oso_dp.training.job\n"
        "print(*{m.split('.')[1] for m in sys.modules if m.startswith('oso_dp.')})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - DECIDES_NOTHING == set(PACKAGES)


def test_code_hash_changes_with_hashed_packages(monkeypatch, tmp_path) -> None:
    copy = tmp_path / "oso_dp"
    shutil.copytree(Path(oso_dp.__file__).parent, copy, ignore=shutil.ignore_patterns("*.pyc"))
    monkeypatch.setattr(provenance.oso_dp, "__file__", str(copy / "__init__.py"))
    code_hash = provenance.code_hash.__wrapped__
    for package in (*PACKAGES, *DECIDES_NOTHING):
        before = code_hash()
        place = copy / package
        file = max(place.rglob("*.py")) if place.is_dir() else copy / f"{package}.py"
        file.write_text(file.read_text().replace("e", "E", 1))  # of the same length
        assert (code_hash() != before) == (package in PACKAGES), package


@pytest.mark.parametrize(("threads", "said"), [(1, "(1 thread)"), (2, "(2 threads)")])
def test_device_name_cpu_includes_threads(threads: int, said: str) -> None:
    """Rows are compared and retrained by the device name, and threads change the bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        name = provenance.device_name("cpu")
    finally:
        torch.set_num_threads(before)
    vectors = torch.backends.cpu.get_cpu_capability()
    assert name.endswith(f", {vectors} {said}")  # without, another machine's bits would be wrong
    assert len(name) > len(f", {vectors} {said}")


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


def test_commit_repository_overrides_environment(head, monkeypatch) -> None:
    assert named() == head
    monkeypatch.setenv(COMMIT, "another")
    assert named() == head


@pytest.mark.parametrize("name", ["__init__.py", "methods/online.py", "methods/more.py"])
def test_commit_modified_code_marked_dirty(head, package, name: str) -> None:
    """Results of modified code cannot be reproduced from the commit."""
    (package / name).write_text("one = 2\n")
    assert named() == f"{head}-dirty"


def test_commit_other_files_ignored(head, package) -> None:
    (package.parents[1] / "README.md").write_text("two\n")
    (package.parents[1] / "results").touch()
    assert named() == head


@pytest.mark.parametrize(("said", "known"), [("abc", "abc"), ("", None), (None, None)])
def test_commit_without_repository_uses_environment(package, monkeypatch, said, known) -> None:
    if said is not None:
        monkeypatch.setenv(COMMIT, said)
    assert named() == known


def test_commit_enclosing_repository_ignored(package, tmp_path) -> None:
    """An environment may lie inside the repository of another project."""
    git(tmp_path, "init", "-q")
    (tmp_path / "notes").touch()
    git(tmp_path, "add", "notes")
    git(tmp_path, "commit", "-qm", "all")
    assert named() is None
