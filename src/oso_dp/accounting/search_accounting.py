"""The values of `search_accounting`: how the privacy cost of a hyperparameter search is counted.

`COMPOSITION`: all N runs are released and counted (Galli et al. 2024, "Experiments").
`RANDOM_STOPPING`: a random number of random grid points is trained, and only the best is released
(Papernot and Steinke 2022).
`SINGLE`: no search; each grid point is an untuned run that spends the complete budget. A study of
public data evaluates all of them; releasing more than one would be a composition.
`LINEAR_SCALING`: trials, grids at small budgets, show how the best learning rate grows with
epsilon, and one final run uses the predicted rate (Panda et al. 2024). All trials and one final run
are counted. A study of public data has a final run at each grid point, to look that one up;
releasing more of them would cost more.

Imports no accountant, so that reading a plan does not.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

COMPOSITION: Final = "composition"
RANDOM_STOPPING: Final = "random_stopping"
SINGLE: Final = "single"
LINEAR_SCALING: Final = "linear_scaling"
GRID_SEARCHES: Final = (COMPOSITION, RANDOM_STOPPING)
# All runs of such a search have the same noise.
SINGLE_NOISE_SEARCHES: Final = (*GRID_SEARCHES, SINGLE)
SEARCH_ACCOUNTINGS: Final = (*SINGLE_NOISE_SEARCHES, LINEAR_SCALING)


TRIAL_FRACTIONS: Final = (0.1, 0.2)  # default
FINAL_STAGE: Final = "final"


def make_stages(fractions: Sequence[float]) -> tuple[str, ...]:
    """The names of the stages, in order: trial 1, trial 2, ..., final."""
    return (*(f"trial {number + 1}" for number in range(len(fractions))), FINAL_STAGE)


def find_fraction_error(fractions: Any) -> str | None:
    """Why these are not valid trial fractions; None if they are."""
    if not isinstance(fractions, list | tuple) or len(fractions) < 2:
        return "must be two numbers or more: a line needs two points"
    if not all(type(fraction) is float and 0 < fraction < 1 for fraction in fractions):
        return "each must be a number > 0 and < 1"
    if any(later <= fraction for fraction, later in pairwise(fractions)):
        return "must increase"
    if math.fsum(fractions) >= 1:
        return "their sum must be < 1: the rest is the final run's"
    return None


def find_stage_error(search_accounting: str, stage: Any, fractions: Any) -> str | None:
    """Why a cohort's search_accounting, stage and fractions contradict each other, or None."""
    if search_accounting != LINEAR_SCALING:
        name = (
            "stage" if stage is not None else "trial_fractions" if fractions is not None else None
        )
        return name and f"{name}: only allowed if search_accounting is {LINEAR_SCALING}"
    if error := find_fraction_error(fractions):
        return f"trial_fractions: {format_fractions(fractions)}; {error}"
    if stage not in make_stages(fractions):
        return f"stage: {str(stage)[:40]!r}; must be one of {', '.join(make_stages(fractions))}"
    return None


def format_fractions(fractions: Any) -> str:
    """Fractions, valid or not, for a message."""
    values = fractions if isinstance(fractions, list | tuple) else [fractions]
    return ", ".join(str(value) for value in values)[:40]
