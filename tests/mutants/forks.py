"""Runs pytest again and again, each time in a fork of a process that has the libraries loaded.

Loading them takes longer than most tests. Reads a list of pytest's arguments a line, and answers
with [status, last lines of the output]; the status is null if a test did not end within LIMIT.
`oso_dp` itself is never loaded here: each fork loads it from the folder that it is run in.
"""

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import signal
import sys
import tempfile
import traceback

LOADED = "Module already imported so cannot be rewritten"  # true, and meant
NOT_RUN = 98  # a status that pytest does not have
LIMIT = 200  # seconds for one test
TAIL = 200_000  # characters of the output; what a failed test compared may be long
LIBRARIES = (
    *("hypothesis", "hypothesis.strategies", "numpy", "opacus", "pandas", "pyarrow.parquet"),
    *("pydantic", "pytest", "scipy.stats", "torch", "typer", "yaml"),
)


class Watch:
    """Ends the fork when one test takes longer than LIMIT: that mutant made it run for ever."""

    def pytest_runtest_logstart(self) -> None:
        signal.alarm(LIMIT)


def child(arguments: list[str], output: str) -> None:
    os.setsid()
    descriptor = os.open(output, os.O_WRONLY)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    signal.alarm(LIMIT)
    found = importlib.util.find_spec("oso_dp")
    if found is None or not str(found.origin).startswith(os.getcwd()):
        raise RuntimeError(f"the tests would import {found and found.origin}, not the copy")
    arguments = [*arguments, "-W", f"ignore:{LOADED}:pytest.PytestAssertRewriteWarning"]
    status = int(importlib.import_module("pytest").main(arguments, plugins=[Watch()]))
    sys.stdout.flush()
    os._exit(status)


def run(arguments: list[str]) -> tuple[int | None, str]:
    with tempfile.NamedTemporaryFile() as file:
        process = os.fork()
        if process == 0:
            try:
                child(arguments, file.name)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(NOT_RUN)
        _, waited = os.waitpid(process, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # what its tests may have started
        status = None if os.WIFSIGNALED(waited) else os.WEXITSTATUS(waited)
        return status, file.read().decode(errors="replace")[-TAIL:]


if __name__ == "__main__":
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()  # forks share what is loaded
    sys.path[0] = os.getcwd()
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
