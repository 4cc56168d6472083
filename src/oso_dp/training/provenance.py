"""Provenance of a result: code hash, commit, device."""

import hashlib
import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import torch

import oso_dp

# The packages that determine a run's results, given its plan.
PACKAGES = ("data", "gradients", "methods", "models", "privacy", "training")
COMMIT = "OSO_COMMIT"  # environment variable with the commit, used outside of a repository


@cache
def code_hash() -> str:
    """Hash of the source files that determine a run's results, 12 hexadecimal digits."""
    root = Path(oso_dp.__file__).parent
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


@cache
def commit() -> str | None:
    """The commit of this code, with suffix -dirty if its files were changed; None if unknown.

    Read from the repository that contains this package, else from the environment (`COMMIT`).
    """
    source = Path(oso_dp.__file__).parent
    if _git(source, "ls-files", "--", "__init__.py"):  # not a repository around an installation
        changed = _git(source, "status", "--porcelain", "--", ".")
        return f"{_git(source, 'rev-parse', 'HEAD')}{'-dirty' if changed else ''}"
    return os.environ.get(COMMIT) or None


def _git(folder: Path, *arguments: str) -> str:
    """The output of git; empty if it fails or is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def device_name(device: str) -> str:
    """The model of the GPU, or of the CPU with its vector instructions and number of threads.

    CPUs of one model name may have different instructions, and so differ in rounding.
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
