"""Two processes over gloo train as one does: same sums, noise once, one C in both."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.opacus.made import QUIET
from tests.opacus.two_workers import CASES, STEPS, run

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]


@pytest.fixture(scope="module")
def workers(repo: Path, tmp_path_factory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("workers")
    path = os.pathsep.join([str(repo), str(repo / "src")])
    environment = {**os.environ, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo"}
    program = [sys.executable, str(repo / "tests/opacus/two_workers.py")]
    running = [
        subprocess.Popen([*program, str(rank), str(folder)], env=environment, cwd=repo)
        for rank in (0, 1)
    ]
    try:
        assert [process.wait(timeout=600) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


@pytest.mark.parametrize("name", CASES)
def test_two_workers_train_as_one(name, workers) -> None:
    alone = run(name, None, noisy=False)
    first, second = (worker["ended"][name, False] for worker in workers)
    for one in (first, second):
        torch.testing.assert_close(one["parameters"], alone["parameters"], rtol=1e-10, atol=1e-12)
        assert one["state"] == pytest.approx(alone["state"], rel=1e-12)
        assert one["batch_size"] == alone["batch_size"] == 12
        assert one["history"] == alone["history"] == [(1.0, 0.1, STEPS)]
    assert torch.equal(first["parameters"], second["parameters"])
    assert (first["draws"], second["draws"]) == (2 * STEPS, 0)


@pytest.mark.parametrize("name", CASES)
def test_with_noise_the_workers_stay_together(name, workers) -> None:
    first, second = (worker["ended"][name, True] for worker in workers)
    assert torch.equal(first["parameters"], second["parameters"])
    assert first["state"] == second["state"]
    assert not torch.equal(first["parameters"], workers[0]["ended"][name, False]["parameters"])


def test_pieces_of_a_batch_are_refused_where_workers_wait_for_each_other(workers) -> None:
    for worker in workers:
        assert worker["refusal"].startswith("OsoError: DistributedDataParallel: ")
