"""Checkpoints: one file, replaced atomically, from which a killed job resumes.

A file is a magic number, the checksum of the rest, and what torch writes of plain values and
tensors. It is read with `weights_only`, so it cannot run code. torch is imported when a file is
read or written, since a workflow looks whether there are files.
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

from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, format_os_error

FINISHED_RUNS: Final = (
    "rows.pt"  # of a job: rows of the runs that it has finished (also in clean.sh)
)
_MARK: Final = b"oso checkpoint 1"
_SUM: Final = 32  # bytes
_log = logging.getLogger(__name__)


def save_checkpoint(path: Path, fingerprint: str, content: dict[str, Any]) -> None:
    """Write the checkpoint atomically: a kill during the write leaves the previous one."""
    import torch

    packed = BytesIO()  # torch's file writer reports no reason if the disk is full
    torch.save({"fingerprint": fingerprint, **content}, packed)
    with atomic_write(path) as file:
        file.write(_MARK + _checksum(packed.getbuffer()))
        file.write(packed.getbuffer())


@contextmanager
def quarantine_if_corrupt(path: Path) -> Iterator[None]:
    """Rename the checkpoint, with a warning, if reading or restoring it in the block fails.

    The block must change no state if it fails.
    """
    import torch

    try:
        yield
    except (OsoError, MemoryError, torch.OutOfMemoryError):  # not the file's fault
        raise
    except Exception as error:  # a damaged file fails in too many ways to list
        aside = path.with_name(f"{path.name}.damaged")
        try:
            os.replace(path, aside)
        except OSError as why:
            raise OsoError(
                f"{path}: damaged, and cannot be renamed ({format_os_error(why)}); remove it"
            ) from why
        _log.warning(
            "%s: damaged, or of an older version; renamed to %s and not used (%s)",
            *(path, aside.name, format_os_error(error)[:200]),
        )


def load_checkpoint(
    path: Path, fingerprint: str, place: str | None = None
) -> dict[str, Any] | None:
    """Load the checkpoint; None if there is none, or its fingerprint differs.

    Its tensors are put on the device `place`, by default where they were. Call it inside of
    `quarantine_if_corrupt`, as `read_checkpoint`.
    """
    content = read_checkpoint(path, place)
    return content if content is not None and content["fingerprint"] == fingerprint else None


def read_checkpoint(path: Path, place: str | None = None) -> dict[str, Any] | None:
    """The content of a checkpoint of any fingerprint; None if there is none.

    OsoError for a file that cannot be read, and any other exception for a damaged one.
    """
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OsoError(f"{path}: cannot read checkpoint ({format_os_error(error)})") from error
    mark, checksum = stored[: len(_MARK)], stored[len(_MARK) : len(_MARK) + _SUM]
    packed = memoryview(stored)[len(_MARK) + _SUM :]
    if mark != _MARK:
        raise ValueError("not a checkpoint of this version")
    if checksum != _checksum(packed):
        raise ValueError("checksum differs")
    _check_sizes(packed)
    import torch

    content: dict[str, Any] = torch.load(BytesIO(packed), map_location=place, weights_only=True)
    return content


def read_finished_runs(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of a job's finished runs: `runs` and `evaluations`; empty without the file.

    OsoError for a damaged file, which may have runs whose epsilon is spent.
    """
    try:
        content = read_checkpoint(path) or {}
        return {kind: list(content.get(kind, [])) for kind in ("runs", "evaluations")}
    except OsoError:
        raise
    except Exception as error:  # a damaged file fails in too many ways to list
        raise OsoError(
            f"{path}: damaged; it may have finished runs on private data, whose "
            "epsilon is spent; restore it, or collect the runs and name their --store"
        ) from error


def _check_sizes(packed: memoryview) -> None:
    """ValueError if the archive's content is larger than the file (a decompression bomb)."""
    with zipfile.ZipFile(BytesIO(packed)) as archive:
        entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ValueError("compressed")
    if sum(entry.file_size for entry in entries) > len(packed):
        raise ValueError("entries overlap")


def _checksum(packed: memoryview) -> bytes:
    return hashlib.blake2b(packed, digest_size=_SUM).digest()
