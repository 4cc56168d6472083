"""What has to be in order before Snakemake begins to work on a study."""

import re
from collections.abc import Sequence
from pathlib import Path

from oso_dp.errors import OsoError

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


def dry_run(arguments: Sequence[str]) -> bool:
    """Whether Snakemake's arguments ask what would be done."""
    return any(_DRY_RUN.fullmatch(argument) for argument in arguments)
