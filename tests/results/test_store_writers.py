"""Several write to one store, and others read it meanwhile."""

import os
import select
import subprocess
import sys

from oso_dp.results.collect import collect, finished_runs
from oso_dp.results.read import read_results

from .conftest import part

# How often two collect at once; OSO_TEST_ROUNDS=100 is the long form.
ROUNDS = int(os.environ.get("OSO_TEST_ROUNDS", "2"))
# A process that collects whenever it is told a part and a store.
WRITER = """
import sys
from pathlib import Path
from oso_dp.results.collect import collect
print("ready", flush=True)
for line in sys.stdin:
    part, store = line.rstrip("\\n").split("\\t")
    collect([Path(part)], Path(store))
    print("done", flush=True)
"""


def test_two_at_once_lose_nothing(tmp_path) -> None:
    runs = ["r0", "r1"]
    for number, run in enumerate(runs):
        part(tmp_path / f"0.{run}", run, seed=number)
        part(tmp_path / f"1.{run}", run, epsilon=1.0 + number)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER], **pipes) for _ in runs]
    assert [writer.stdout.readline() for writer in writers] == ["ready\n"] * 2
    for number in range(ROUNDS):
        store, seen = tmp_path / f"store{number}", set()
        for writer, run in zip(writers, runs, strict=True):
            writer.stdin.write(f"{tmp_path}/{number % 2}.{run}\t{store}\n")
            writer.stdin.flush()
        outputs = [writer.stdout for writer in writers]
        while len(select.select(outputs, [], [], 0)[0]) < len(writers):
            assert seen <= finished_runs(store) <= set(runs)
            seen = finished_runs(store)
            if seen:
                assert seen <= set(read_results(store).runs["run_id"])
        assert [output.readline() for output in outputs] == ["done\n"] * 2
        assert set(read_results(store).runs["run_id"]) == finished_runs(store) == set(runs)
    for writer in writers:
        writer.communicate(timeout=60)
    assert [writer.returncode for writer in writers] == [0, 0]


def test_what_is_decided_while_one_waits_is_added_to(parts, tmp_path, monkeypatch) -> None:
    import oso_dp.results.collect as module

    store, real = tmp_path / "store", module.only_writer

    def late(folder):
        monkeypatch.setattr(module, "only_writer", real)
        collect(parts[1:2], store)
        return real(folder)

    monkeypatch.setattr(module, "only_writer", late)
    collect(parts[:1], store)
    assert finished_runs(store) == {"r1", "r2"}
