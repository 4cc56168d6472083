"""`oso report`: tables, figures and a page from stored results."""

from pathlib import Path
from typing import Annotated

import typer

from oso_dp.cli.shared_options import ResultsArgument, ResultsOption, results_folder


def report(
    folder: ResultsArgument = None,
    results_option: ResultsOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for tables, figures and page: a new one, or one with a report of the same "
            "results, which is replaced. [RESULTS-report]"
        ),
    ] = None,
    plan: Annotated[
        list[Path] | None,
        typer.Option(
            help="Plan with grid sizes and noise; may be repeated [RESULTS/plan.json if present]."
        ),
    ] = None,
) -> None:
    """Make tables, figures and index.html from a results folder."""
    from oso_dp.reporting.page.build import build_report
    from oso_dp.reporting.report_folder import default_folder
    from oso_dp.study.plan import find_plans

    results = results_folder(folder, results_option)
    print(build_report(results, output or default_folder(results), find_plans(results, plan)))
