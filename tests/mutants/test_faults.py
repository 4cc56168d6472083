"""The list of planted faults is in order: `make mutants` itself takes minutes."""

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fault import KINDS
from faults import FAULTS

sys.path.pop(0)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fits_the_code(fault, repo) -> None:
    """Code that has moved on would leave a fault that plants nothing."""
    text = (repo / "src/oso_dp" / fault.file).read_text()
    assert text.count(fault.old) == 1
    compile(text.replace(fault.old, fault.new), fault.file, "exec")
    assert all((repo / test).exists() for test in fault.tests.split())


def test_there_are_enough_and_no_two_alike() -> None:
    assert len(FAULTS) >= 25
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert len({(fault.file, fault.old, fault.new) for fault in FAULTS}) == len(FAULTS)


def test_every_kind_has_ten_faults_and_no_fault_another_kind() -> None:
    kinds = Counter(fault.kind for fault in FAULTS if fault.kind)
    assert kinds.keys() == KINDS.keys()
    assert min(kinds.values()) >= 10
