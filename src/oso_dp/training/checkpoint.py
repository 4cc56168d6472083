"""Checkpoints: one file per job, replaced whole, so that a killed job goes on where it was."""

from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from oso_dp.files import atomic_write


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write to a neighbour first: a kill in the middle leaves the former checkpoint."""
    packed = BytesIO()  # torch's own writer does not say what is wrong with a full disk
    torch.save(content, packed)
    with atomic_write(path) as file:
        file.write(packed.getbuffer())


def load_checkpoint(path: Path, fingerprint: str) -> dict[str, Any] | None:
    """The checkpoint of exactly this job, else None (another configuration's or another code's)."""
    if not path.exists():
        return None
    content: dict[str, Any] = torch.load(path, weights_only=True)
    return content if content["fingerprint"] == fingerprint else None
