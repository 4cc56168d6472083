"""The hash of the code: of every room that a run's numbers come from."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import oso_dp
from oso_dp.training import provenance
from oso_dp.training.provenance import PACKAGES

# What a training imports, too, and why no number comes from it: names, files, and what the plan,
# which a row and a checkpoint hold by itself, has decided before.
DECIDES_NOTHING = {"defaults", "errors", "files", "output_paths", "metrics", "study", "accounting"}


def test_hashed_packages_cover_training_imports() -> None:
    code = (
        "import sys, oso_dp.training.job\n"
        "print(*{m.split('.')[1] for m in sys.modules if m.startswith('oso_dp.')})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - DECIDES_NOTHING == set(PACKAGES)


def test_only_changes_in_hashed_packages_change_hash(monkeypatch, tmp_path) -> None:
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
def test_a_processor_is_named_with_its_threads(threads: int, said: str) -> None:
    """Rows are compared, and trained again, by that name."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        name = provenance.device_name("cpu")
    finally:
        torch.set_num_threads(before)
    vectors = torch.backends.cpu.get_cpu_capability()
    assert name.endswith(f", {vectors} {said}")  # without, another machine's bits would be wrong
    assert len(name) > len(f", {vectors} {said}")
