"""What has to be in order before Snakemake begins to work on a study."""

import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oso_dp.errors import OsoError
from oso_dp.output_paths import check_folder
from oso_dp.snakemake_support.study_lock import StudyLock
from oso_dp.study.strict_yaml import read_text, read_yaml

_TABLES = ("runs.parquet", "evaluations.parquet")  # of a store
_DRY_RUN = re.compile("-[a-zA-Z]*n[a-zA-Z]*|--dry-?run")
_LOOKING_ONLY = re.compile(
    "-[lSD]|--(unlock|lint|report|(d3)?dag|(rule|file)graph|(detailed-)?summary|list(-[a-z-]+)?)(=.*)?"
)


def check_before_start(
    build: Path,
    store: Path,
    locks: Path,
    arguments: Sequence[str],
    page: Path | None = None,
) -> StudyLock | None:
    """Who leads the study's jobs from now on; None if Snakemake's `arguments` only look.

    OsoError if another Snakemake works on this study. What a killed one left of its locks (files of
    `locks` that name something below `build`) goes, if that was on this machine. And the receipt of
    a collection, build/collected.txt, goes if the store lacks one of its tables: what it attests
    is gone, and is collected again. So goes that of the report, build/published.txt, without its
    `page`.
    """
    if is_read_only(arguments):
        return None
    leader = StudyLock(build)
    leader.acquire()
    # Snakemake refuses, too, but takes six lines to say so.
    left = [lock for lock in locks.glob("*.lock") if f"{build}/" in lock.read_text()]
    if left and leader.last_host != platform.node():
        leader.release()
        raise OsoError(
            f"{build}: a snakemake on {leader.last_host or 'another machine'} is at work on this "
            "study, or was killed there; wait for it, or, if it was, run `.venv/bin/snakemake "
            "--unlock` first"
        )
    for lock in left:  # nobody leads, so its process is gone
        lock.unlink()
    leader.note_host()
    if not all((store / name).exists() for name in _TABLES):
        (build / "collected.txt").unlink(missing_ok=True)
    if page is not None and not page.exists():
        (build / "published.txt").unlink(missing_ok=True)
    return leader


def check_handed_over(
    config: Mapping[str, Any], files: Sequence[Path], overridden: Iterable[str]
) -> None:
    """OsoError unless Snakemake read the configuration's files as `oso plan` would.

    Snakemake takes the last of two equal keys, for one. `overridden`: keys that its --config sets.
    Where files are laid over each other, or a module's user made a configuration of his own, each
    file is looked at by itself.
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
                f"{path}: {name}: Snakemake reads {config[name]!r}, oso {values[name]!r}; write it "
                "in plain YAML"
            )


def check_folders(build: Path, results: Path, report: Path) -> None:
    """OsoError unless the folders of `results` and `report` can be one, and stay the study's own.

    What the study writes into its working folder `build` is no place for either, and a report
    replaces nothing else: so its folder holds neither of them.
    """
    check_folder(results, "results")
    check_folder(report, "report")
    made = ("parts", "logs", "report", "benchmarks", "plan.json")
    working = [*(build / name for name in made), build.parent / "data", Path(".snakemake")]
    tables = [results / name for name in _TABLES]
    for named, folder, places in (
        ("results", results, working),
        ("report", report, [*working, *tables]),
    ):
        for place in places:
            if _is_below(folder, place):
                raise OsoError(
                    f"{named} {folder}: the study writes other files to {place}; name another "
                    f"folder under `{named}`"
                )
    for place in (results, *working):
        if _is_below(place, report):
            raise OsoError(
                f"report {report}: holds {place}, which is no part of a report; name another "
                "folder under `report`"
            )


def _is_below(path: Path, folder: Path) -> bool:
    """Whether a path is this folder, or lies in it."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def is_dry_run(arguments: Sequence[str]) -> bool:
    """Whether Snakemake's arguments ask what would be done."""
    return any(_DRY_RUN.fullmatch(argument) for argument in arguments)


def is_read_only(arguments: Sequence[str]) -> bool:
    """Whether Snakemake's arguments start no job."""
    return is_dry_run(arguments) or any(_LOOKING_ONLY.fullmatch(one) for one in arguments)
