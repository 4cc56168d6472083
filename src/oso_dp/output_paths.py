"""Checks of output paths: a command must not overwrite its inputs or other kinds of files."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from oso_dp.errors import OsoError
from oso_dp.files import format_os_error, make_folder

_HEAD = 65_536  # bytes read to recognise a file's kind


def check_output(
    path: Path,
    kind: str,
    is_kind: Callable[[Path], bool],
    inputs: Iterable[Path] = (),
    option: str = "--output",
) -> None:
    """Check an output file before any work, and create its folder.

    OsoError if the path is one of `inputs` (also by another name), exists and is not of this kind,
    or its folder is not writable.
    """
    named = f"{option} {path}".strip()
    for other in inputs:
        if os.path.realpath(path) == os.path.realpath(other) or _same(path, other):
            raise OsoError(f"{named}: is also an input; use another file")
    if os.path.lexists(path) and not (path.is_file() and is_kind(path)):
        raise OsoError(f"{named}: exists and is not {kind}; use another file")
    make_folder(path.parent)


def check_folder(path: Path, named: str) -> None:
    """Check an output folder before any work; creates nothing.

    OsoError if the path is not a folder, cannot be created, or is not writable. `named`: the key or
    option, for the message.
    """
    for folder in (path, *path.absolute().parents):
        if os.path.lexists(folder):
            if not os.path.isdir(folder):
                raise OsoError(f"{named}: {path}; {folder} must be a folder")
            if not os.access(folder, os.W_OK | os.X_OK):
                raise OsoError(
                    f"{named}: {path}; must be writable (no permission to write to {folder})"
                )
            return


def is_table(columns: Sequence[str]) -> Callable[[Path], bool]:
    """A predicate: whether a file is empty, or a CSV table that begins with these columns."""
    start = ",".join(columns)

    def is_one(path: Path) -> bool:
        begins = head(path)
        first = begins.split(b"\n", 1)[0].decode(errors="replace").strip(' \r"')
        return not begins.strip() or first == start or first.startswith(f"{start},")

    return is_one


def head(path: Path) -> bytes:
    """The first 64 KiB of a file; OsoError if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(_HEAD)
    except OSError as error:
        raise OsoError(f"{path}: cannot read file ({format_os_error(error)})") from None


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)  # two names of one file
    except OSError:
        return False
