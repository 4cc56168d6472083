"""Periodic checkpoints of `train_private`, from which the same call continues after a kill.

A file has sanitized values and constants only, nothing of the data but the number of examples and
their types. So it cannot tell whether the data are the same: that is up to the caller.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oso_dp.errors import OsoError
from oso_dp.files import format_os_error
from oso_dp.training.checkpoint import load_checkpoint

FORMAT = "oso private training 1"


def read_stored(path: Path) -> dict[str, Any] | None:
    """The content of a checkpoint, None if there is none; OsoError if it cannot be read.

    A damaged one is not set aside: its steps were released, and a new start would not count them.
    """
    if not os.path.lexists(path):
        if not path.parent.is_dir():
            raise OsoError(f"checkpoint: {path}: no folder {path.parent}")
        return None
    if not path.is_file():
        raise OsoError(f"checkpoint: {path}: not a file")
    try:
        content = load_checkpoint(path, FORMAT, "cpu")
    except OsoError as error:
        raise OsoError(f"checkpoint: {error}") from error
    except Exception as error:  # a damaged file fails in too many ways to list
        raise OsoError(
            f"checkpoint: {path}: not a checkpoint of train_private, or damaged "
            f"({format_os_error(error)}); name another file, and count the steps of a damaged one"
        ) from error
    if content is None:
        raise OsoError(f"checkpoint: {path}: not a checkpoint of train_private; name another file")
    return content


def check_identity(path: Path, stored: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """OsoError for a checkpoint of another training: names the first argument that differs."""
    for name, value in own.items():
        if stored.get(name) != value:
            raise OsoError(
                f"checkpoint: {path}: of a training with {name} {stored.get(name)!r}, not "
                f"{value!r}; name another file"
            )


def check_workers(identities: Sequence[Mapping[str, Any]]) -> None:
    """OsoError if the processes that train together train something else each."""
    first = identities[0]
    for rank, other in enumerate(identities):
        for name, value in first.items():
            if other[name] != value:
                raise OsoError(
                    f"workers: {name} {value!r} in worker 0 and {other[name]!r} in worker {rank}; "
                    "must be the same in all processes of the group"
                )
