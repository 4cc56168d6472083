"""The command line in this process, and a small study for it."""

import sys

import numpy as np
import pytest

from oso_dp.cli import main
from oso_dp.data.arrays import Arrays, save_arrays

SMOKE = "config/smoke.yaml"


@pytest.fixture
def oso(monkeypatch, capsys):
    """Run `oso` in this process: (exit status, standard output, standard error)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["oso", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        return exit_.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def study(oso, repo, tmp_path, monkeypatch):
    """A priced plan and data of the right size, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    assert oso("plan", "--config", repo / SMOKE, "--output", "plan.json")[0] == 0
    rng = np.random.default_rng(0)
    inputs = rng.random((7000, 1, 14, 14), dtype=np.float32)
    targets = rng.integers(0, 10, 7000)
    arrays = Arrays(inputs[:6000], targets[:6000], inputs[6000:], targets[6000:])
    save_arrays(tmp_path / "glyphs.npz", arrays, {"dataset": "glyphs"})
    return tmp_path
