"""Where a result comes from: code, library, device."""

import hashlib
from pathlib import Path

import torch

import oso

ROOMS = ("data", "methods", "models", "privacy", "training")  # what decides a run's numbers


def code_hash() -> str:
    """Hash of the source files that decide a run's numbers, 12 hexadecimal digits."""
    root = Path(oso.__file__).parent
    digest = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def device_name(device: str) -> str:
    """The device as people know it."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    threads = torch.get_num_threads()
    return f"cpu ({threads} thread{'s' if threads > 1 else ''})"
