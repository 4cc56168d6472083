"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from oso_dp.errors import OsoError
from oso_dp.option_types import MAX_AT_ONCE

PlanFile = Annotated[Path, typer.Option(help="Plan file, from `oso plan --output`.")]
TrainedCohort = Annotated[str, typer.Option(help="Cohort whose run is trained.")]
DataFile = Annotated[Path, typer.Option(help="Data file, from `oso data`.")]
SharedOutput = Annotated[
    Path, typer.Option(help="CSV file to write; its rows of other runs are kept.")
]
InitialLearningRate = Annotated[
    float | None, typer.Option(help="Initial learning rate of the run [the cohort's first run].")
]
Threads = Annotated[int, typer.Option(min=1, max=MAX_AT_ONCE, help="CPU threads.")]

DEFAULT_STORE = Path("results")

ResultsArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[RESULTS]", help=f"Results folder. [{DEFAULT_STORE}]", show_default=False
    ),
]
ResultsOption = Annotated[Path | None, typer.Option("--results", help="The same, as an option.")]


def results_folder(argument: Path | None, option: Path | None) -> Path:
    """The folder of the argument or option; OsoError if both are set and differ."""
    if argument is not None and option is not None and argument != option:
        raise OsoError(f"--results: {option}; differs from the argument {argument}; set only one")
    return argument or option or DEFAULT_STORE
