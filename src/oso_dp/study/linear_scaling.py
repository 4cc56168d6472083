"""The linear scaling rule in a study: what may be asked of it, and the search of a cohort.

A search has several cohorts there, one for each of its parts (`accounting.scaled_search`), of the
same points and seeds. Which of the final ones the rule would have run is looked up afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from oso_dp.accounting.search_accounting import LINEAR_SCALING
from oso_dp.accounting.trial_fractions import TRIAL_FRACTIONS, find_fraction_error, format_fractions
from oso_dp.methods import find_method, method_names

if TYPE_CHECKING:
    from oso_dp.accounting.linear_scaling import LinearScalingSearch
    from oso_dp.study.cohort import Cohort


def resolve_trial_fractions(
    search_accounting: str, given: Sequence[float] | None
) -> tuple[float, ...] | None:
    """The trials' shares of epsilon: those that are given, or the usual; None without trials."""
    if search_accounting != LINEAR_SCALING:
        return None
    return TRIAL_FRACTIONS if given is None else tuple(given)


def make_linear_scaling_search(cohort: Cohort) -> LinearScalingSearch:
    """The whole search that a cohort by the linear scaling rule is a part of."""
    from oso_dp.accounting.linear_scaling import LinearScalingSearch

    assert cohort.trial_fractions is not None
    return LinearScalingSearch(
        cohort.sampling, cohort.steps, cohort.grid_runs, cohort.trial_fractions
    )


def check_linear_scaling(
    search_accounting: str,
    trial_fractions: Sequence[float] | None,
    methods: Iterable[str],
    points: str,
) -> None:
    """ValueError for what a study cannot do under this selection.

    points: of each grid, as the key `grid_points` has it.
    """
    if search_accounting != LINEAR_SCALING:
        if trial_fractions is not None:
            raise ValueError(
                f"trial_fractions {format_fractions(trial_fractions)}: only where search_accounting is "
                f"{LINEAR_SCALING}"
            )
        return
    if trial_fractions is not None and (wrong := find_fraction_error(trial_fractions)):
        raise ValueError(f"trial_fractions {format_fractions(trial_fractions)}: {wrong}")
    if points != "all":
        raise ValueError(
            f"grid_points {points}: search_accounting {LINEAR_SCALING} looks for each trial's best point; "
            "allowed is all"
        )
    able = [name for name in method_names() if _takes_linear_scaling(name)]
    for name in methods:
        if name in method_names() and name not in able:
            private = find_method(name).is_private
            why = "does not search the learning rate" if private else "has no privacy"
            raise ValueError(
                f"methods.{name}: {why}; with search_accounting {LINEAR_SCALING} allowed are "
                f"{', '.join(able)}"
            )


def _takes_linear_scaling(name: str) -> bool:
    method = find_method(name)
    return method.is_private and "learning_rate" in method.search
