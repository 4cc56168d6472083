"""The folder of a campaign's results: one part per group of runs, there whole or not at all.

<cohort>.<digest>/        runs.parquet and evaluations.parquet, as `oso collect` takes them
.progress/<cohort>.lock   held while a campaign works on the cohort
.progress/<same>/         of a group at work: its runs, and what run_job keeps to go on from
"""

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from oso_dp.campaign.order import Work
from oso_dp.data.fetch import read_up_to
from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, make_folder, parse_json, reason
from oso_dp.results.read import is_store, read_columns, run_ids
from oso_dp.results.write import write_table
from oso_dp.study.cohort import Cohort, Run
from oso_dp.training.checkpoint import set_aside_if_damaged
from oso_dp.training.job import Rows

_DIGITS = 12  # of a group's digest
_LONGEST = 1 << 20  # bytes; a group of 64 runs takes 2 kB
_TIMES = ["run_id", "dataset", "method", "device", "steps", "status", "wall_seconds"]


def stores_in(folder: Path, cohort: str | None = None) -> list[Path]:
    """A results store itself, or the parts of a campaign; none where there is neither.

    cohort: its name; of a campaign, its parts only.
    """
    names = f"{cohort}.*" if cohort else "[!.]*"
    parts = [path.parent for path in sorted(folder.glob(f"{names}/runs.parquet"))]
    return [folder] if is_store(folder) else parts


def refuse_store(folder: Path) -> None:
    """OsoError for a results store, which is no place for parts."""
    if is_store(folder):
        raise OsoError(f"{folder}: is a results store; name a folder of its own for the parts")


def stored_runs(folder: Path) -> set[str]:
    """Identities of the runs in a results store, or in the parts of a campaign."""
    stores = stores_in(folder)
    if not stores:
        raise OsoError(f"{folder}: holds no results, neither a store nor parts of a campaign")
    return {run_id for store in stores for run_id in run_ids(store)}


class Parts:
    """One campaign's folder; several campaigns may write to it at once."""

    def __init__(self, folder: Path, have: Sequence[Path] = ()) -> None:
        """`have`: folders with runs that need not be trained. OsoError for one without any."""
        refuse_store(folder)
        make_folder(folder)
        self.folder, self.progress = folder, folder / ".progress"
        make_folder(self.progress)
        self.done = {run_id for store in have for run_id in stored_runs(store)}
        self._read: set[Path] = set()
        self._times: list[pd.DataFrame] = []
        self.look()

    def look(self, cohort: str | None = None) -> None:
        """Take in the parts, of this cohort or of all, that have come since the last look."""
        pattern = f"{cohort}.*/runs.parquet" if cohort else "[!.]*/runs.parquet"
        for path in set(self.folder.glob(pattern)) - self._read:
            rows = read_columns(path, "runs", _TIMES)
            self.done |= set(rows["run_id"])
            self._times.append(rows)
            self._read.add(path)

    @property
    def trained(self) -> int:
        """How many runs the parts hold that were seen."""
        return sum(map(len, self._times))

    def measured(self, device: str, everything: Sequence[Work]) -> list[tuple[Cohort, float]]:
        """A cohort for each data set and method that ran on this device, and seconds per step."""
        cohorts = {(w.cohort.dataset, w.cohort.method): w.cohort for w in everything}
        times = pd.concat([pd.DataFrame(columns=_TIMES), *self._times[-1000:]])
        times = times[(times["device"] == device) & (times["wall_seconds"] > 0)]
        times = times[times["status"] == "finished"]
        seconds = (times["wall_seconds"] / times["steps"]).astype(float)
        medians = seconds.groupby([times["dataset"], times["method"]]).median()
        return [(cohorts[name], per_step) for name, per_step in medians.items() if name in cohorts]

    @contextmanager
    def claim(self, cohort: str) -> Iterator[bool]:
        """Whether this cohort is ours alone inside of the block; a kill lets go of it."""
        with open(self.progress / f"{cohort}.lock", "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            except OSError as error:
                raise OsoError(f"{lock.name}: cannot be locked ({reason(error)})") from error
            self.look(cohort)
            yield True

    def started(self, cohort: Cohort) -> list[tuple[Run, ...]]:
        """Groups of this cohort that were begun and not ended. Only while claimed."""
        by_id = {run.run_id: run for run in cohort.runs if run.run_id not in self.done}
        groups = []
        for path in sorted(self.progress.glob(f"{cohort.name}.{'[0-9a-f]' * _DIGITS}/runs.json")):
            if path.parent.is_symlink():  # to somewhere that is not ours to change
                continue
            run_ids: list[str] = []
            with set_aside_if_damaged(path):
                run_ids = _run_ids(path, cohort)
            if run_ids and by_id.keys() >= set(run_ids):
                groups.append(tuple(by_id[run_id] for run_id in run_ids))
            elif self.done & set(run_ids):  # trained meanwhile, perhaps in another group
                shutil.rmtree(path.parent, ignore_errors=True)
        return groups

    def begin(self, cohort: Cohort, group: Sequence[Run]) -> Path:
        """The folder in which this group's progress is kept."""
        folder = self.progress / _name(cohort, group)
        with atomic_write(folder / "runs.json") as file:
            file.write(json.dumps([run.run_id for run in group]).encode())
        return folder

    def has_checkpoint(self, cohort: Cohort, group: Sequence[Run]) -> bool:
        """Whether the group would go on from somewhere, not begin anew."""
        folder = self.progress / _name(cohort, group)
        return any(folder.glob("*.pt"))

    def drop(self, cohort: Cohort, group: Sequence[Run]) -> None:
        """Forget the group's progress."""
        shutil.rmtree(self.progress / _name(cohort, group), ignore_errors=True)

    def write(self, cohort: Cohort, group: Sequence[Run], rows: Rows) -> None:
        """Make the group's part: both tables under a hidden name, then one renaming."""
        part = self.folder / _name(cohort, group)
        hidden = self.folder / f".{part.name}"
        shutil.rmtree(hidden, ignore_errors=True)  # of a campaign that was killed right here
        write_table(hidden / "evaluations.parquet", "evaluations", rows.evaluations)
        write_table(hidden / "runs.parquet", "runs", rows.runs)
        try:
            hidden.rename(part)
        except OSError as error:
            raise OsoError(f"{part}: cannot make this folder ({reason(error)})") from error
        self.drop(cohort, group)
        self.look(cohort.name)


def _name(cohort: Cohort, group: Sequence[Run]) -> str:
    return _named(cohort, [run.run_id for run in group])


def _named(cohort: Cohort, run_ids: Sequence[str]) -> str:
    digest = hashlib.sha256("".join(run_ids).encode()).hexdigest()
    return f"{cohort.name}.{digest[:_DIGITS]}"


def _run_ids(path: Path, cohort: Cohort) -> list[str]:
    """Of a group that was begun. ValueError for what no campaign wrote there."""
    try:
        content = read_up_to(path, _LONGEST)
    except OSError as error:
        raise OsoError(f"{path}: cannot be read ({reason(error)}); remove its folder") from None
    if len(content) > _LONGEST:
        raise ValueError(f"longer than {_LONGEST} bytes")
    run_ids = parse_json(content.decode())
    if not isinstance(run_ids, list) or not all(isinstance(run_id, str) for run_id in run_ids):
        raise ValueError("not a list of runs")
    if not run_ids or len(set(run_ids)) != len(run_ids):
        raise ValueError("no run, or one twice")
    if _named(cohort, run_ids) != path.parent.name:
        raise ValueError("its folder is named after other runs")
    return run_ids
