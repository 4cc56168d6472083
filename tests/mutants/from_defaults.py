"""Faults of runs without a search: which default is taken, what is laid over a user's training."""

from fault import Fault, of_kind

_UNSAID = "tests/private/test_unsaid.py"


FROM_DEFAULTS = of_kind(
    "reported",
    Fault(
        "losses of two data sets are held against each other in points",
        "analysis/surest_default.py",
        'sign * rows["mean"] / rows["dataset"].map(MARGINS)',
        'sign * rows["mean"]',
        "tests/analysis/test_surest_default.py",
    ),
    Fault(
        "the surest default is the one that loses least somewhere",
        "analysis/surest_default.py",
        'mine.loc[mine["loss"].idxmax()]',
        'mine.loc[mine["loss"].idxmin()]',
        "tests/analysis/test_surest_default.py",
    ),
    Fault(
        "a default is judged by the data sets that it was run on",
        "analysis/surest_default.py",
        "if len(mine) == places:",
        "if len(mine):",
        "tests/analysis/test_surest_default.py",
    ),
    Fault(
        "searches by other distributions of K are not shown",
        "analysis/random_stopping.py",
        "for _, alike in points.groupby(asked, sort=False)",
        "for alike in [points]",
        "tests/analysis/test_random_stopping.py",
    ),
    Fault(
        "the last weights are returned where their average was asked for",
        "private/one_training.py",
        "(training.state.evaluated if training.alive",
        "(training.state.parameters if training.alive",
        _UNSAID,
    ),
    Fault(
        "the history has the rate before the schedule",
        "private/one_training.py",
        "factor * float(state.learning_rate[0])",
        "float(state.learning_rate[0])",
        _UNSAID,
    ),
    Fault(
        "a user's schedule is not laid over the steps",
        "private/one_training.py",
        "schedule=None if choices.schedule == CONSTANT else choices.schedule,",
        "schedule=None,",
        _UNSAID,
    ),
    Fault(
        "starting values count for a method that nobody said",
        "private/unsaid.py",
        "for name in (*_said(start), *settings):",
        "for name in settings:",
        "tests/private/test_refused.py",
    ),
)
