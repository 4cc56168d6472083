"""The benchmark's connection to one worker process."""

import json
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from competitor import Setting

_PATIENCE = 300.0  # seconds for one answer; compiling may take a minute
_WORKER = Path(__file__).with_name("worker.py")


class CannotGoOnError(Exception):
    """The competitor cannot go on; `status` and the reason are its row."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Child:
    """A worker process, made ready to step. Raises CannotGoOnError if it cannot be."""

    def __init__(self, setting: Setting, data: Path) -> None:
        self.setting = setting
        self.seconds: list[float] = []  # of each step, all its runs together
        self.used = 0.0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        try:
            ready = self._ask("prepare", setting=asdict(setting), data=str(data))
            self.first_seconds: float = ready["seconds"]
            self.version: str = ready["version"]
        except BaseException:
            self.close()
            raise

    def turn(self, seconds: float) -> None:
        """Take steps for about `seconds`, at least one."""
        times = self._ask("turn", seconds=seconds)["seconds"]
        self.seconds += times
        self.used += max(seconds, sum(times))

    def evaluate(self) -> float:
        """Seconds of one evaluation of all its runs."""
        return self._ask("evaluate")["seconds"]

    def end(self) -> int:
        """Its peak memory in bytes."""
        return self._ask("end")["peak_bytes"]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            assert stream is not None
            with suppress(BrokenPipeError):  # what was asked of a process that has ended
                stream.close()

    def _ask(self, do: str, **values: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(_PATIENCE, self._process.kill)
        timer.start()
        try:
            print(json.dumps({"do": do, **values}), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late = not timer.is_alive()
            timer.cancel()
        if not line:
            raise CannotGoOnError(
                "failed", f"no answer in {_PATIENCE:.0f} s" if late else self._last_words()
            )
        answer: dict[str, Any] = json.loads(line)
        if "status" in answer:
            raise CannotGoOnError(answer["status"], answer["reason"])
        return answer

    def _last_words(self) -> str:
        status = self._process.wait()
        if status == -9:
            return "its process was killed, perhaps for want of memory"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
        return f"its process ended with status {status}; it said: {said[:200]}"
