"""The GPU command, on a stand-in device: what it packs is trained, and the second call goes on."""

import importlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pandas as pd
import pytest

from oso_dp.results.read import read_results
from oso_dp.study.plan import read_plan

SCRIPT = Path("benchmarks/on_gpu.py")


@pytest.fixture(scope="module")
def on_gpu(repo, tmp_path_factory):
    """Call the script of a clone, where everything is committed."""
    clone = tmp_path_factory.mktemp("gpu") / "clone"
    subprocess.run(["git", "clone", "-q", "--shared", repo, clone], check=True)
    for name in subprocess.run(
        ["git", "-C", repo, "ls-files", "-mo", "--exclude-standard"], capture_output=True, text=True
    ).stdout.split():
        if (repo / name).exists():
            (clone / name).write_bytes((repo / name).read_bytes())
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    call = ["git", "-C", clone, *identity, "commit", "-qm", "As it stands", "--allow-empty"]
    subprocess.run(["git", "-C", clone, "add", "-A"], check=True)
    subprocess.run(call, check=True)

    def call_script(*arguments: str) -> subprocess.CompletedProcess:
        call = [sys.executable, SCRIPT, *arguments, "--plans", "ci/smoke"]
        return subprocess.run(call, cwd=clone, capture_output=True, text=True)

    call_script.clone = clone
    return call_script


@pytest.mark.nightly
def test_on_gpu_rows_train_plan(on_gpu, tmp_path) -> None:
    packed = on_gpu("--pack")
    assert packed.returncode == 0, packed.stderr
    assert "glyphs: " in packed.stdout
    arguments = ("--rows", "--device", "cpu", "--processes", "2", "--minutes", "2")
    for _ in range(2):
        trained = on_gpu(*arguments, "--output", str(tmp_path / "out"))
        assert trained.returncode == 0, trained.stdout + trained.stderr
    assert ": 0 runs of smoke to do" in trained.stdout
    with tarfile.open(tmp_path / "out" / "rows.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    runs = pd.concat(read_results(part).runs for part in (tmp_path / "rows").iterdir())
    plan = read_plan(on_gpu.clone / "build/gpu/plans/ci/smoke.json")
    assert set(runs["run_id"]) == {run.run_id for c in plan.cohorts for run in c.runs}
    head = (on_gpu.clone / "build/gpu/commit").read_text().strip()
    assert set(runs["commit"]) == {head}


@pytest.mark.nightly
def test_on_gpu_measure_writes_all_outputs(on_gpu, tmp_path) -> None:
    assert on_gpu("--pack").returncode == 0
    out = tmp_path / "out"
    arguments = (
        "--device",
        "cpu",
        "--processes",
        "2",
        "--minutes",
        "9",
        "--models",
        "bag_of_words",
    )
    measured = on_gpu(
        "--measure", "--output", str(out), "--step-seconds", "0.2", "--time-scale", "2", *arguments
    )
    log = (out / "log.txt").read_text()
    assert measured.returncode == 0, measured.stdout + measured.stderr + log
    assert "tests: status 0" in log
    assert "bench: status 0" in log
    assert {"cpu.csv", "profile.csv", "traces.tar.gz", "rows.tar"} <= {
        p.name for p in out.iterdir()
    }
    assert len([*out.iterdir()]) <= 8  # that come back


def test_on_gpu_call_stops_after_limit(tmp_path, on_gpu_module) -> None:
    call = [sys.executable, "-c", "import time; print('began', flush=True); time.sleep(60)"]
    with open(tmp_path / "log", "w") as log:
        assert on_gpu_module._call(call, 2, log, dict(os.environ)) == "stopped after 2 s"
        assert on_gpu_module._call([sys.executable, "-c", "exit(3)"], 9, log, {}) == "status 3"
    assert (tmp_path / "log").read_text() == "began\n"


@pytest.fixture
def on_gpu_module(repo, monkeypatch):
    monkeypatch.syspath_prepend(str(repo / "benchmarks"))
    return importlib.import_module("on_gpu")


@pytest.mark.parametrize(
    ("spans", "length"),
    [([], 0), ([(0, 2), (1, 3)], 3), ([(5, 6), (0, 2)], 3), ([(0, 9), (1, 2), (3, 4)], 9)],
)
def test_merged_length_equals_union(repo, monkeypatch, spans, length) -> None:
    monkeypatch.syspath_prepend(str(repo / "benchmarks"))
    assert importlib.import_module("profile_steps").merged_length(spans) == length


def test_on_gpu_pack_changed_code_rejected(on_gpu, tmp_path) -> None:
    (on_gpu.clone / "src/oso_dp/changed.py").write_text("")
    refused = on_gpu("--pack", "--folder", str(tmp_path / "pack"))
    assert refused.returncode == 1
    assert "commit first" in refused.stderr
    assert not (tmp_path / "pack").exists()
