"""The linear scaling rule (Panda et al. 2024) in a study: validation, and the search of a cohort.

Such a search has one cohort for each of its stages (`oso_dp.accounting.linear_scaling`), all with
the same points and seeds. The final run that the rule selects is looked up after training.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from oso_dp.accounting.search_accounting import (
    LINEAR_SCALING,
    TRIAL_FRACTIONS,
    find_fraction_error,
    format_fractions,
)
from oso_dp.methods import find_method, method_names

if TYPE_CHECKING:
    from oso_dp.accounting.linear_scaling import LinearScalingSearch
    from oso_dp.study.cohort import Cohort


def resolve_trial_fractions(
    search_accounting: str, given: Sequence[float] | None
) -> tuple[float, ...] | None:
    """The trials' fractions of epsilon: the given ones or the default; None without trials."""
    if search_accounting != LINEAR_SCALING:
        return None
    return TRIAL_FRACTIONS if given is None else tuple(given)


def make_linear_scaling_search(cohort: Cohort) -> LinearScalingSearch:
    """The search of which a cohort of the linear scaling rule is one stage."""
    from oso_dp.accounting.linear_scaling import LinearScalingSearch

    assert cohort.trial_fractions is not None
    return LinearScalingSearch(
        cohort.sampling, cohort.steps, cohort.grid_runs, cohort.trial_fractions
    )


def check_linear_scaling(
    search_accounting: str,
    trial_fractions: Sequence[float] | None,
    methods: Iterable[str],
    grid_points: str,
) -> None:
    """ValueError for what a study cannot combine with this search accounting."""
    if search_accounting != LINEAR_SCALING:
        if trial_fractions is not None:
            raise ValueError(
                f"trial_fractions: {format_fractions(trial_fractions)}; only with "
                f"search_accounting: {LINEAR_SCALING}"
            )
        return
    if trial_fractions is not None and (wrong := find_fraction_error(trial_fractions)):
        raise ValueError(f"trial_fractions: {format_fractions(trial_fractions)}; {wrong}")
    if grid_points != "all":
        raise ValueError(
            f"grid_points: {grid_points}; must be all with search_accounting: {LINEAR_SCALING}, "
            "which needs each trial's best point"
        )
    supported = [name for name in method_names() if _takes_linear_scaling(name)]
    for name in methods:
        if name in method_names() and name not in supported:
            private = find_method(name).is_private
            why = "does not search the learning rate" if private else "has no privacy"
            raise ValueError(
                f"methods.{name}: {why}; with search_accounting: {LINEAR_SCALING}, must be one of "
                f"{', '.join(supported)}"
            )


def _takes_linear_scaling(name: str) -> bool:
    method = find_method(name)
    return method.is_private and "learning_rate" in method.search
