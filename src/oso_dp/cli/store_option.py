"""Which results a command reads: `oso report results` and `oso report --results results`."""

from pathlib import Path
from typing import Annotated

import typer

from oso_dp.errors import OsoError

DEFAULT = Path("results")

ResultsArgument = Annotated[
    Path | None,
    typer.Argument(metavar="[RESULTS]", help=f"Results folder. [{DEFAULT}]", show_default=False),
]
ResultsOption = Annotated[Path | None, typer.Option("--results", help="The same, by its name.")]


def results_folder(argument: Path | None, option: Path | None) -> Path:
    """The folder that is meant; OsoError for two."""
    if argument is not None and option is not None and argument != option:
        raise OsoError(f"--results {option}: {argument} is named, too; name one folder")
    return argument or option or DEFAULT
