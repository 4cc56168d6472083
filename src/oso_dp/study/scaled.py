"""The linear scaling rule in a study: what may be asked of it, and the search of a cohort.

A search has several cohorts there, one for each of its parts (`accounting.scaled_search`), of the
same points and seeds. Which of the final ones the rule would have run is looked up afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from oso_dp.accounting.trial_shares import TRIAL_SHARES, shares_complaint, text_of
from oso_dp.accounting.tuning import LINEAR_SCALING
from oso_dp.methods import find_method, method_names

if TYPE_CHECKING:
    from oso_dp.accounting.scaled_search import ScaledSearch
    from oso_dp.study.cohort import Cohort


def shares_of(selection: str, given: Sequence[float] | None) -> tuple[float, ...] | None:
    """The trials' shares of epsilon: those that are given, or the usual; None without trials."""
    if selection != LINEAR_SCALING:
        return None
    return TRIAL_SHARES if given is None else tuple(given)


def scaled_search(cohort: Cohort) -> ScaledSearch:
    """The whole search that a cohort by the linear scaling rule is a part of."""
    from oso_dp.accounting.scaled_search import ScaledSearch

    assert cohort.trial_shares is not None
    return ScaledSearch(cohort.sampling, cohort.steps, cohort.grid_runs, cohort.trial_shares)


def check_scaled(
    selection: str, trial_shares: Sequence[float] | None, methods: Iterable[str], points: str
) -> None:
    """ValueError for what a study cannot do under this selection.

    points: of each grid, as the key `select` has it.
    """
    if selection != LINEAR_SCALING:
        if trial_shares is not None:
            raise ValueError(
                f"trial_shares {text_of(trial_shares)}: only where selection is {LINEAR_SCALING}"
            )
        return
    if trial_shares is not None and (wrong := shares_complaint(trial_shares)):
        raise ValueError(f"trial_shares {text_of(trial_shares)}: {wrong}")
    if points != "grid":
        raise ValueError(
            f"select {points}: selection {LINEAR_SCALING} looks for each trial's best point; "
            "allowed is grid"
        )
    able = [name for name in method_names() if _is_able(name)]
    for name in methods:
        if name in method_names() and name not in able:
            private = find_method(name).private
            why = "does not search the learning rate" if private else "has no privacy"
            raise ValueError(
                f"methods.{name}: {why}; with selection {LINEAR_SCALING} allowed are "
                f"{', '.join(able)}"
            )


def _is_able(name: str) -> bool:
    method = find_method(name)
    return method.private and "learning_rate" in method.search
