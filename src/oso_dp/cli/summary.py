"""`oso summary`: stored results in a terminal."""

from pathlib import Path
from typing import Annotated

import typer


def summary(
    results: Annotated[Path, typer.Option(help="Results folder.")] = Path("results"),
    report: Annotated[Path | None, typer.Option(help="Page to point to.")] = None,
) -> None:
    """Print what came out, as a table."""
    from rich.console import Console

    from oso_dp.reporting.summary import summary_table

    Console().print(summary_table(results))
    if report is not None:
        print(f"Report: {report}")
