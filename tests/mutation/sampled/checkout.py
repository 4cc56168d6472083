"""A copy of the checkout to change, and tests that run there."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forks import Forks

REPO = Path(__file__).resolve().parents[3]
WORKERS = int(os.environ.get("MUTANT_WORKERS", str(os.cpu_count() or 1)))
# Whatever a test reads: one that fails for want of a file would seem to catch every fault.
COPIED = (
    *("src", "tests", "config", "docs", "results", "reports", "workflow", "scripts", "examples"),
    *("benchmarks", "profiles", "pyproject.toml", "requirements.in", "requirements.lock"),
    *("Makefile", "Snakefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff"),
)


@contextmanager
def copy_checkout() -> Iterator[Forks]:
    """Runs tests in a copy, whose root is `folder`."""
    with tempfile.TemporaryDirectory(prefix="oso-mutants-") as parent:
        folder = Path(parent)
        for name in COPIED:
            source, target = REPO / name, folder / name
            if source.is_dir():
                # With its links: what is a link here is none of the tests' files there.
                passed_over = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, target, symlinks=True, ignore=passed_over)
            else:
                shutil.copy2(source, target)
        environment = {
            "PYTHONPATH": str(folder / "src"),  # the copy's code and no other
            "PYTHONDONTWRITEBYTECODE": "1",  # or a fault within a second of the last goes unseen
        }
        with Forks(folder, environment) as forks:
            yield forks
