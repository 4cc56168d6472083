"""Runs pytest again and again, each time in a fork of a process that has the libraries loaded.

Loading them takes longer than most tests. `Forks` starts this file as a process, which reads a
line with pytest's arguments and variables of the environment, and answers with a `Tested`.
`oso_dp` itself is never loaded there: each fork loads it from the folder that it is run in.
"""

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple, Self

LOADED = "Module already imported so cannot be rewritten"  # true, and meant
NOT_RUN = 98  # a status that pytest does not have
LIMIT = 200  # seconds for one test
TAIL = 200_000  # characters of the output; what a failed test compared may be long
LIBRARIES = (
    *("hypothesis", "hypothesis.strategies", "numpy", "opacus", "pandas", "pyarrow.parquet"),
    *("pydantic", "pytest", "scipy.stats", "torch", "typer", "yaml"),
)


class Tested(NamedTuple):
    """What pytest said: its status (None: a test took longer than LIMIT), and its last lines."""

    status: int | None
    output: str


class Forks:
    """A process that runs tests in a folder; to be used with `with`."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=self.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, *arguments: str, **environment: str) -> Tested:
        """Pytest until one test fails; RuntimeError if it cannot be asked."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = [["-q", "-x", "-p", "no:cacheprovider", *arguments], environment]
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the process that runs the tests has ended")
        return Tested(*json.loads(answer))


class Watch:
    """Ends the fork when one test takes longer than LIMIT: that mutant made it run for ever."""

    def pytest_runtest_logstart(self) -> None:
        signal.alarm(LIMIT)


def child(arguments: list[str], environment: dict[str, str], output: str) -> None:
    os.setsid()
    os.environ.update(environment)
    descriptor = os.open(output, os.O_WRONLY)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    signal.alarm(LIMIT)
    found = importlib.util.find_spec("oso_dp")
    if found is None or not str(found.origin).startswith(os.getcwd()):
        raise RuntimeError(f"oso_dp: {found and found.origin}; must be below {os.getcwd()}")
    arguments = [*arguments, "-W", f"ignore:{LOADED}:pytest.PytestAssertRewriteWarning"]
    status = int(importlib.import_module("pytest").main(arguments, plugins=[Watch()]))
    sys.stdout.flush()
    os._exit(status)


def run(arguments: list[str], environment: dict[str, str]) -> Tested:
    with tempfile.NamedTemporaryFile() as file:
        process = os.fork()
        if process == 0:
            try:
                child(arguments, environment, file.name)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(NOT_RUN)
        _, waited = os.waitpid(process, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # what its tests may have started
        status = None if os.WIFSIGNALED(waited) else os.WEXITSTATUS(waited)
        return Tested(status, file.read().decode(errors="replace")[-TAIL:])


if __name__ == "__main__":
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()  # forks share what is loaded
    sys.path[0] = os.getcwd()
    for line in sys.stdin:
        print(json.dumps(run(*json.loads(line))), flush=True)
