"""A campaign's folder: one shard for each finished group of runs, complete or absent.

<cohort>.<digest>/            runs.parquet and evaluations.parquet, as `oso collect` takes them
.progress/<cohort>.lock       held by the process that trains this cohort
.progress/<cohort>.<digest>/  of a group in training: its runs and its checkpoints
"""

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from oso_dp.checkpoint import FINISHED_RUNS, quarantine_if_corrupt, read_finished_runs
from oso_dp.data.download import read_up_to
from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, format_os_error, make_folder, parse_json
from oso_dp.locks import try_lock
from oso_dp.results.read import is_store, read_columns, run_ids
from oso_dp.results.write import write_table
from oso_dp.study.cohort import Cohort, Run
from oso_dp.training.job import ResultRows

Group = tuple[Run, ...]
DIGEST = "[0-9a-f]" * 12  # a pattern
MAX_LIST_BYTES = 1 << 20  # of a group's runs.json; 64 runs take 2 kB
_COLUMNS = ["run_id", "dataset", "model", "method", "device", "steps", "status", "wall_seconds"]


def list_stores(folder: Path, names: str = "[!.]*") -> list[Path]:
    """A results store itself, or the shards of these names in a campaign's folder."""
    shards = [path.parent for path in sorted(folder.glob(f"{names}/runs.parquet"))]
    return [folder] if is_store(folder) else shards


class ShardStore:
    """A campaign's folder. Several processes may write to it at once.

    `done`: the run_ids in its shards and in `existing` (results stores, other campaigns' folders).
    `runs`: the rows of the shards.
    """

    def __init__(self, folder: Path, existing: Sequence[Path] = ()) -> None:
        if is_store(folder):
            raise OsoError(
                f"--results: {folder}; must not be a results store; choose another folder"
            )
        self.folder, self.progress = folder, folder / ".progress"
        make_folder(self.progress)
        self.done: set[str] = set()
        for other in existing:
            if not (stores := list_stores(other)):
                raise OsoError(
                    f"--existing: {other}; has no results; must be a store or have shards"
                )
            self.done.update(run_id for store in stores for run_id in run_ids(store))
        self.runs = pd.DataFrame(columns=_COLUMNS)
        self._read: set[Path] = set()
        self.refresh()

    def refresh(self, names: str = "[!.]*") -> None:
        """Read the shards that are new, also those of other processes."""
        new = sorted({*self.folder.glob(f"{names}/runs.parquet")} - self._read)
        if new:
            rows = [read_columns(path, "runs", _COLUMNS) for path in new]
            known = [self.runs] if len(self.runs) else []
            self.runs = pd.concat([*known, *rows], ignore_index=True)
            self.done.update(self.runs["run_id"])
            self._read.update(new)

    def is_status_due(self, seconds: float) -> bool:
        """Whether no process of the folder has reported for so long; True for one of them."""
        mark = self.progress / "status"
        try:
            passed = time.monotonic() - float(mark.read_text())
        except (OSError, ValueError):
            passed = seconds
        is_due = not 0 <= passed < seconds  # below 0: the machine was started again
        if is_due:
            mark.write_text(repr(time.monotonic()))
        return is_due

    @contextmanager
    def claim(self, cohort: str) -> Iterator[bool]:
        """Whether this process holds the cohort's lock inside of the block; a kill releases it."""
        held = try_lock(self.progress / f"{cohort}.lock")
        if held is None:
            yield False
            return
        try:
            self.refresh(f"{cohort}.{DIGEST}")
            yield True
        finally:
            held.release()

    def list_started(self, cohort: Cohort) -> list[Group]:
        """The cohort's groups that were started and not finished; the cohort must be claimed."""
        missing = {run.run_id: run for run in cohort.runs if run.run_id not in self.done}
        groups = []
        for path in sorted(self.progress.glob(f"{cohort.name}.{DIGEST}/runs.json")):
            if path.parent.is_symlink():  # its target is not the campaign's
                continue
            run_ids: list[str] = []
            with quarantine_if_corrupt(path):
                run_ids = _read_run_ids(path)
            if run_ids and missing.keys() >= {*run_ids}:
                groups.append(tuple(missing[run_id] for run_id in run_ids))
            elif self.done & {*run_ids}:  # finished, perhaps as part of another group
                remove_unless_spent(path.parent, cohort)
        return groups

    def list_finished_runs(self) -> list[Path]:
        """The checkpoints of started groups that have finished runs."""
        return sorted(self.progress.glob(f"*.{DIGEST}/{FINISHED_RUNS}"))

    def start(self, cohort: Cohort, group: Group) -> Path:
        """The folder for the group's checkpoints."""
        folder = self.progress / f"{cohort.name}.{_digest([run.run_id for run in group])}"
        with atomic_write(folder / "runs.json") as file:
            file.write(json.dumps([run.run_id for run in group]).encode())
        return folder

    def finish(self, checkpoints: Path, rows: ResultRows) -> None:
        """Write a started group's shard: both tables in a hidden folder, then one renaming."""
        shard, hidden = self.folder / checkpoints.name, self.folder / f".{checkpoints.name}"
        shutil.rmtree(hidden, ignore_errors=True)  # left by a killed process
        write_table(hidden / "evaluations.parquet", "evaluations", rows.evaluations)
        write_table(hidden / "runs.parquet", "runs", rows.runs)
        try:
            hidden.rename(shard)
        except OSError as error:
            raise OsoError(
                f"{shard}: cannot make this folder ({format_os_error(error)})"
            ) from error
        shutil.rmtree(checkpoints, ignore_errors=True)
        self.refresh(shard.name)


def remove_unless_spent(checkpoints: Path, cohort: Cohort) -> bool:
    """Remove a group's checkpoints, unless they have finished runs on private data.

    The epsilon of such runs is spent, also if the group cannot be finished.
    """
    if not cohort.is_public and read_finished_runs(checkpoints / FINISHED_RUNS)["runs"]:
        return False
    shutil.rmtree(checkpoints, ignore_errors=True)
    return True


def _digest(run_ids: Sequence[str]) -> str:
    return hashlib.sha256("".join(run_ids).encode()).hexdigest()[:12]


def _read_run_ids(path: Path) -> list[str]:
    """Run ids of a started group; an error other than OsoError marks the file as corrupt."""
    try:
        run_ids: list[str] = parse_json(read_up_to(path, MAX_LIST_BYTES).decode())
    except OSError as error:
        raise OsoError(
            f"{path}: cannot be read ({format_os_error(error)}); remove its folder"
        ) from None
    if path.parent.name.rpartition(".")[2] != _digest(run_ids):
        raise ValueError("its folder has another group's name")
    return run_ids
