"""The bench of practitioners' models: all take turns; a failure is a row with its reason."""

import csv
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).parents[2]


def test_practitioner_rows_have_times_or_reasons(tmp_path: Path) -> None:
    names = ["sgd", "opacus_ghost", "online_seeded"]  # ghost clipping refuses this case's loss
    done = subprocess.run(
        [
            *(sys.executable, "benchmarks/practitioner", "multi_label"),
            *("--competitors", *names, "--turns", "2", "--seconds", "0.01"),
            *("--output", str(tmp_path / "rows.csv")),
        ],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["competitor"] for row in rows] == names
    for row in rows:
        assert bool(row["reason"]) == (row["competitor"] == "opacus_ghost")
        assert row["ms_per_step"] == "" if row["reason"] else float(row["ms_per_step"]) > 0
    assert float(rows[0]["times_sgd"]) == 1.0


def test_practitioner_unknown_case_rejected() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/practitioner", "mlpp"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("practitioner: error: 'mlpp'; cases are mlp_plain, mlp_dropout")
    assert done.stderr.count("\n") == 1
