"""Two processes over gloo train as one does: same sums, noise once, one C in both."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.opacus.helpers import QUIET
from tests.opacus.two_workers import CASES, NOISY, STEPS, run, work

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]


@pytest.fixture(scope="module")
def workers(repo: Path, tmp_path_factory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("workers")
    inherited = os.environ.get("PYTHONPATH", "")  # a planted fault reaches both processes by it
    path = os.pathsep.join(filter(None, [str(repo), str(repo / "src"), inherited]))
    environment = {**os.environ, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo"}
    program = [sys.executable, str(repo / "tests/opacus/two_workers.py"), str(folder)]
    second = subprocess.Popen(program, env=environment, cwd=repo)
    try:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            patch.setenv("GLOO_SOCKET_IFNAME", "lo")
            first = work(0, folder)
        assert second.wait(timeout=300) == 0
    finally:
        second.kill()
        second.wait()
    return [first, torch.load(folder / "1.pt", weights_only=False)]


@pytest.mark.parametrize("name", CASES)
def test_optimizer_two_workers_match_one(name, workers) -> None:
    alone = run(name, None, noisy=False)
    first, second = (worker["ended"][name, False] for worker in workers)
    for one in (first, second):
        torch.testing.assert_close(one["parameters"], alone["parameters"], rtol=1e-10, atol=1e-12)
        assert one["state"] == pytest.approx(alone["state"], rel=1e-12)
        assert one["batch_size"] == alone["batch_size"] == 12
        assert one["history"] == alone["history"] == [(1.0, 0.1, STEPS)]
    assert torch.equal(first["parameters"], second["parameters"])
    assert (first["draws"], second["draws"]) == (2 * STEPS, 0)


@pytest.mark.parametrize("name", NOISY)
def test_optimizer_noisy_workers_agree(name, workers) -> None:
    first, second = (worker["ended"][name, True] for worker in workers)
    assert torch.equal(first["parameters"], second["parameters"])
    assert first["state"] == second["state"]
    assert not torch.equal(first["parameters"], workers[0]["ended"][name, False]["parameters"])


def test_optimizer_ddp_skip_signal_rejected(workers) -> None:
    for worker in workers:
        assert worker["refusal"].startswith("OsoError: DistributedDataParallel: ")
