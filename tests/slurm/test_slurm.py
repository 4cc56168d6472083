"""The smallest study through the Slurm profile, on a real Slurm of one node.

`make test-slurm` runs it, and continuous integration its short form: OSO_TEST_SLURM=1 or =short.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from tests.slurm import cluster

from oso_dp.results.read import read_results

FORM = os.environ.get("OSO_TEST_SLURM", "")
BIN = Path(sys.executable).parent
# What says when, where and how fast, not what came out.
TIMES = ["wall_seconds"]

pytestmark = pytest.mark.skipif(not FORM, reason="a real Slurm is asked for by OSO_TEST_SLURM=1")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory) -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands work."""
    cluster.install()
    if reason := cluster.missing():
        pytest.fail(f"OSO_TEST_SLURM={FORM}, but {reason}", pytrace=False)
    with cluster.running(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture
def snakemake(repo, tmp_path, slurm):
    """Start the smallest study in an empty folder, through the profile or on this machine."""

    def start(folder: str, *arguments: str, local: bool = False) -> subprocess.Popen[bytes]:
        (tmp_path / folder).mkdir()
        cluster_options = [
            "--profile", str(repo / "workflow/profiles/slurm"),
            "--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "5",
        ]  # fmt: skip
        with (tmp_path / f"{folder}.log").open("wb") as log:
            return subprocess.Popen(
                [str(BIN / "snakemake"), *arguments, "--snakefile", str(repo / "Snakefile"),
                 *(["--cores", "2"] if local else cluster_options),
                 "--directory", str(tmp_path / folder),
                 "--configfile", str(repo / "config/ci/smoke.yaml")],
                env=os.environ | slurm, stdout=log, stderr=log,
            )  # fmt: skip

    return start


class Watched:
    """What is seen of the jobs that train while a study runs; `cancelled`: one of them, once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gpus: dict[str, str] = {}  # a job's CUDA_VISIBLE_DEVICES, by its number
        self.cancelled: str | None = None

    def until_the_end(self, process: subprocess.Popen[bytes], slurm, cancel: bool) -> str:
        """What Snakemake printed."""
        while process.poll() is None:
            self._look()
            if cancel and self.cancelled is None and self.gpus:
                self.cancelled = max(self.gpus, key=int)
                subprocess.run(["scancel", self.cancelled], env=os.environ | slurm, check=True)
            time.sleep(0.05)
        return self.folder.with_name(f"{self.folder.name}.log").read_text()

    def _look(self) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                if b"train" not in words or (process / "cwd").readlink() != self.folder:
                    continue
                pairs = (process / "environ").read_bytes().decode().split("\0")
            except OSError:  # it has ended
                continue
            have = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            if "SLURM_JOB_ID" in have:
                self.gpus[have["SLURM_JOB_ID"]] = have.get("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.skipif(FORM == "short", reason="OSO_TEST_SLURM=short")
def test_slurm_killed_jobs_match_local_run(snakemake, slurm, tmp_path) -> None:
    process = snakemake(
        "cluster", "--until", "collect",
        "--set-resources", "train:gpu=1", "train:mem_mb=340 * attempt ** 2",
    )  # fmt: skip
    seen = Watched(tmp_path / "cluster")
    output = seen.until_the_end(process, slurm, cancel=True)
    assert process.returncode == 0, output
    alone = snakemake("alone", "--until", "collect", local=True)
    assert alone.wait() == 0
    ours, theirs = (read_results(tmp_path / name / "build/smoke/results") for name in
                    ("cluster", "alone"))  # fmt: skip
    pd.testing.assert_frame_equal(ours.evaluations, theirs.evaluations)
    pd.testing.assert_frame_equal(ours.runs.drop(columns=TIMES), theirs.runs.drop(columns=TIMES))
    assert output.count("Trying to restart job") >= 2
    said = {path.stem: path.read_text() for path in
            (tmp_path / "cluster/.snakemake/slurm_logs/rule_train").rglob("*.log")}  # fmt: skip
    assert "CANCELLED AT" in said[seen.cancelled]
    assert any("exceeded memory limit" in text for text in said.values())
    assert {*seen.gpus.values()} <= {"0", "1"}


def test_slurm_two_jobs_finish(snakemake, slurm, tmp_path) -> None:
    part = "build/smoke/parts/glyphs.online.k2.eps3/shard0/runs.parquet"
    process = snakemake("short", part, "--set-resources", "train:gpu=1")
    seen = Watched(tmp_path / "short")
    output = seen.until_the_end(process, slurm, cancel=False)
    assert process.returncode == 0, output
    assert output.count("has been submitted with SLURM jobid") == 2
    assert len(seen.gpus) == 1
    assert {*seen.gpus.values()} <= {"0", "1"}
    assert (tmp_path / "short" / part).exists()
