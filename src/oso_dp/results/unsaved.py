"""Whether a folder that is to be deleted is the only record of runs on private data.

`python -m oso_dp.results.unsaved FOLDER STORE...` (scripts/clean.sh). The epsilon
of such runs is spent; without their rows, the next study would spend it again.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from oso_dp.checkpoint import FINISHED_RUNS, read_finished_runs
from oso_dp.errors import OsoError
from oso_dp.exit_codes import run_command
from oso_dp.files import format_os_error
from oso_dp.results.checks import protected
from oso_dp.results.read import read_table
from oso_dp.results.schema import RUNS

_MEASURED = ["run_id", "step", "split", "value"]
_CHECKOUTS = "campaign/checkouts"  # of commits, by scripts/campaign.sh: their rows are in git
_RECEIPT = "collected.txt"  # what `oso collect` said: the store, then what it holds


def check_no_unsaved_runs(folder: Path, stores: Iterable[Path] = ()) -> None:
    """OsoError names a place in `folder` with runs that no store outside of it holds.

    stores: where they may be, besides those that the folder's receipts of collections name. Looked
    at are results stores, parts and changes under way, at any depth. A file that cannot be read
    counts as such runs.
    """
    files = sorted(_files(folder), key=lambda path: (not _is_in_store(path), path))
    outside = [place for place in [*stores, *_collected(folder)] if not _is_in(place, folder)]
    saved = {run for store in outside for path in _tables(store) for run in _private_runs(path)}
    for path in files:
        place = path.parent.parent if _is_in_store(path) else path.parent
        keep = f"keep it in a store outside this folder: oso collect {place} --store FOLDER"
        if _is_in_store(path):
            keep = "move it out of this folder to FOLDER, and name that under `results`"
        if path.name == FINISHED_RUNS:
            keep = "finish its study, which collects it into a store outside this folder, FOLDER"
        advice = f"nothing was deleted; {keep}, then make clean STORE=FOLDER"
        try:
            lost = _private_runs(path) - saved
        except OsoError as error:
            raise OsoError(
                f"{error}; it may be the only record of runs on private data: "
                f"{advice}, or remove it yourself"
            ) from None
        if lost:
            raise OsoError(
                f"{place}: is the only known record of {len(lost)} runs on private data, whose "
                f"epsilon is spent: {advice}"
            )


def _files(folder: Path) -> Iterator[Path]:
    """Every file below that may hold rows of runs; links are followed, as readers follow them."""
    seen = set()

    def fail(error: OSError) -> None:
        raise OsoError(
            f"{error.filename}: cannot be read ({format_os_error(error)}); nothing was deleted"
        )

    for place, folders, names in os.walk(folder, followlinks=True, onerror=fail):
        real = os.path.realpath(place)
        if real in seen or Path(place) == folder / _CHECKOUTS:
            folders.clear()
            continue
        seen.add(real)
        if os.path.basename(place) != "evaluations.parquet":
            yield from (
                Path(place, name)
                for name in names
                if (name.endswith(".parquet") and name != "evaluations.parquet")
                or name == FINISHED_RUNS
            )


def _is_in_store(path: Path) -> bool:
    """Whether a file is one of a store's table, which is a folder; else it is a part's table."""
    return path.parent.suffix == ".parquet"


def _tables(store: Path) -> list[Path]:
    table = store / "runs.parquet"
    return [table] if table.is_file() else sorted(table.glob("*.parquet"))


def _collected(folder: Path) -> list[Path]:
    """The stores that a study's receipts name."""
    texts = [path.read_text(errors="replace") for path in folder.glob(f"*/{_RECEIPT}")]
    return [Path(text.rpartition(": ")[0]) for text in texts if ": " in text]


def _is_in(path: Path, folder: Path) -> bool:
    """Whether a path is lost with the folder, by its name or by where it leads."""
    named = Path(os.path.abspath(path)).is_relative_to(os.path.abspath(folder))
    return named or Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _private_runs(path: Path) -> set[tuple[str, str]]:
    """Identities, with what was measured: a run that is trained twice is spent twice.

    OsoError for a file that does not tell. Rows of before there was own data say nothing of it.
    """
    try:
        if not path.is_file():
            raise ValueError("no regular file")
        if path.name == FINISHED_RUNS:
            finished = read_finished_runs(path)
            rows = pd.DataFrame(finished["runs"], columns=RUNS.names)
            measured = pd.DataFrame(finished["evaluations"], columns=_MEASURED)
        else:
            rows, beside = read_table(path, "runs"), _evaluations_of(path)
            measured = pd.DataFrame(columns=_MEASURED)
            if beside.exists():
                measured = pq.read_table(beside, columns=_MEASURED).to_pandas()
    except Exception as error:  # a damaged file fails in too many ways to list
        raise OsoError(f"{path}: cannot be read ({type(error).__name__})") from None
    measured = measured.sort_values(_MEASURED)
    runs = {*rows.loc[protected(rows), "run_id"]}
    texts = {run: here.to_csv(index=False) for run, here in measured.groupby("run_id")}
    return {(run, texts.get(run, "")) for run in runs}


def _evaluations_of(path: Path) -> Path:
    """The file beside one of runs, in a part or in a store."""
    if _is_in_store(path):
        return path.parent.with_name("evaluations.parquet") / path.name
    return path.with_name("evaluations.parquet")


if __name__ == "__main__":
    places = [Path(argument) for argument in sys.argv[1:]]
    sys.exit(run_command(lambda: check_no_unsaved_runs(places[0], places[1:])))
