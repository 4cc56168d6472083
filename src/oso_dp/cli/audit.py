"""`oso audit`: an empirical privacy audit with canaries. Imports are deferred to the command."""

from __future__ import annotations

import csv
import importlib
import io
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oso_dp.errors import OsoError
from oso_dp.option_types import MAX_AT_ONCE

if TYPE_CHECKING:
    from rich.table import Table

    from oso_dp.audit.run_audit import AuditFinding, Fault


def audit(
    method: Annotated[
        list[str] | None,
        typer.Option(help="Method to audit; may be repeated [the paper's methods]."),
    ] = None,
    faults: Annotated[
        bool,
        typer.Option(help="Also audit planted faults, which must be detected; in a checkout only."),
    ] = False,
    runs: Annotated[
        int, typer.Option(min=1, help="Number of runs with the canary, and of runs without.")
    ] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    workers: Annotated[
        int, typer.Option(min=1, max=MAX_AT_ONCE, help="Number of processes, of one core each.")
    ] = 2,
    output: Annotated[
        Path | None, typer.Option(help="Also write the findings to this CSV file.")
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="Model to train: linear, dropout, tied (weights), augmentations or users."
        ),
    ] = "linear",
    opacus: Annotated[
        str, typer.Option(help="Audit the Opacus drop-in, in this mode: hooks, functorch or ghost.")
    ] = "",
) -> None:
    """Bound epsilon from below with canaries.

    The exit status is 1 if a claimed epsilon is refuted or a planted fault is not detected. Takes
    some minutes on two cores.
    """
    import torch
    from rich.console import Console

    from oso_dp.audit.models import MODELS
    from oso_dp.audit.opacus_backend import check_mode, make_engines
    from oso_dp.audit.run_audit import private_methods
    from oso_dp.audit.run_audit import run_audit as findings_of
    from oso_dp.files import atomic_write
    from oso_dp.output_paths import check_output, is_table

    if output is not None:
        # Check the output before minutes of work.
        check_output(output, "a table of findings", is_table(["method", "fault", "delta"]))
    if model not in MODELS:
        raise OsoError(f"--model: {model!r}; must be one of {', '.join(MODELS)}")
    if opacus:
        check_mode(opacus)
        if model != "linear":
            raise OsoError(f"--model: {model!r}; must be linear with --opacus")
    planted = _faults("opacus_faults" if opacus else "faults") if faults else {}
    torch.set_num_threads(1)  # tensors are small: more threads are slower
    findings = []
    audited = findings_of(
        method or (list(make_engines()) if opacus else private_methods()),
        planted.values(),
        runs,
        seed=seed,
        workers=workers,
        mode=opacus,
        model=model,
    )
    with closing(audited):  # ends the workers, too
        for finding in audited:
            findings.append(finding)
            code = planted[finding.fault].description if finding.fault else "correct code"
            text = f"{finding.method}, {code}: {finding.verdict} ({finding.seconds:.1f} s)"
            print(text, file=sys.stderr, flush=True)
    if output is not None:
        with atomic_write(output) as file:
            file.write(_csv(findings).encode())
    Console().print(_table(findings))
    unexpected = [finding for finding in findings if not finding.as_expected]
    for finding in unexpected:
        print(
            f"oso: audit: {finding.method}, {finding.fault or 'right code'}: {finding.verdict}",
            file=sys.stderr,
        )
    if unexpected:
        raise typer.Exit(1)


def _faults(module: str) -> dict[str, Fault]:
    """The planted faults of the project's tests, by name.

    The folder stays on `sys.path`, since the worker processes import from it, too.
    """
    sys.path.insert(0, str(Path.cwd()))
    try:
        faults: dict[str, Fault] = importlib.import_module(f"tests.audit.{module}").FAULTS
    except ImportError:
        raise OsoError(
            f"--faults: no tests/audit/{module}.py in {Path.cwd()}; run this in a checkout of the "
            "repository"
        ) from None
    return faults


def _csv(findings: list[AuditFinding]) -> str:
    rows = [{**asdict(finding), "verdict": finding.verdict} for finding in findings]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _table(findings: list[AuditFinding]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=f"ε at δ = {findings[0].delta:g}: the ledger's claim, and bounds from below",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("code", no_wrap=True)
    for name in ("claim", "one\nrun", "Gaussian", "claim", "many\nruns"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for finding in findings:
        if finding.fault is None:
            table.add_section()
        values = (
            finding.one_run_claimed,
            finding.one_run_bound,
            finding.one_run_gaussian_bound,
            finding.many_runs_claimed,
            finding.many_runs_bound,
        )
        table.add_row(
            finding.method if finding.fault is None else f"  {finding.fault}",
            *(f"{value:.2f}" for value in values),
            finding.verdict,
            style="" if finding.as_expected else "bold red",
        )
    return table
