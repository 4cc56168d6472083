"""The bench of practitioners' models: all take turns; a failure is a row with its reason."""

import csv
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).parents[2]


def test_practitioner_rows_have_times_or_reasons(tmp_path: Path) -> None:
    names = ["sgd", "opacus_hooks", "fixed_threshold", "online_seeded"]
    done = subprocess.run(
        [
            *(sys.executable, "benchmarks/practitioner", "mlp_frozen_body", "bias_only"),
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
    assert [row["competitor"] for row in rows] == names * 2
    for row in rows:
        assert bool(row["reason"]) == (row["ms_per_step"] == "")
        assert row["reason"] or float(row["ms_per_step"]) > 0
    ours = [row for row in rows if not row["competitor"].startswith("opacus")]
    assert not any(row["reason"] for row in ours)
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
