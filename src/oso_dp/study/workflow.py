"""What has to be in order before Snakemake begins to work on a study."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oso_dp.errors import OsoError
from oso_dp.study.yaml_file import read_yaml, text_of

_DRY_RUN = re.compile("-[a-zA-Z]*n[a-zA-Z]*|--dry-?run")
_LOOKING_ONLY = re.compile("--(unlock|lint|report|dag|summary)")


def begin(
    build: Path,
    store: Path,
    tables: Sequence[str],
    locks: Path,
    arguments: Sequence[str],
    page: Path | None = None,
) -> bool:
    """False if Snakemake's `arguments` only look.

    Else OsoError if another Snakemake works on this study: one of its locks (files of `locks`)
    names something below `build`. And the receipt of a collection, build/collected.txt, goes if the
    store lacks one of its `tables`: what it attests is gone, and is collected again. So goes that
    of the report, build/published.txt, without its `page`.
    """
    if dry_run(arguments) or any(_LOOKING_ONLY.fullmatch(argument) for argument in arguments):
        return False
    # Snakemake refuses, too, but takes six lines to say so.
    if any(f"{build}/" in lock.read_text() for lock in locks.glob("*.lock")):
        raise OsoError(
            f"{build}: another snakemake is at work on this study; wait for it, or, if it was "
            "killed, run `.venv/bin/snakemake --unlock` first"
        )
    if not all((store / f"{name}.parquet").exists() for name in tables):
        (build / "collected.txt").unlink(missing_ok=True)
    if page is not None and not page.exists():
        (build / "published.txt").unlink(missing_ok=True)
    return True


def check_handed_over(
    config: Mapping[str, Any], files: Sequence[Path], overridden: Iterable[str]
) -> None:
    """OsoError unless Snakemake read the configuration's files as `oso plan` would.

    Snakemake takes the last of two equal keys, for one. `overridden`: keys that its --config sets.
    Where files are laid over each other, or a module's user made a configuration of his own, each
    file is looked at by itself.
    """
    read = [(path, read_yaml(text_of(path), str(path))) for path in files]
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


def dry_run(arguments: Sequence[str]) -> bool:
    """Whether Snakemake's arguments ask what would be done."""
    return any(_DRY_RUN.fullmatch(argument) for argument in arguments)
