"""Atomic writes, JSON, checks of file names and types, and messages for OSError."""

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
    """Create `folder` and its parents; OsoError if that fails or it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OsoError(f"{folder}: cannot create folder ({format_os_error(error)})") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OsoError(f"{folder}: no permission to write to the folder")


FileVersion = tuple[str, int, int, int]


def file_version(path: Path) -> FileVersion | None:
    """A value that changes whenever the file is written; None if there is no file.

    It is to be compared with an earlier one, not with a clock, which may jump.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return str(path), status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def atomic_write(path: Path, only_owner: bool = False) -> Iterator[BinaryIO]:
    """Open a binary file that is renamed to `path` only if the block succeeds.

    The content is written to a hidden temporary file in the same folder (created if absent),
    flushed to disk and renamed. After a failure, `path` is unchanged and the temporary file is
    removed. `only_owner`: only the owner can read it, at any time. OsoError if the file cannot be
    written.
    """
    make_folder(path.parent)
    temporary = path.with_name(f".oso-{uuid4().hex}.tmp")
    try:
        with open(temporary, "xb", opener=_open_private if only_owner else None) as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise OsoError(f"{path}: cannot write file ({format_os_error(error)})") from error
    finally:
        temporary.unlink(missing_ok=True)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


# File types by the first letter of `stat.filemode`.
_TYPES = {"d": "folder", "p": "pipe", "c": "device", "b": "device", "s": "socket"}


def check_regular(path: Path) -> None:
    """OsoError for a path that exists but is not a regular file: reading it might never end.

    A path that does not exist or is not accessible is left to the reader's message.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        file_type = _TYPES.get(stat.filemode(mode)[0], "special file")
        raise OsoError(f"{path}: {file_type}; must be a regular file")


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,149}")


def check_name(name: object, where: str) -> None:
    """OsoError unless a name that was read from a file can be used in a file name.

    `where`: the file and key that it was read from, for the message.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OsoError(
            f"{where}: {str(name)[:80]!r}; must be a name of letters, digits, _, - and ., "
            "beginning with a letter or digit"
        )


def parse_json(text: str, **options: Any) -> Any:
    """As json.loads, but raises only ValueError, for untrusted text."""
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def json_text(value: Any) -> str:
    """Indented JSON, with null for NaN and infinity, which JSON does not support."""
    return json.dumps(_finite(value), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def format_os_error(error: BaseException) -> str:
    """The reason of an error, as one line."""
    cause = getattr(error, "reason", error)  # urllib wraps the original error
    text = getattr(cause, "strerror", None) or str(cause) or type(error).__name__
    return " ".join(str(text).split())
