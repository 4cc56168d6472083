"""Writing files so that a reader sees the whole of one or none of it, and under proper names."""

import json
import math
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from oso_dp.errors import OsoError


def make_folder(folder: Path) -> None:
    """Make `folder` and its parents; OsoError if that fails or it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OsoError(f"{folder}: cannot make this folder ({format_os_error(error)})") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OsoError(f"{folder}: no permission to write to this folder")


@contextmanager
def atomic_write(path: Path, only_owner: bool = False) -> Iterator[BinaryIO]:
    """Open a binary file that takes the name `path` only once the block has ended well.

    The content goes to a hidden temporary file in the same folder (made if absent), which is
    flushed to disk and renamed. After a failure `path` is as it was, and the temporary is gone.
    only_owner: nobody else may read it, at any time. Raises OsoError if the file cannot be written.
    """
    make_folder(path.parent)
    temporary = path.with_name(f".oso-{uuid4().hex}.tmp")
    try:
        with open(temporary, "xb", opener=_owners if only_owner else None) as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise OsoError(f"{path}: cannot write this file ({format_os_error(error)})") from error
    finally:
        temporary.unlink(missing_ok=True)


def _owners(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


# What `stat` tells from a regular file; the first letter of a mode's text.
_KINDS = {"d": "folder", "p": "pipe", "c": "device", "b": "device", "s": "socket"}


def check_regular(path: Path) -> None:
    """OsoError for what is there but is no regular file, whose reading might never end.

    Of a path that is not there, or closed to us, its reader says more.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.filemode(mode)[0], "special file")
        raise OsoError(f"{path}: is a {kind}; must be a regular file")


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,149}")


def check_name(name: object, where: str) -> None:
    """OsoError unless this, read from a file, is fit to become a part of a file's name.

    where: the file and the key that it was read from.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OsoError(
            f"{where} {str(name)[:80]!r}: must be a name of letters, digits, _, - and ., "
            "and begin with a letter or digit"
        )


def parse_json(text: str, **how: Any) -> Any:
    """As json.loads, for text of any origin: ValueError is all that it raises."""
    try:
        return json.loads(text, **how)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def json_text(value: Any) -> str:
    """Lines of JSON for other programs: null where a number is not finite, which JSON knows not."""
    return json.dumps(_finite(value), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def format_os_error(error: BaseException) -> str:
    """Say in one line why something failed."""
    cause = getattr(error, "reason", error)  # urllib wraps the one that says something
    text = getattr(cause, "strerror", None) or str(cause) or type(error).__name__
    return " ".join(str(text).split())
