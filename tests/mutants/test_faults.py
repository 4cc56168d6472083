"""The list of planted faults is in order: `make mutants` itself takes minutes."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from faults import FAULTS, KINDS

sys.path.pop(0)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fits_the_code(fault, repo) -> None:
    """Code that has moved on would leave a fault that plants nothing."""
    text = (repo / "src/oso_dp" / fault.file).read_text()
    assert text.count(fault.old) == 1
    compile(text.replace(fault.old, fault.new), fault.file, "exec")
    assert all((repo / test).exists() for test in fault.tests.split())


def test_no_fault_asks_for_a_name_that_is_not_there(repo, tmp_path) -> None:
    """Whatever test loads such code fails, and has seen nothing."""
    for number, fault in enumerate(FAULTS):
        text = (repo / "src/oso_dp" / fault.file).read_text()
        path = tmp_path / str(number) / Path(fault.file).name  # __init__.py knows more names
        path.parent.mkdir()
        path.write_text(text.replace(fault.old, fault.new))
    asked = [sys.executable, "-m", "ruff", "check", "--isolated", "--quiet", "--select", "F821"]
    asked += ["--output-format", "concise", str(tmp_path)]
    found = subprocess.run(asked, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, ""), found.stdout


def test_there_are_enough_and_no_two_alike() -> None:
    assert len(FAULTS) >= 25
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert len({(fault.file, fault.old, fault.new) for fault in FAULTS}) == len(FAULTS)


def test_every_kind_has_ten_faults_and_no_fault_another_kind() -> None:
    kinds = Counter(fault.kind for fault in FAULTS if fault.kind)
    assert kinds.keys() == KINDS.keys()
    assert min(kinds.values()) >= 10
