"""`oso summary`: stored results as a table in the terminal."""

from pathlib import Path
from typing import Annotated

import typer

from oso_dp.cli.shared_options import ResultsArgument, ResultsOption, results_folder


def summary(
    folder: ResultsArgument = None,
    results_option: ResultsOption = None,
    report: Annotated[
        Path | None, typer.Option(help="Path of a report to print below the table.")
    ] = None,
) -> None:
    """Print a table of the stored results."""
    from rich.console import Console

    from oso_dp.reporting.summary import summary_table

    Console().print(summary_table(results_folder(folder, results_option)))
    if report is not None:
        print(f"Report: {report}")
