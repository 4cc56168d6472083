"""A small study, data of the right size, and training that only moves a clock."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.planned_rows import run_row, score_rows

from oso_dp.data.arrays import Arrays, save_arrays
from oso_dp.results.read import read_results
from oso_dp.scheduler import scheduling
from oso_dp.scheduler.__main__ import main
from oso_dp.scheduler.priorities import list_jobs, rank_runs
from oso_dp.scheduler.scheduling import Scheduler, task_of
from oso_dp.scheduler.shard_store import ShardStore
from oso_dp.study.config import parse_config
from oso_dp.study.plan import Plan, make_plan_with_noise, read_plan, write_plan
from oso_dp.training.job import ResultRows

GLYPHS = {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 0.005}
STUDY = {
    "name": "mini",
    "datasets": {"glyphs": GLYPHS},
    "methods": {"online": {}, "fixed_threshold": {}, "no_dp": {}},
    "values_per_axis": [2],
    "seeds": [0, 1],
    "batch_size": 600,
    "epochs": 1,  # 10 steps
    "evaluate_every": 2,
}
RUNS = 16  # online 4, no_dp 4, fixed_threshold 8


def make_plan(**changes: Any) -> Plan:
    """A plan without the time that calibration takes."""
    return make_plan_with_noise(parse_config({**STUDY, **changes}, "x"), defaultdict(lambda: 1.5))


def list_runs(folder: Path) -> list[str]:
    """The runs in all shards; each shard must be complete."""
    shards = sorted(folder.glob("[!.]*"))
    return [run_id for shard in shards for run_id in read_results(shard).runs["run_id"]]


@pytest.fixture(scope="session")
def mnist() -> Plan:
    """The paper's study of MNIST: 51 cohorts, 6,145 runs."""
    methods = ("online", "fixed_threshold", "fixed_quantile", "adam_wosm", "no_dp")
    study = {
        "name": "mnist",
        "datasets": {"mnist": {"model": "cnn", "epsilons": [3, 5, 7, 9], "seconds_per_step": 0.4}},
        "methods": {name: {} for name in methods},
        "values_per_axis": [5, 7, 9],
        "seeds": [0, 1, 2, 3, 4],
    }
    return make_plan_with_noise(parse_config(study, "x"), defaultdict(lambda: 1.5))


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """plan.json and data/glyphs.npz."""
    folder: Path = tmp_path_factory.mktemp("campaign")
    write_plan(make_plan(), folder / "plan.json")
    rng = np.random.default_rng(0)
    inputs = rng.random((7000, 1, 14, 14), dtype=np.float32)
    targets = rng.integers(0, 10, 7000)
    arrays = Arrays(inputs[:6000], targets[:6000], inputs[6000:], targets[6000:])
    save_arrays(folder / "data/glyphs.npz", arrays, {"dataset": "glyphs"})
    return folder


@pytest.fixture
def plan(folder) -> Plan:
    return read_plan(folder / "plan.json")


@pytest.fixture
def call(folder, capsys) -> Callable[..., tuple[int, list[str], list[str]]]:
    """`python -m oso_dp.scheduler` in this process: status, lines of output, lines of errors."""

    def run(*arguments: object) -> tuple[int, list[str], list[str]]:
        known = {"--plan": folder / "plan.json", "--data": folder / "data", "--minutes": 1}
        known |= {"--device": "cpu", "--threads": 1}
        given = [str(argument) for argument in arguments]
        for name, value in known.items():
            given += [] if name in given else [name, str(value)]
        status = main(given)
        captured = capsys.readouterr()
        return status, captured.out.splitlines(), captured.err.splitlines()

    return run


class KilledError(BaseException):
    """Nothing may catch it, as nothing catches a kill."""


@dataclass
class Machine:
    """Trains nothing, at a chosen speed, by clocks of its own."""

    now: float = 0.0
    computed: float = 0.0
    per_step: Callable[[int], float] = lambda size: 1.0  # seconds that a step computes
    load: Callable[[float], float] = lambda now: 1.0  # how much longer a step takes at this time
    asked: list[tuple[Any, list[str], int]] = field(default_factory=list)  # cohort, runs, step
    trained: list[str] = field(default_factory=list)
    memory: int = 10**9  # runs
    kill_at: int | None = None  # step of some group
    meanwhile: Callable[[], None] = lambda: None
    status: Callable[[Any], dict[str, Any]] = lambda run: {}

    @property
    def sizes(self) -> list[int]:
        return [len(run_ids) for _, run_ids, _ in self.asked]

    def run_job(self, cohort, runs, arrays, folder, device, parallel, on_progress) -> ResultRows:
        from torch.cuda import OutOfMemoryError

        from oso_dp.errors import InterruptedByUser

        kept = folder / "state.pt"
        first = int(kept.read_text()) if kept.exists() else 0
        self.asked.append((cohort, [run.run_id for run in runs], first))
        if len(runs) > self.memory:
            raise OutOfMemoryError
        self.meanwhile()
        for step in range(first + 1, cohort.steps + 1):
            self.computed += self.per_step(len(runs))
            self.now += self.per_step(len(runs)) * self.load(self.now)
            if step % cohort.evaluate_every == 0:
                kept.write_text(str(step))
            if step == self.kill_at:
                self.kill_at = None
                raise KilledError
            try:
                on_progress(0, step)
            except InterruptedByUser:
                kept.write_text(str(step))
                raise
        self.trained += [run.run_id for run in runs]
        rows = [run_row(cohort, run) | self.status(run) for run in runs]
        return ResultRows(rows, [row for run in runs for row in score_rows(run, [cohort.steps])])

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def machine(monkeypatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(scheduling, "run_job", made.run_job)
    monkeypatch.setattr(Scheduler, "_refresh", lambda self: self.store.refresh())  # no stored times
    return made


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def make(plan, machine, said, tmp_path) -> Callable[..., Scheduler]:
    """A scheduler over the small study, by the machine's clocks."""

    def make(seconds: float = 1e9, only: str = "", parallel: int = 1, **other: Any) -> Scheduler:
        jobs = [job for job in list_jobs([other.pop("plan", plan)]) if only in job.cohort.name]
        shared: dict[str, Any] = {
            "levels": rank_runs(jobs),
            "planned_seconds": dict.fromkeys({task_of(job.cohort) for job in jobs}, 1.0),
            "parallel_runs": dict.fromkeys({task_of(job.cohort) for job in jobs}, parallel),
            "store": other.get("store") or ShardStore(tmp_path / "out"),
            "load_arrays": lambda data_file: None,
            "deadline": machine.now + seconds,
            "clock": lambda: machine.now,
            "cpu_clock": lambda: machine.computed,
            "sleep": machine.sleep,
            "say": said.append,
        }
        return Scheduler(**{**shared, **other})

    return make
