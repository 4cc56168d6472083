"""Checkpoints: one file per job, replaced whole, so that a killed job goes on where it was."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, reason


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write to a neighbour first: a kill in the middle leaves the former checkpoint."""
    packed = BytesIO()  # torch's own writer does not say what is wrong with a full disk
    torch.save(content, packed)
    with atomic_write(path) as file:
        file.write(packed.getbuffer())


def load_checkpoint(path: Path, fingerprint: str) -> dict[str, Any] | None:
    """The checkpoint of exactly this job, else None (another configuration's or another code's).

    OsoError for a file that is damaged, or no checkpoint.
    """
    if not path.exists():
        return None
    with sound(path):
        _check_archive(path)
        # Numbers, texts and tensors only: nothing in the file is run.
        content = torch.load(path, weights_only=True)
        return dict(content) if content["fingerprint"] == fingerprint else None


@contextmanager
def sound(path: Path) -> Iterator[None]:
    """Around what reads a checkpoint: OsoError, with what to do, wherever it is not one."""
    try:
        yield
    except OsoError:
        raise
    except Exception as error:  # a damaged archive fails in too many ways to list
        raise OsoError(
            f"{path}: not a sound checkpoint ({reason(error)[:200]}); remove it, and the job "
            "begins anew"
        ) from error


def _check_archive(path: Path) -> None:
    """What torch does not: no byte changed, and no more is in it than the file is long."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("it is compressed")
        if sum(entry.file_size for entry in entries) > path.stat().st_size:
            raise ValueError("its parts overlap")
        damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} is damaged")
