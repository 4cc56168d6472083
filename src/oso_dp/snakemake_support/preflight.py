"""Preflight checks: what must hold before Snakemake starts the jobs of a study."""

import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from oso_dp.errors import OsoError
from oso_dp.output_paths import check_folder
from oso_dp.snakemake_support.study_lock import StudyLock, is_locked
from oso_dp.study.strict_yaml import read_text, read_yaml

_TABLES = ("runs.parquet", "evaluations.parquet")  # of a store
_DRY_RUN = re.compile("-[a-zA-Z]*n[a-zA-Z]*|--dry-?run")
_READ_ONLY = re.compile(
    "-[lSD]|--(unlock|lint|report|(d3)?dag|(rule|file)graph|(detailed-)?summary|list(-[a-z-]+)?)(=.*)?"
)


def check_before_start(
    build: Path,
    locks: Path,
    arguments: Sequence[str],
    page: Path | None = None,
    is_stored: bool = True,
) -> StudyLock | None:
    """Acquire the study's lock; None if Snakemake's `arguments` start no job.

    Removes the Snakemake locks (files in `locks`) that a killed Snakemake left on this machine, of
    this study or of another one: studies share their data. Removes build/collected.txt unless all
    planned runs are stored (`is_stored`), and build/published.txt if `page` is missing: Snakemake
    makes these again.

    OsoError if another Snakemake works on this study.
    """
    if is_read_only(arguments):
        return None
    lock = StudyLock(build)
    lock.acquire()
    # Snakemake would refuse as well, in six lines.
    named = _read_files(locks.glob("*.lock"))
    stale = [path for path, files in named.items() if f"{build}/" in files]
    if stale and lock.last_host != platform.node():
        lock.release()
        raise OsoError(
            f"{build}: locked by a snakemake on {lock.last_host or 'another machine'}; wait for "
            "it, or, if it was killed, run `.venv/bin/snakemake --unlock` first"
        )
    stale += [path for path, files in named.items() if _have_ended(files, build.parent)]
    for path in stale:  # the study's lock was free, so their process has ended
        path.unlink(missing_ok=True)
    lock.note_host()
    if not is_stored:
        (build / "collected.txt").unlink(missing_ok=True)
    if page is not None and not page.exists():
        (build / "published.txt").unlink(missing_ok=True)
    return lock


def _read_files(paths: Iterable[Path]) -> dict[Path, str]:
    """The texts of those that are still there: another study may end, and remove its locks."""
    texts = {}
    for path in paths:
        with suppress(FileNotFoundError):
            texts[path] = path.read_text()
    return texts


def _have_ended(files: str, builds: Path) -> bool:
    """Whether all studies of these files, one in each line, have ended on this machine."""
    folders = {
        builds.joinpath(*Path(line).relative_to(builds).parts[:1])
        for line in files.splitlines()
        if line.startswith(f"{builds}/")
    }
    locks = [lock for lock in map(StudyLock, folders) if lock.path.exists()]  # build/data has none
    return bool(locks) and all(
        lock.last_host == platform.node() and not is_locked(lock.path) for lock in locks
    )


def check_handed_over(
    config: Mapping[str, Any], files: Sequence[Path], overridden: Iterable[str]
) -> None:
    """OsoError unless Snakemake read the configuration file as `oso plan` reads it.

    Snakemake keeps the last of two equal keys, for example. With several files, or a configuration
    that a module's user made, only the syntax of each file is checked.

    overridden: keys that Snakemake's --config sets.
    """
    read = [(path, read_yaml(read_text(path), str(path))) for path in files]
    if len(read) != 1:
        return
    ((path, values),) = read
    if not isinstance(values, dict) or values.keys() != config.keys() - set(overridden):
        return
    for name in values.keys() - set(overridden):
        if values[name] != config[name]:
            raise OsoError(
                f"{path}: {name}: read as {config[name]!r} by Snakemake and {values[name]!r} by "
                "oso; write it in plain YAML"
            )


def check_folders(build: Path, results: Path, report: Path) -> None:
    """OsoError unless `results` and `report` are usable, disjoint from each other and `build`.

    The study writes to its working folder `build`, and a report replaces its folder.
    """
    check_folder(results, "results")
    check_folder(report, "report")
    outputs = ("parts", "logs", "report", "benchmarks", "plan.json")
    working = [*(build / name for name in outputs), build.parent / "data", Path(".snakemake")]
    tables = [results / name for name in _TABLES]
    for key, folder, places in (
        ("results", results, working),
        ("report", report, [*working, *tables]),
    ):
        for place in places:
            if _is_below(folder, place):
                raise OsoError(
                    f"{key}: {folder}; must not be in {place}, where the study writes other files; "
                    "choose another folder"
                )
    for place in (results, *working):
        if _is_below(place, report):
            raise OsoError(
                f"report: {report}; must not contain {place}, which is not part of a report; "
                "choose another folder"
            )


def _is_below(path: Path, folder: Path) -> bool:
    """Whether a path is this folder or is inside it."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def is_dry_run(arguments: Sequence[str]) -> bool:
    """Whether Snakemake's arguments request a dry run."""
    return any(_DRY_RUN.fullmatch(argument) for argument in arguments)


def is_read_only(arguments: Sequence[str]) -> bool:
    """Whether Snakemake's arguments start no job."""
    return is_dry_run(arguments) or any(_READ_ONLY.fullmatch(one) for one in arguments)
