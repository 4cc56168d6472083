"""Several write to one store, and others read it meanwhile."""

import os
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

from oso_dp.results.collect import collect, finished_runs
from oso_dp.results.read import read_results

from .conftest import part

# How often two collect at once; OSO_TEST_ROUNDS=100 is the long form.
ROUNDS = int(os.environ.get("OSO_TEST_ROUNDS", "10"))
WRITERS = 2


def collects(folder: Path, writer: int, together: Barrier) -> None:
    """One writer's process: its own part into each round's store."""
    for number in range(ROUNDS):
        together.wait()
        collect([folder / f"{number % 2}.{writer}"], folder / f"store{number}")
    together.wait()


def test_two_at_once_lose_nothing(tmp_path) -> None:
    """In half of the rounds both write into one cohort's file. What a reader has seen stays."""
    for writer in range(WRITERS):
        part(tmp_path / f"0.{writer}", f"r{writer}", seed=writer)
        part(tmp_path / f"1.{writer}", f"r{writer}", epsilon=1.0 + writer)
    context = get_context("spawn")
    together = context.Barrier(WRITERS + 1)
    writers = [
        context.Process(target=collects, args=(tmp_path, writer, together), daemon=True)
        for writer in range(WRITERS)
    ]
    for process in writers:
        process.start()
    together.wait(120)
    for number in range(ROUNDS):
        store, seen = tmp_path / f"store{number}", set()
        while together.n_waiting < WRITERS:
            now = finished_runs(store)
            assert seen <= now <= {"r0", "r1"}
            seen = set(read_results(store).runs["run_id"]) if now else now
            assert now <= seen
        together.wait(120)
    for process in writers:
        process.join(60)
    assert [process.exitcode for process in writers] == [0] * WRITERS
    for number in range(ROUNDS):
        store = tmp_path / f"store{number}"
        assert set(read_results(store).runs["run_id"]) == {"r0", "r1"}
