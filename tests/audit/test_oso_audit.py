"""`oso audit`: its table, its file, its exit status."""

import csv
import sys
from pathlib import Path

import pytest
import typer
from tests.audit.faults import FAULTS
from tests.audit.opacus_faults import FAULTS as OPACUS_FAULTS
from typer.testing import CliRunner

from oso_dp.audit import run_audit
from oso_dp.audit.run_audit import AuditFinding
from oso_dp.cli.audit import audit
from oso_dp.errors import OsoError


def finding(fault: str | None, bound: float) -> AuditFinding:
    return AuditFinding("online", fault, 1e-5, 2.0, bound, bound, 2.0, 0.0, 4000, 32, 9, 4, 1.5)


@pytest.fixture
def oso(monkeypatch):
    """The command, with these findings in place of an audit; and what the audit was asked for."""

    monkeypatch.setattr(sys, "path", list(sys.path))  # a command with --faults adds to it

    def run(found: list[AuditFinding], *arguments: str):
        asked: dict = {}

        def fake(methods, faults, runs, *, seed, workers, mode, model):
            asked.update(methods=methods, faults=[fault.name for fault in faults])
            asked.update(runs=runs, seed=seed, workers=workers, mode=mode, model=model)
            return (one for one in found)

        monkeypatch.setattr(run_audit, "run_audit", fake)
        app = typer.Typer()
        app.command()(audit)
        return CliRunner().invoke(app, arguments), asked

    return run


def test_oso_audit_expected_verdicts_exit_zero(oso, tmp_path: Path) -> None:
    path = tmp_path / "new" / "audit.csv"
    done, asked = oso(
        [finding(None, 0.5), finding("no_clip", 3.0)], "--faults", "--output", str(path)
    )
    assert done.exit_code == 0, done.output
    names = ["adam_wosm", "fixed_quantile", "fixed_threshold", "online"]
    assert asked["methods"] == names
    assert asked["faults"] == list(FAULTS)
    assert "no_clip" in done.stdout
    assert "…" not in done.stdout  # fits a terminal of 80 columns
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [(row["fault"], row["one_run_bound"], row["verdict"]) for row in rows] == [
        ("", "0.5", "holds"),
        ("no_clip", "3.0", "seen"),
    ]


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (finding(None, 2.5), "online, right code: REFUTED"),
        (finding("no_clip", 1.0), "online, no_clip: NOT SEEN"),
    ],
)
def test_oso_audit_wrong_verdict_exits_one(
    oso, tmp_path: Path, wrong: AuditFinding, line: str
) -> None:
    path = tmp_path / "audit.csv"
    done, _ = oso([finding(None, 0.5), wrong], "--faults", "--output", str(path))
    assert done.exit_code == 1
    assert f"oso: audit: {line}" in done.stderr.splitlines()
    assert len(list(csv.DictReader(path.read_text().splitlines()))) == 2


def test_oso_audit_options_reach_run_audit(oso) -> None:
    done, asked = oso(
        [finding(None, 0.5)],
        *("--method", "online", "--method", "adam_wosm", "--no-faults", "--runs", "7"),
        *("--seed", "3", "--workers", "4", "--model", "tied"),
    )
    assert done.exit_code == 0, done.output
    assert asked == {
        "methods": ["online", "adam_wosm"],
        "faults": [],
        "runs": 7,
        "seed": 3,
        "workers": 4,
        "mode": "",
        "model": "tied",
    }


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["--model", "cnn"],
            "--model: 'cnn'; must be one of linear, dropout, tied, augmentations, users",
        ),
        (["--model", "tied", "--opacus", "ghost"], "'tied'; must be linear with --opacus"),
    ],
)
def test_oso_audit_unsupported_model_raises(oso, options, line) -> None:
    refused, asked = oso([finding(None, 0.5)], *options)
    assert isinstance(refused.exception, OsoError)
    assert line in str(refused.exception)
    assert asked == {}


def test_oso_audit_opacus_selects_own_faults(oso) -> None:
    done, asked = oso([finding(None, 0.5)], "--opacus", "ghost", "--faults")
    assert done.exit_code == 0, done.output
    assert asked["mode"] == "ghost"
    assert asked["methods"] == ["online", "fixed_quantile", "auto_s"]
    assert asked["faults"] == list(OPACUS_FAULTS)
    refused, asked = oso([finding(None, 0.5)], "--opacus", "fast")
    assert isinstance(refused.exception, OsoError)
    assert "must be one of hooks, functorch, ghost" in str(refused.exception)
    assert asked == {}
