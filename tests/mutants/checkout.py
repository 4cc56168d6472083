"""A copy of the checkout to plant faults in, and tests that run there."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple, Self

REPO = Path(__file__).resolve().parents[2]
WORKERS = int(os.environ.get("MUTANT_WORKERS", str(os.cpu_count() or 1)))
# Whatever a test reads: one that fails for want of a file would seem to catch every fault.
COPIED = (
    *("src", "tests", "config", "docs", "results", "reports", "workflow", "scripts", "examples"),
    *("benchmarks", "profiles", "pyproject.toml", "requirements.in", "requirements.lock"),
    *("Makefile", "Snakefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff"),
)


class Tested(NamedTuple):
    """What pytest said: its status (None: a test did not end), and its last lines."""

    status: int | None
    output: str


class Checkout:
    """The copy, and a process (`forks.py`) that runs tests in it; to be used with `with`.

    `folder` is the copy's root.
    """

    def __enter__(self) -> Self:
        self._parent = tempfile.TemporaryDirectory(prefix="oso-mutants-")
        self.folder = Path(self._parent.name)
        for name in COPIED:
            source, target = REPO / name, self.folder / name
            if source.is_dir():
                # With its links: what is a link here is none of the tests' files there.
                passed_over = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, target, symlinks=True, ignore=passed_over)
            else:
                shutil.copy2(source, target)
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder / "src"),  # the copy's code and no other
            "PYTHONDONTWRITEBYTECODE": "1",  # or a fault within a second of the last goes unseen
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("forks.py")],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._parent.cleanup()

    def run(self, tests: str, *options: str) -> Tested:
        """Pytest in the copy, until one test fails; RuntimeError if it cannot be asked."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        arguments = ["-q", "-x", "-p", "no:cacheprovider", *options, *tests.split()]
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the process that runs the tests has ended")
        return Tested(*json.loads(answer))
