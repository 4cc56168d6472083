"""Where a command may write: a new file, or an older one of the same kind that it does not read."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from oso_dp.errors import OsoError
from oso_dp.files import format_os_error, make_folder

_HEAD = 65_536  # bytes that say of which kind a file is


def check_output(
    path: Path,
    kind: str,
    is_kind: Callable[[Path], bool],
    inputs: Iterable[Path] = (),
    option: str = "--output",
) -> None:
    """To be called before any work; makes the file's folder.

    OsoError if the path is one of `inputs` (also by another name), or exists and is not of this
    kind, or its folder cannot be written to.
    """
    named = f"{option} {path}".strip()
    for other in inputs:
        if os.path.realpath(path) == os.path.realpath(other) or _same(path, other):
            raise OsoError(f"{named}: is what the command reads; name another file")
    if os.path.lexists(path) and not (path.is_file() and is_kind(path)):
        raise OsoError(f"{named}: exists and is not {kind}; name another file")
    make_folder(path.parent)


def check_folder(path: Path, named: str) -> None:
    """To be called before any work that ends in this folder; makes nothing.

    OsoError, with the key or option that names it, if it is no folder, or cannot be one or be
    written to.
    """
    for place in (path, *path.absolute().parents):
        if os.path.lexists(place):
            if not os.path.isdir(place):
                raise OsoError(f"{named} {path}: {place} is not a folder; name another one")
            if not os.access(place, os.W_OK | os.X_OK):
                raise OsoError(f"{named} {path}: no permission to write to {place}")
            return


def is_table(columns: Sequence[str]) -> Callable[[Path], bool]:
    """Whether a file is a CSV table whose first columns are these; an empty file is one, too."""
    start = ",".join(columns)

    def is_one(path: Path) -> bool:
        begins = head(path)
        first = begins.split(b"\n", 1)[0].decode(errors="replace").strip(' \r"')
        return not begins.strip() or first == start or first.startswith(f"{start},")

    return is_one


def head(path: Path) -> bytes:
    """How a file begins; OsoError if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(_HEAD)
    except OSError as error:
        raise OsoError(f"{path}: cannot be read ({format_os_error(error)})") from None


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)  # two names of one file
    except OSError:
        return False
