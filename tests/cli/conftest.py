"""The command line in this process, and a small study for it."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.commands import oso  # noqa: F401

from oso_dp.cli import main
from oso_dp.data.arrays import Arrays, save_arrays

SMOKE = "config/ci/smoke.yaml"


def call(*arguments: object) -> None:
    """Run `oso` in this process, for a fixture that is made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["oso", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
    assert exit_.value.code == 0


@pytest.fixture(scope="session")
def priced(repo, tmp_path_factory) -> Path:
    """plan.json and glyphs.npz: a priced plan and data of the right size; not to be changed."""
    folder = tmp_path_factory.mktemp("priced")
    call("plan", "--config", repo / SMOKE, "--output", folder / "plan.json")
    rng = np.random.default_rng(0)
    inputs = rng.random((7000, 1, 14, 14), dtype=np.float32)
    targets = rng.integers(0, 10, 7000)
    arrays = Arrays(inputs[:6000], targets[:6000], inputs[6000:], targets[6000:])
    save_arrays(folder / "glyphs.npz", arrays, {"dataset": "glyphs"})
    return folder


@pytest.fixture(scope="session")
def trained(priced, tmp_path_factory) -> Path:
    """part and store: Online's runs of that plan, trained and collected; not to be changed."""
    folder = tmp_path_factory.mktemp("trained")
    call("train", "--plan", priced / "plan.json", "--cohort", "glyphs.online.k2.eps3",
         "--data", priced / "glyphs.npz", "--output", folder / "part")  # fmt: skip
    call("collect", folder / "part", "--store", folder / "store")
    return folder


@pytest.fixture
def study(priced, tmp_path, monkeypatch) -> Path:
    """Copies of `priced`, in an empty folder, the current one."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(priced, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def collected(study, trained) -> Path:
    """`study`, and copies of `trained`."""
    shutil.copytree(trained, study, dirs_exist_ok=True)
    return study
