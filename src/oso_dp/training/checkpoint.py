"""Checkpoints: one file, replaced whole, so that a killed job goes on where it was.

A file is a mark, the checksum of the rest, and the rest: what torch writes of plain values and
tensors. It is read without unpickling anything else.
"""

import hashlib
import logging
import os
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import torch

from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, reason

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


def load_checkpoint(path: Path, fingerprint: str) -> dict[str, Any] | None:
    """The checkpoint of exactly this job, else None (another configuration's or another code's).

    One that is damaged is set aside, with a line that names it, and is None, too. OsoError for one
    that cannot be read.
    """
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OsoError(f"{path}: cannot be read ({reason(error)})") from error
    mark, checksum = stored[: len(_MARK)], stored[len(_MARK) : len(_MARK) + _SUM]
    packed = memoryview(stored)[len(_MARK) + _SUM :]
    if mark != _MARK or checksum != _checksum(packed):
        _set_aside(path)
        return None
    content: dict[str, Any] = torch.load(BytesIO(packed), weights_only=True)
    return content if content["fingerprint"] == fingerprint else None


def _set_aside(path: Path) -> None:
    aside = path.with_name(f"{path.name}.damaged")
    try:
        os.replace(path, aside)
    except OSError as error:
        raise OsoError(f"{path}: damaged, and cannot be moved away ({reason(error)})") from error
    _log.warning("%s: damaged, or of an older version; now %s, and not used", path, aside.name)


def _checksum(packed: memoryview) -> bytes:
    return hashlib.blake2b(packed, digest_size=_SUM).digest()
