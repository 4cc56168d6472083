"""How long PyTorch's threads spin is settled once, unless somebody has decided already."""

import os
import subprocess
import sys

import pytest

from oso_dp.openmp import spin_briefly

NAMES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


@pytest.mark.parametrize(
    ("given", "after"),
    [
        ({}, "3000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, None),
        ({"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "7"}, "7"),
    ],
)
def test_spin_briefly_existing_settings_kept(monkeypatch, given, after):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    spin_briefly()
    assert os.environ.get("GOMP_SPINCOUNT") == after


def test_main_sets_spincount_before_torch():
    code = (
        "import os, sys\n"
        "import oso_dp.cli as cli\n"
        "seen = []\n"
        "cli.run_command = lambda command: seen.append('torch' in sys.modules) or 0\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print(seen, os.environ['GOMP_SPINCOUNT'])\n"
    )
    free = {name: value for name, value in os.environ.items() if name not in NAMES}
    done = subprocess.run(
        [sys.executable, "-c", code], env=free, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["[False]", "3000"]
