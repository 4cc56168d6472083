"""The workflow of PATE: what it plans, and that a whole study runs and is accounted for."""

import subprocess
import sys
from pathlib import Path

import pytest

from oso_dp.analysis.pate import account_rows, check_pate_budgets
from oso_dp.results.pate_rows import FILE, read_rows
from oso_dp.snakemake_support.study_lock import StudyLock


@pytest.fixture
def run_pate(repo, tmp_path):
    """Call the workflow in a folder of its own, with the smallest study."""
    config = repo / "config/ci/pate.yaml"

    def run(*arguments: str) -> subprocess.CompletedProcess:
        smk = ("--snakefile", str(repo / "workflow/pate.smk"), "--configfile", str(config))
        call = [Path(sys.executable).with_name("snakemake"), *smk, "--cores", "2", *arguments]
        return subprocess.run(call, cwd=tmp_path, capture_output=True, text=True)

    return run


def planned_jobs(planned: subprocess.CompletedProcess) -> dict[str, int]:
    """How many jobs of each rule a dry run lists."""
    assert planned.returncode == 0, planned.stdout + planned.stderr
    return {
        line.split()[0]: int(line.split()[1])
        for line in planned.stdout.splitlines()
        if line.startswith(("votes ", "label ", "student ", "data "))
    }


def test_pate_dry_run_lists_jobs(run_pate) -> None:
    counts = planned_jobs(run_pate("--dry-run"))
    assert counts == {"data": 1, "votes": 2, "label": 2, "student": 2}


def test_pate_invalid_config_rejected(run_pate) -> None:
    refused = run_pate("--dry-run", "--config", "delta=2")
    assert refused.returncode != 0
    lines = [line for line in refused.stderr.splitlines() if "delta" in line]
    assert len(lines) == 1
    assert "delta: 2; must be less than 1" in lines[0]


def test_pate_equal_keys_rejected(run_pate, repo, tmp_path) -> None:
    text = (repo / "config/ci/pate.yaml").read_text()
    (tmp_path / "twice.yaml").write_text(f"{text}\nseeds: [1]\n")
    refused = run_pate("--dry-run", "--configfile", str(tmp_path / "twice.yaml"))
    assert refused.returncode != 0
    assert "seeds: appears twice" in refused.stderr


def test_pate_damaged_table_rejected(run_pate, tmp_path) -> None:
    table = tmp_path / "build/pate_smoke/results" / FILE
    table.parent.mkdir(parents=True)
    table.write_bytes(b"PAR1")
    refused = run_pate("--dry-run")
    assert refused.returncode != 0
    assert f"{FILE}: not a table of PATE's students" in refused.stderr


def test_pate_locked_study_rejected(run_pate, tmp_path) -> None:
    """While it runs; the lock that a killed one leaves behind is removed."""
    lock = StudyLock(tmp_path / "build/pate_smoke")
    lock.acquire()
    lock.note_host()
    left = tmp_path / ".snakemake/locks/0.output.lock"
    left.parent.mkdir(parents=True)
    left.write_text("build/pate_smoke/collected.txt\nbuild/data/glyphs.npz\n")
    refused = run_pate()
    assert refused.returncode != 0
    assert "another snakemake works on this study" in refused.stderr
    lock.release()
    done = run_pate("build/data/glyphs.npz")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not left.exists()


@pytest.mark.nightly
def test_pate_whole_study_within_budget(run_pate, tmp_path) -> None:
    done = run_pate()
    assert done.returncode == 0, done.stdout + done.stderr
    rows = read_rows(tmp_path / "build/pate_smoke/results" / FILE)
    assert len(rows) == 4
    check_pate_budgets(account_rows(rows))
    again = run_pate()
    assert "Nothing to be done" in again.stdout + again.stderr
    (tmp_path / "build/pate_smoke/results" / FILE).unlink()
    (tmp_path / "it's").mkdir()  # and data elsewhere, whose folder a shell would misread
    again = run_pate("--config", f"data_dir={tmp_path}/it's")
    assert again.returncode == 0, again.stdout + again.stderr
    assert read_rows(tmp_path / "build/pate_smoke/results" / FILE).equals(rows)
    # Another delta needs other noise, and the same teachers.
    assert planned_jobs(run_pate("--dry-run", "--config", "delta=1e-6")) == {
        "label": 2,
        "student": 2,
    }
