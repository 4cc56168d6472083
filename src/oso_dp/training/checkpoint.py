"""Checkpoints: one file, replaced whole, so that a killed job goes on where it was.

A file is a mark, the checksum of the rest, and the rest: what torch writes of plain values and
tensors. Nothing in it is run.
"""

import hashlib
import logging
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import torch

from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, format_os_error

_MARK: Final = b"oso checkpoint 1"
_SUM: Final = 32  # bytes
_log = logging.getLogger(__name__)


def save_checkpoint(path: Path, fingerprint: str, content: dict[str, Any]) -> None:
    """Write to a neighbour first: a kill in the middle leaves the former checkpoint."""
    packed = BytesIO()  # torch's own writer does not say what is wrong with a full disk
    torch.save({"fingerprint": fingerprint, **content}, packed)
    with atomic_write(path) as file:
        file.write(_MARK + _checksum(packed.getbuffer()))
        file.write(packed.getbuffer())


@contextmanager
def quarantine_if_corrupt(path: Path) -> Iterator[None]:
    """Around what reads a checkpoint and goes on from it, or has changed nothing where it fails.

    A file that is damaged, or none of this job's making, gets another name, and a line says so.
    """
    try:
        yield
    except (OsoError, MemoryError, torch.OutOfMemoryError):  # not its fault
        raise
    except Exception as error:  # a damaged file fails in too many ways to list
        aside = path.with_name(f"{path.name}.damaged")
        try:
            os.replace(path, aside)
        except OSError as why:
            raise OsoError(
                f"{path}: damaged, and cannot be moved away ({format_os_error(why)})"
            ) from why
        _log.warning(
            "%s: damaged, or of an older version; now %s, and not used (%s)",
            *(path, aside.name, format_os_error(error)[:200]),
        )


def load_checkpoint(
    path: Path, fingerprint: str, place: str | None = None
) -> dict[str, Any] | None:
    """The checkpoint of exactly this job, else None (another configuration's or another code's).

    Its tensors are where they were, or at `place`. OsoError for one that cannot be read, any other
    exception for one that is damaged: to be called inside of `set_aside_if_damaged`.
    """
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OsoError(f"{path}: cannot be read ({format_os_error(error)})") from error
    mark, checksum = stored[: len(_MARK)], stored[len(_MARK) : len(_MARK) + _SUM]
    packed = memoryview(stored)[len(_MARK) + _SUM :]
    if mark != _MARK:
        raise ValueError("no checkpoint of this version")
    if checksum != _checksum(packed):
        raise ValueError("its content is not what was written")
    _check_sizes(packed)
    content: dict[str, Any] = torch.load(BytesIO(packed), map_location=place, weights_only=True)
    return content if content["fingerprint"] == fingerprint else None


def _check_sizes(packed: memoryview) -> None:
    """ValueError where more is in it than the file is long."""
    with zipfile.ZipFile(BytesIO(packed)) as archive:
        entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ValueError("it is compressed")
    if sum(entry.file_size for entry in entries) > len(packed):
        raise ValueError("its parts overlap")


def _checksum(packed: memoryview) -> bytes:
    return hashlib.blake2b(packed, digest_size=_SUM).digest()
