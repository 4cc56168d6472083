"""Where a result comes from: code, library, device."""

import hashlib
import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import torch

import oso_dp

# What decides a run's numbers, beside its plan.
ROOMS = ("data", "gradients", "methods", "models", "privacy", "training")
COMMIT = "OSO_COMMIT"  # environment variable: says the commit where there is no repository


@cache
def code_hash() -> str:
    """Hash of the source files that decide a run's numbers, 12 hexadecimal digits."""
    root = Path(oso_dp.__file__).parent
    digest = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


@cache
def commit() -> str | None:
    """The commit of this code, with -dirty behind it if its files were changed; None if unknown.

    As the repository says that holds this package; else the environment variable `COMMIT`.
    """
    source = Path(oso_dp.__file__).parent
    if _git(source, "ls-files", "--", "__init__.py"):  # not of a repository around an installation
        changed = _git(source, "status", "--porcelain", "--", ".")
        return f"{_git(source, 'rev-parse', 'HEAD')}{'-dirty' if changed else ''}"
    return os.environ.get(COMMIT) or None


def _git(folder: Path, *arguments: str) -> str:
    """What git prints; nothing if it fails or is not there."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def device_name(device: str) -> str:
    """A GPU's model, or a CPU's, its vector instructions and the number of threads.

    Processors of one name may have other instructions, and then other last digits.
    """
    if device == "cuda":
        return torch.cuda.get_device_name()
    threads, vectors = torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()
    return f"{_processor()}, {vectors} ({threads} thread{'s' if threads > 1 else ''})"


@cache
def _processor() -> str:
    try:
        facts = Path("/proc/cpuinfo").read_text()
    except OSError:
        facts = ""
    for line in facts.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.split())
    return platform.processor() or platform.machine() or "cpu"
