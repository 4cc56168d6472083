"""A worker process that trains one competitor step by step on command.

It reads one JSON object per line from standard input and answers each with one on standard output:
`prepare` builds the competitor, `turn` takes steps for a given time, `end` reports the peak memory.
An answer with the key `status` reports a failure, with the cause in `reason`.
"""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # or JAX takes most of a GPU for itself

import numpy as np
import torch
from competitor import Competitor, Setting, SkippedError
from competitors import find_competitor
from memory import held_bytes, peak_bytes
from workloads import load_data

from oso_dp.errors import OsoError

_REHEARSAL = 32  # examples
_CHUNK_SECONDS = 0.02  # on a GPU: how long to let the host run ahead


class Worker:
    competitor: Competitor

    def answer(self, do: str, **values: Any) -> dict[str, Any]:
        """Obey; what goes wrong is this competitor's row, whatever it is."""
        try:
            return getattr(self, do)(**values)
        except ModuleNotFoundError as error:
            return {"status": "not installed", "reason": f"{error.name} is not installed"}
        except SkippedError as error:
            return {"status": "skipped", "reason": str(error)}
        except Exception as error:
            kind = "" if isinstance(error, OsoError) else f"{type(error).__name__}: "
            return {"status": "failed", "reason": " ".join(f"{kind}{error}".split())[:300]}

    def prepare(self, setting: dict[str, Any], data: str) -> dict[str, Any]:
        """Build the competitor and take its first two steps; the second one's time in seconds.

        What a step loads or compiles the first time is not its memory. So the competitor rehearses
        on a few examples, and memory is counted from then on, without compiling.
        """
        self.setting = Setting(**setting)
        _use_threads(self.setting.threads)
        # float32 throughout, for all alike.
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        make = find_competitor(self.setting.competitor)
        every = load_data(Path(data))

        few = min(_REHEARSAL, self.setting.batch_size)
        rehearsal = make(replace(self.setting, batch_size=few), every.first(few))
        rehearsal.step()
        rehearsal.finish()
        del rehearsal

        self.before = held_bytes(self.setting.device)
        self.competitor = make(self.setting, every)
        self._take(1)
        held_bytes(self.setting.device)
        self.chunk = 1
        first = self._take(1)
        if self.setting.device == "cuda":
            self.chunk = max(1, round(_CHUNK_SECONDS / first))
        return {"seconds": first, "version": self.competitor.version()}

    def turn(self, seconds: float) -> dict[str, Any]:
        """Take steps for about `seconds`, at least one; the seconds of each.

        The first one is not among them: while the others had their turns, the system may have taken
        back the memory that a step leaves free.
        """
        self._take(1)
        end = time.perf_counter() + seconds
        times = [self._take(self.chunk)]
        while time.perf_counter() < end:
            times.append(self._take(self.chunk))
        return {"seconds": times}

    def evaluate(self) -> dict[str, Any]:
        """The seconds of one evaluation; the first of two is not counted."""
        for _ in range(2):
            began = time.perf_counter()
            self.competitor.evaluate()
            self.competitor.finish()
        return {"seconds": time.perf_counter() - began}

    def end(self) -> dict[str, Any]:
        """The peak over what was held before the competitor was built, in bytes."""
        parameters = self.competitor.parameters()
        if len(parameters) < self.setting.runs or not np.isfinite(parameters).all():
            raise OsoError("a run diverged; its time is not comparable")
        peak = self.competitor.peak_bytes() or peak_bytes(self.setting.device)
        return {"peak_bytes": max(0, peak - self.before - self.competitor.data_bytes())}

    def _take(self, count: int) -> float:
        """Seconds per step, of `count` steps."""
        began = time.perf_counter()
        for _ in range(count):
            self.competitor.step()
        self.competitor.finish()
        return (time.perf_counter() - began) / count


def _use_threads(threads: int) -> None:
    torch.set_num_threads(threads)
    if hasattr(os, "sched_setaffinity"):  # JAX has no such setting: it uses the cores that it sees
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def main() -> None:
    # Whatever a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        print(json.dumps(worker.answer(**json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
