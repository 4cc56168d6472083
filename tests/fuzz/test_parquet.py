"""A store's files after any change of their bytes, read in a process of its own.

A reader in C may end the process; then so many inputs later nobody would know which file it was. So
another process reads, the file that ended it is left, and its memory has a limit.
"""

import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.mutations import edited
from tests.planned_rows import rows_of

from oso_dp.errors import OsoError
from oso_dp.results import read
from oso_dp.results.read import read_results, read_table, run_ids
from oso_dp.results.schema import SCHEMAS
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan_with_noise
from oso_dp.study.strict_yaml import read_yaml

from .rounds import LONG, read_or_refused

INPUTS = 6_000 if LONG else 40
# Bytes more than before the first file: of addresses, of which the reader reserves many, and of
# memory that was ever used.
ADDRESSES, MEMORY = 4 << 30, 512 << 20
STUDY = """
name: mini
datasets: {glyphs: {model: small_cnn, epsilons: [3], seconds_per_step: 0.005}}
methods: {online: {}}
values_per_axis: [2]
seeds: [0]
batch_size: 600
epochs: 1
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("store")
    plan = make_plan_with_noise(
        parse_config(read_yaml(STUDY, "x"), "x"), {"glyphs.online.k2.eps3": 1.0}
    )
    for kind, rows in rows_of(plan).items():
        pq.write_table(pa.Table.from_pylist(rows, SCHEMAS[kind]), folder / f"{kind}.parquet")
    assert len(read_results(folder).runs) == 2
    return folder


def test_read_results_damage_never_crashes(store, tmp_path):
    seed = random.randrange(2**32) if LONG else 0
    command = [sys.executable, "-W", "error", "-m", "tests.fuzz.test_parquet"]
    command += [str(store), str(tmp_path), str(INPUTS), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, (seed, done.stderr[-3000:])
    assert done.stdout == f"{INPUTS} read\n"


def read_all(store: Path, folder: Path, inputs: int, seed: int) -> None:
    """Read so many changed copies of a store; what the process does not survive is left there."""
    whole = {kind: (store / f"{kind}.parquet").read_bytes() for kind in SCHEMAS}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESSES, used + ADDRESSES))
    draws = random.Random(seed)
    for number in range(inputs):
        changed = draws.choice(sorted(SCHEMAS))
        for kind, content in whole.items():
            if kind == changed:
                content = edited((content,), draws.randbytes(draws.choice([7, 13, 25])))
                # Most of what a file says of itself stands at its end.
                if number % 2:
                    content = whole[kind][:-700] + edited((whole[kind][-700:],), draws.randbytes(7))
            (folder / f"{kind}.parquet").write_bytes(content)
        read_or_refused(read_results, folder)
        read_or_refused(read_table, folder / f"{changed}.parquet", changed)
        read_or_refused(run_ids, folder)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MEMORY, f"{grown} bytes"
    print(inputs, "read")


def test_read_table_too_many_rows_rejected(store, monkeypatch):
    monkeypatch.setattr(read, "MAX_ROWS", 1)
    monkeypatch.setattr(read.pq, "read_table", lambda *given, **how: pytest.fail("it was read"))
    with pytest.raises(OsoError, match=rf"^{store}/runs.parquet: 2 rows; must be <= 1"):
        read_table(store / "runs.parquet", "runs")


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    read_all(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
