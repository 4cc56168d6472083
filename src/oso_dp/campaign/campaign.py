"""The campaign: group after group, until the time or the work is over."""

import time
from collections.abc import Callable, Container, Iterator, Sequence

import torch

from oso_dp.campaign.control import StoppedError
from oso_dp.campaign.deadline import SLACK, Deadline, OutOfTimeError
from oso_dp.campaign.order import Preference, Work, portions, sizes
from oso_dp.campaign.parts import Parts
from oso_dp.campaign.speed import Speed
from oso_dp.data.arrays import Arrays
from oso_dp.errors import OsoError
from oso_dp.study.affordable import check_affordable
from oso_dp.study.cohort import Cohort, Run
from oso_dp.training.job import run_job
from oso_dp.training.provenance import device_name


class Campaign:
    """Trains the work that `parts` lack, until `deadline` on `clock`."""

    def __init__(
        self,
        everything: Sequence[Work],
        best: Container[str],
        parts: Parts,
        arrays: Callable[[str], Arrays],
        *,
        deadline: float,
        device: str = "cpu",
        runs_at_once: Callable[[str], int] = lambda model: 1,
        priorities: Sequence[Preference] = (),
        later: Container[str] = (),
        clock: Callable[[], float] = time.monotonic,
        look: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = print,
    ) -> None:
        """`best`: run_ids to go first; `arrays` loads a prepared file by name.

        `runs_at_once`: by model, to begin with. `priorities`, `later`: see `portions`. `look` is
        called after each step and between groups, and may raise StoppedError.
        """
        self.everything, self.best = everything, best
        self.parts, self.arrays, self.device = parts, arrays, device
        self.deadline, self.clock, self.look, self.say = deadline, clock, look, say
        self.priorities, self.later = priorities, later
        self.between: Callable[[], None] = lambda: None  # called after each step, too
        planned = {
            name: seconds
            for work in everything
            for name, seconds in work.plan.seconds_per_step.items()
        }
        self.at_once = {
            work.cohort.data_file: runs_at_once(work.cohort.model) for work in everything
        }
        self.speed = Speed(planned)
        self.measure()
        self.given_up: set[tuple[Run, ...]] = set()
        self.runs, self.groups = 0, 0  # done here

    def measure(self) -> None:
        """Take in what the parts say of the speed, of earlier calls and other processes, too."""
        for cohort, seconds in self.parts.measured(device_name(self.device), self.everything):
            self.speed.note(cohort, 1, seconds)

    def run(self) -> None:
        """Until nothing is left that ends in time, or somebody wants it to end."""
        try:
            while self.clock() < self.deadline and self._next():
                self.look()
        except StoppedError:
            self.say("stopped")
        self.parts.look()

    @property
    def left(self) -> list[tuple[Cohort, int]]:
        """Cohorts that are not complete, and how many runs they lack."""
        whole = portions(self.everything, (), self.parts.done, self.speed)
        return [(portion.work.cohort, len(portion.runs)) for portion in whole]

    @property
    def hours_left(self) -> float:
        """At the speed of this campaign, or as planned where nothing was measured."""
        return sum(runs * self.speed.run_seconds(cohort) for cohort, runs in self.left) / 3600

    def _next(self) -> bool:
        """Train the first group that is free and ends in time; False if there is none."""
        order = portions(
            self.everything, self.best, self.parts.done, self.speed, self.priorities, self.later
        )
        for portion in order:
            cohort = portion.work.cohort
            with self.parts.claim(cohort.name) as claimed:
                if not claimed:
                    continue
                runs = [run for run in portion.runs if run.run_id not in self.parts.done]
                group = next(self._groups(cohort, runs), None)
                if group is not None:
                    self._train(portion.work, group)
                    return True
        return False

    def _groups(self, cohort: Cohort, runs: Sequence[Run]) -> Iterator[tuple[Run, ...]]:
        """Groups to train next: what was begun, then as many runs as end in time."""
        for group in self.parts.started(cohort):
            if group not in self.given_up:
                yield group
        for size in sizes(min(self.at_once[cohort.data_file], len(runs))):
            group = tuple(runs[:size])
            seconds = self.speed.group_seconds(cohort, size) or 0.0
            if group not in self.given_up and self.clock() + SLACK * seconds <= self.deadline:
                yield group

    def _train(self, work: Work, group: tuple[Run, ...]) -> None:
        check_affordable([work.cohort])
        cohort = work.cohort
        arrays = self.arrays(cohort.data_file)
        resumed = self.parts.has_checkpoint(cohort, group)
        deadline = Deadline(cohort.steps, self.deadline, self.clock)
        began = self.clock()
        try:
            folder = self.parts.begin(cohort, group)
            rows = run_job(
                cohort,
                group,
                arrays,
                folder,
                self.device,
                len(group),
                self._watched(deadline),
                self.clock,
            )
        except OutOfTimeError:
            self._give_up(cohort, group, deadline)
            return
        except torch.cuda.OutOfMemoryError:
            self._halve(cohort, group)
            return
        self.parts.write(cohort, group, rows)
        self.runs += len(group)
        self.groups += 1
        seconds = self.clock() - began
        # A whole group's own time, with all that comes on top of its steps; but not if it went on
        # from a checkpoint, or ended early because all its runs diverged.
        per_step = deadline.per_step if resumed else seconds / cohort.steps
        if per_step is not None and deadline.step == cohort.steps:
            self.speed.note(cohort, len(group), per_step)
        self.say(
            f"{cohort.name}: {_runs(group)} of {cohort.steps} steps, "
            f"{_pace(per_step)}, {seconds:.1f} s"
        )

    def _watched(self, deadline: Deadline) -> Callable[[int, int], None]:
        def on_progress(done: int, step: int) -> None:
            self.look()
            deadline(done, step)
            self.between()

        return on_progress

    def _give_up(self, cohort: Cohort, group: tuple[Run, ...], deadline: Deadline) -> None:
        self.given_up.add(group)
        kept = self.parts.has_checkpoint(cohort, group)
        if not kept:
            self.parts.drop(cohort, group)
        if deadline.per_step is not None:
            self.speed.note(cohort, len(group), deadline.per_step)
        self.say(
            f"{cohort.name}: {_runs(group)} stopped at step {deadline.step} of {cohort.steps}, "
            f"{_pace(deadline.per_step)}: too late to end in time"
            + ("; another call goes on from there" if kept else "")
        )

    def _halve(self, cohort: Cohort, group: tuple[Run, ...]) -> None:
        self.parts.drop(cohort, group)
        if len(group) == 1:
            raise OsoError(f"{cohort.name}: the device's memory is too small for a single run")
        self.at_once[cohort.data_file] = len(group) // 2
        self.say(f"{cohort.name}: {_runs(group)} need more than the device's memory")


def _runs(group: Sequence[Run]) -> str:
    return f"{len(group)} run{'s' if len(group) > 1 else ''}"


def _pace(per_step: float | None) -> str:
    return "speed unknown" if per_step is None else f"{per_step:.3g} s per step"
