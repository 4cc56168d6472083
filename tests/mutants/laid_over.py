"""Faults of what is laid over a method's steps: a falling rate, an average of the iterates."""

from fault import Fault, T, of_kind

SCHEDULE, IDENTITY = T + "test_schedule.py", "tests/study/test_schedules.py"
_SCHEDULE, _LOOP = "training/schedule.py", "training/loop.py"

LAID_OVER = [
    *of_kind(
        "books",
        Fault(
            "runs with a falling rate and without share their noise",
            "study/cohort.py",
            'added = {"schedule": self.schedule, "averaging": self.averaging}',
            'added = {"averaging": self.averaging}',
            IDENTITY,
        ),
        Fault(
            "plans of before are none",
            "study/plan.py",
            '_RARE = ("schedule", "averaging", ',
            '_RARE = ("schedule", ',
            "tests/study/test_plan.py",
        ),
    ),
    *of_kind(
        "reported",
        Fault(
            "a falling rate is constant",
            "training/job.py",
            "schedule=cohort.schedule,",
            "schedule=None,",
            IDENTITY,
        ),
        Fault(
            "a falling rate begins a part too low",
            _SCHEDULE,
            "1 - (step - 1) / steps",
            "1 - step / steps",
            SCHEDULE,
        ),
        Fault(
            "a falling rate rises",
            _LOOP,
            "state.parameters = before.lerp(state.parameters, factor)",
            "state.parameters = before.lerp(state.parameters, 1 - factor)",
            SCHEDULE,
        ),
        Fault(
            "the average never forgets the first weights",
            _SCHEDULE,
            "min(decay, (1 + step) / (10 + step))",
            "decay",
            SCHEDULE,
        ),
        Fault(
            "the average is taken and not evaluated",
            _LOOP,
            "self.problem.scores(state.evaluated[run])",
            "self.problem.scores(state.parameters[run])",
            SCHEDULE,
        ),
        Fault(
            "after a run has ended the next one has its average",
            "methods/base.py",
            "self.average = self.average[runs]",
            "self.average = self.average[: len(runs)]",
            SCHEDULE,
        ),
        Fault(
            "rows with a falling rate stand in the paper's tables",
            "analysis/points.py",
            "default=4 * plain + 2 * default",
            "default=2 * default",
            "tests/analysis/test_points.py",
        ),
    ),
]
