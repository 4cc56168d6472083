"""`oso publish`: a report into one more folder. The workflow calls it."""

from pathlib import Path
from typing import Annotated

import typer


def publish(
    report: Annotated[Path, typer.Argument(help="Folder that `oso report` wrote.")],
    output: Annotated[Path, typer.Option(help="A new folder, or one of the same results' report.")],
) -> None:
    """Put a report into another folder, in the place of the last one of the same results."""
    from oso_dp.reporting.report_folder import publish as publish_report

    publish_report(report, output)
    print(output / "index.html")
