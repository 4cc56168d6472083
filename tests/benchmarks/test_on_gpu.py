"""The GPU command, on a stand-in device: what it packs is trained, and the second call goes on."""

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
def test_rows_on_cpu_train_the_plan(on_gpu, tmp_path) -> None:
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


def test_pack_of_changed_code_is_refused(on_gpu, tmp_path) -> None:
    (on_gpu.clone / "src/oso_dp/changed.py").write_text("")
    refused = on_gpu("--pack", "--folder", str(tmp_path / "pack"))
    assert refused.returncode == 1
    assert "commit first" in refused.stderr
    assert not (tmp_path / "pack").exists()
