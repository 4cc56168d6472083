"""Periodic checkpoints of `train_private`, from which the same call continues after a kill.

A file has sanitized values and constants only, nothing of the data but the number of examples and
their types; no times either, which depend on batch sizes. So it cannot tell whether the data are
the same: that is up to the caller.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oso_dp.checkpoint import load_checkpoint
from oso_dp.errors import OsoError
from oso_dp.files import format_os_error
from oso_dp.locks import LOCK, only_one
from oso_dp.privacy.process_group import ProcessGroup

FORMAT = "oso private training 1"


@contextmanager
def only_training(checkpoint: str | os.PathLike[str] | None) -> Iterator[Path | None]:
    """Lock the checkpoint in the block, and yield its absolute path without links.

    OsoError if another training uses it: two at once would both release the remaining steps, of
    which the file counts one training's. So would two one after the other that write under two
    names, or from two working directories.
    """
    if checkpoint is None:
        yield None
        return
    path = Path(os.path.realpath(checkpoint))
    if ProcessGroup.current().rank > 0:
        yield path
        return
    if not path.parent.is_dir():
        raise OsoError(f"checkpoint: {checkpoint}: no folder {path.parent}")
    if os.path.lexists(path) and not path.is_file():
        raise OsoError(f"checkpoint: {checkpoint}: not a file")
    if path.exists() and path.stat().st_nlink > 1:
        raise OsoError(f"checkpoint: {checkpoint}: has another name, a hard link; remove that")
    lock = path.with_name(path.name + LOCK)
    with only_one(lock, f"checkpoint: {checkpoint}: another training uses it; wait for it"):
        yield path


def read_stored(path: Path) -> dict[str, Any] | None:
    """The content of a checkpoint, None if there is none; OsoError if it cannot be read.

    A damaged one is not set aside: its steps were released, and a new start would not count them.
    """
    if not os.path.lexists(path):
        return None
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


def check_identity(path: Path | None, stored: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """OsoError for a checkpoint of another training: names the first argument that differs.

    path: None if only another process has it.
    """
    for name, value in own.items():
        if stored.get(name) != value:
            raise OsoError(
                f"checkpoint: {path or 'of rank 0'}: {name} is {stored.get(name)!r}; must be "
                f"{value!r}, as in this call; or name another file"
            )


def check_group(identities: Sequence[Mapping[str, Any]]) -> None:
    """OsoError unless all processes of the group train the same."""
    first = identities[0]
    for rank, other in enumerate(identities):
        for name, value in first.items():
            if other[name] != value:
                raise OsoError(
                    f"{name}: {value!r} on rank 0, {other[name]!r} on rank {rank}; must be equal "
                    "in all processes of the group"
                )
