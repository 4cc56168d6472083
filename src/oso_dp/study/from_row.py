"""Rebuild a run and its cohort from a stored row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oso_dp.errors import OsoError
from oso_dp.study.cohort import PlannedCohort, Run
from oso_dp.study.identity import (
    COHORT,
    IDENTITY_DEFAULTS,
    OPTIONS,
    POINT,
    parse_method_options,
    parse_trial_fractions,
)


def make_run(row: Mapping[str, Any]) -> tuple[PlannedCohort, Run]:
    """The run, and its cohort with this run alone.

    row: of the table `runs`, None where a value is null. OsoError where its values do not give its
    run_id, since it is then unknown what was trained.
    """
    if row["model"] is None:
        raise OsoError(f"run {row['run_id']}: model: must not be null")
    known = {name: row[name] for name in OPTIONS if row[name] is not None}
    facts = {**dict.fromkeys(OPTIONS), **IDENTITY_DEFAULTS, **known}
    facts |= {name: row[name] for name in (*COHORT, "precision")}
    facts["method_options"] = parse_method_options(facts["method_options"])
    if facts["trial_fractions"] is not None:
        facts["trial_fractions"] = parse_trial_fractions(facts["trial_fractions"])
    cohort = PlannedCohort(**facts, noise_multiplier=row["noise_multiplier"] or 0.0)
    learning_rate, threshold, quantile = (row[name] for name in POINT)
    cohort = cohort.with_runs([(learning_rate, threshold, quantile)], [row["seed"]])
    (run,) = cohort.runs
    if run.run_id != row["run_id"]:
        raise OsoError(f"run {row['run_id']}: its values give another identity, {run.run_id}")
    return cohort, run
