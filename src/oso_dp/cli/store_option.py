"""The results folder of a command, as argument or option: `oso report [--results] results`."""

from pathlib import Path
from typing import Annotated

import typer

from oso_dp.errors import OsoError

DEFAULT = Path("results")

ResultsArgument = Annotated[
    Path | None,
    typer.Argument(metavar="[RESULTS]", help=f"Results folder. [{DEFAULT}]", show_default=False),
]
ResultsOption = Annotated[Path | None, typer.Option("--results", help="The same, as an option.")]


def results_folder(argument: Path | None, option: Path | None) -> Path:
    """The folder of the argument or option; OsoError if both are set and differ."""
    if argument is not None and option is not None and argument != option:
        raise OsoError(f"--results: {option}; differs from the argument {argument}; set only one")
    return argument or option or DEFAULT
