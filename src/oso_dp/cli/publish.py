"""`oso publish`: copy a report to another folder. The workflow calls it."""

from pathlib import Path
from typing import Annotated

import typer


def publish(
    report: Annotated[Path, typer.Argument(help="Output folder of `oso report`.")],
    output: Annotated[
        Path, typer.Option(help="A new folder, or one with a report of the same results.")
    ],
) -> None:
    """Copy a report to another folder, replacing an earlier report of the same results."""
    from oso_dp.reporting.report_folder import publish as publish_report

    publish_report(report, output)
    print(output / "index.html")
