"""The scheduler: selects and trains the next group of runs until the deadline or no run is left."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from oso_dp.data.arrays import Arrays
from oso_dp.errors import InterruptedByUser, OsoError
from oso_dp.scheduler.priorities import Selection
from oso_dp.scheduler.shard_store import Group, ShardStore, remove_unless_spent
from oso_dp.study.calibration import check_budget
from oso_dp.study.cohort import Cohort, PlannedCohort, Run
from oso_dp.training.job import run_job
from oso_dp.training.provenance import device_name

Task = tuple[str, str]  # data set and model, of which a step has one cost for each method
SLACK = 1.05  # factor on an estimated time
WARMUP_SECONDS, WARMUP_FRACTION = 1.0, 0.02  # of a measurement; the latter of the time left
POLL_SECONDS, STATUS_SECONDS = 5.0, 180.0
HELD, LATE = "another process holds this cohort", "cannot end before the deadline"


def task_of(cohort: Cohort) -> Task:
    return cohort.dataset, cohort.model


class OutOfTimeError(InterruptedByUser):
    """A group cannot end before the deadline."""


@dataclass
class Scheduler:
    """Trains the runs that the store lacks, level after level (see `rank_runs`).

    The throughput is the fastest that was measured, since a loaded machine may be idle later. On a
    CPU only this process's computing time counts (`cpu_clock`). `check` is called after each step
    and may raise InterruptedByUser. The last level has all runs.
    """

    levels: Sequence[Sequence[Selection]]
    planned_seconds: Mapping[Task, float]  # of a step
    parallel_runs: dict[Task, int]
    store: ShardStore
    load_arrays: Callable[[str], Arrays]  # by data file
    deadline: float  # on `clock`
    device: str = "cpu"
    check: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    cpu_clock: Callable[[], float] = time.process_time
    sleep: Callable[[float], None] = time.sleep
    say: Callable[[str], None] = print
    throughput: dict[tuple[Task, str], float] = field(default_factory=dict)  # by method, seconds
    set_aside: set[Group] = field(default_factory=set)  # groups that are not tried again
    _reported_at: dict[str, float] = field(default_factory=dict)  # by reason to wait

    def run(self) -> None:
        self.runs_before = len(self.store.runs)
        while self.clock() < self.deadline:
            self.check()
            waits = self._train_next()
            if waits is not None:
                if HELD not in waits:
                    break
                self.say_status()
                self.sleep(POLL_SECONDS)
        self.say_status(now=True)

    def list_left(self) -> dict[str, PlannedCohort]:
        """The cohort of each run that is missing, by run_id."""
        cohorts = {run.run_id: job.cohort for job, runs in self.levels[-1] for run in runs}
        return {run: cohort for run, cohort in cohorts.items() if run not in self.store.done}

    def say_status(self, now: bool = False) -> None:
        """Report the status: every few minutes by one of the processes of the folder, or now."""
        if now or self.store.is_status_due(STATUS_SECONDS):
            self._refresh()
            left = self.list_left()
            hours = sum(map(self._run_seconds, left.values())) / 3600
            self.say(
                f"{len(self.store.runs) - self.runs_before:,} runs done, {len(left):,} left (about "
                f"{hours:,.1f} h of one process), {self._left() / 60:.0f} min to the deadline"
            )

    def _left(self) -> float:
        return max(0.0, self.deadline - self.clock())

    def _refresh(self) -> None:
        """Read the new shards, and the throughput from their times."""
        self.store.refresh()
        rows = self.store.runs
        rows = rows[(rows["device"] == device_name(self.device)) & (rows["status"] == "finished")]
        seconds = (rows["wall_seconds"] / rows["steps"])[rows["wall_seconds"] > 0].astype(float)
        keys = [rows[name] for name in ("dataset", "model", "method")]
        for (dataset, model, method), fastest in seconds.groupby(keys).min().items():
            self._note((dataset, model), method, fastest)

    def _note(self, task: Task, method: str, seconds: float) -> None:
        """Note the seconds of a step and run."""
        key = task, method
        self.throughput[key] = min(seconds, self.throughput.get(key, math.inf))

    def _run_seconds(self, cohort: Cohort, planned: bool = True) -> float:
        """As measured for its method, else the slowest of its task, else as planned or 0."""
        task = task_of(cohort)
        like = [seconds for (other, _), seconds in self.throughput.items() if other == task]
        slowest = max(like, default=self.planned_seconds[task] if planned else 0.0)
        return cohort.steps * self.throughput.get((task, cohort.method), slowest)

    def _order(self) -> Iterator[Selection]:
        """All missing runs; in each level the cheapest first."""
        done = self.store.done
        for level in self.levels:
            left = [(job, tuple(r for r in runs if r.run_id not in done)) for job, runs in level]
            yield from sorted(
                [(job, runs) for job, runs in left if runs],
                key=lambda one: len(one[1]) * self._run_seconds(one[0].cohort),
            )

    def _train_next(self) -> set[str] | None:
        """Train the most valuable group that is free and ends in time; else why there is none."""
        self._refresh()
        waits: set[str] = set()  # the reasons to pass over cohorts
        for job, runs in self._order():
            cohort = job.cohort
            with self.store.claim(cohort.name) as claimed:
                missing = [run for run in runs if run.run_id not in self.store.done]
                group = next(self._list_groups(cohort, missing), None) if claimed else None
                if group is not None:
                    self._train(cohort, group)
                    return None
            needed = f"needs {SLACK * self._run_seconds(cohort) / 60:.0f} min"
            details = f" ({needed}, {self._left() / 60:.0f} left)" if claimed else ""
            if missing:
                self._say_wait(cohort, LATE if claimed else HELD, details)
                waits.add(LATE if claimed else HELD)
        return waits

    def _say_wait(self, cohort: Cohort, reason: str, details: str) -> None:
        """Report a waiting cohort, at most once per reason and interval."""
        if self.clock() >= self._reported_at.get(reason, -math.inf) + STATUS_SECONDS:
            self._reported_at[reason] = self.clock()
            self.say(f"{cohort.name}: waits: {reason}{details}")

    def _list_groups(self, cohort: Cohort, missing: Sequence[Run]) -> Iterator[Group]:
        """Started groups, then the largest that ends in time. The cohort must be claimed."""
        yield from (g for g in self.store.list_started(cohort) if g not in self.set_aside)
        if not cohort.is_public:  # a group that was set aside may have finished some of its runs
            aside = {run for group in self.set_aside for run in group}
            missing = [run for run in missing if run not in aside]
        size = min(self.parallel_runs[task_of(cohort)], len(missing))
        while size:
            group = tuple(missing[:size])
            needed = SLACK * size * self._run_seconds(cohort, planned=False)
            if group not in self.set_aside and needed <= self._left():
                yield group
            size //= 2

    def _train(self, cohort: PlannedCohort, group: Group) -> None:
        check_budget([cohort])
        arrays, watch = self.load_arrays(cohort.data_file), _Watch(self, cohort.steps)
        folder = self.store.start(cohort, group)
        text = f"{cohort.name}: {len(group)} run{'s' * (len(group) > 1)} of {cohort.steps} steps"
        try:
            rows = run_job(cohort, group, arrays, folder, self.device, len(group), watch)
        except OutOfTimeError:
            self.set_aside.add(group)
            self.say(f"{text}: stopped at step {watch.step}, {LATE}; the checkpoint is kept")
        except torch.cuda.OutOfMemoryError:
            if not remove_unless_spent(folder, cohort):
                self.set_aside.add(group)
            if len(group) == 1:
                raise OsoError(
                    f"{cohort.name}: the device has too little memory for a single run"
                ) from None
            self.parallel_runs[task_of(cohort)] = len(group) // 2
            self.say(f"{text}: exceeds the device's memory; next {len(group) // 2} in parallel")
            return
        else:
            self.store.finish(folder, rows)
            self.say(f"{text}: finished, {watch.per_step:.3g} s per step")
            if watch.step < cohort.steps:  # all diverged: fewer and fewer runs took these steps
                return
        if watch.per_step:
            self._note(task_of(cohort), cohort.method, watch.per_step / len(group))


class _Watch:
    """Callback after each step of a group: measures its speed, and ends it if it is too slow.

    The measurement starts after the first step, which is slower.
    """

    def __init__(self, scheduler: Scheduler, steps: int) -> None:
        self.scheduler, self.steps, self.step, self.per_step = scheduler, steps, 0, 0.0

    def __call__(self, done: int, step: int) -> None:
        scheduler = self.scheduler
        scheduler.check()
        scheduler.say_status()
        now, computed = scheduler.clock(), scheduler.cpu_clock()
        if step <= self.step or not self.step:
            self.first = step, now, computed
        self.step = step
        first, began, computed_before = self.first
        if step > first:
            self.per_step = min(now - began, computed - computed_before) / (step - first)
        left = scheduler.deadline - now
        is_measured = now - began >= max(WARMUP_SECONDS, WARMUP_FRACTION * (left + now - began))
        ahead = self.per_step * (self.steps - step) / SLACK if is_measured else 0.0
        if step < self.steps and ahead > left:
            raise OutOfTimeError
