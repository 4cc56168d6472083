"""A copy of the checkout to plant faults in, and tests that run there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
WORKERS = int(os.environ.get("MUTANT_WORKERS", str(os.cpu_count() or 1)))
COPIED = ("src", "tests", "config", "docs", "results", "pyproject.toml", "requirements.in")


def copy_checkout(folder: Path) -> None:
    for name in COPIED:
        source, target = REPO / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)


def run_tests(
    folder: Path, tests: str, *options: str, limit: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Pytest in the copy, which must import the copy's code and no other.

    Raises subprocess.TimeoutExpired after `limit` seconds.
    """
    check = "import oso, sys; sys.exit(not oso.__file__.startswith(sys.argv[1]))"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder / "src"), os.environ.get("PYTHONPATH", "")]),
        "PYTHONDONTWRITEBYTECODE": "1",  # or a fault within a second of the last goes unseen
        "OMP_NUM_THREADS": "1",
    }
    shared = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    if limit is None:  # a mechanical fault may stand in what is imported first
        subprocess.run([sys.executable, "-c", check, str(folder)], check=True, **shared)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *options]
    return subprocess.run([*command, *tests.split()], check=False, timeout=limit, **shared)
