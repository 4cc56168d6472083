"""A small study with everything that commands read, valid, to be spoiled; and how they answer."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import oso, refused  # noqa: F401
from tests.planned_rows import rows_of

from oso_dp.results.collect import collect
from oso_dp.results.schema import SCHEMAS
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan, write_plan

STUDY = """\
name: mini
results: store
report: report
datasets:
  glyphs:
    model: small_cnn
    epsilons: [3]
    seconds_per_step: 0.005
methods:
  online: {}
  no_dp: {}
values_per_axis: [2]
seeds: [0]
batch_size: 600
epochs: 1
evaluate_every: 5
"""
COHORT = "glyphs.online.k2.eps3"


def content(folder: Path) -> dict[str, bytes]:
    """Of all files, but for locks that nobody holds."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def write(folder: Path, kind: str, rows: list[dict[str, Any]]) -> None:
    """One table as it stands, whatever it says; a NaN stays one."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, SCHEMAS[kind]), folder / f"{kind}.parquet")


def read(folder: Path, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / f"{kind}.parquet").to_pylist()
    return found


@pytest.fixture(scope="session")
def valid(tmp_path_factory) -> Path:
    """study.yaml, plan.json, a part of all runs, and the store that it makes."""
    import yaml

    folder: Path = tmp_path_factory.mktemp("valid")
    (folder / "study.yaml").write_text(STUDY)
    plan = make_plan(parse_config(yaml.safe_load(STUDY), "study.yaml"))
    write_plan(plan, folder / "plan.json")
    for kind, rows in rows_of(plan).items():
        write(folder / "part", kind, rows)
    collect([folder / "part"], folder / "store")
    return folder


@pytest.fixture
def place(valid, tmp_path, monkeypatch) -> Path:
    """A copy of `valid`, and the current folder."""
    folder = tmp_path / "place"
    shutil.copytree(valid, folder)
    monkeypatch.chdir(folder)
    return folder
