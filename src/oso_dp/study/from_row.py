"""Rebuild a run and its cohort from a stored row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oso_dp.errors import OsoError
from oso_dp.files import parse_json
from oso_dp.study.cohort import PlannedCohort, Run
from oso_dp.study.identity import IDENTITY_DEFAULTS, POINT

_COLUMNS = (
    *("dataset", "method", "momentum", "k", "epsilon", "delta", "search_accounting"),
    *("examples", "batch_size", "epochs", "precision"),
)
_SETTINGS = (
    *("model", "grid_runs", "evaluate_every", "final_activation"),
    *("loss", "oov_words", "randomness", "stopping_distribution"),
)


def make_run(row: Mapping[str, Any]) -> tuple[PlannedCohort, Run]:
    """The run, and its cohort with this run alone.

    row: of the table `runs`, None where a value is null. OsoError where its values do not give its
    run_id, since it is then unknown what was trained.
    """
    options = {**IDENTITY_DEFAULTS, **_run_options_of(row)}
    trial_fractions = options.get("trial_fractions")
    try:
        cohort = PlannedCohort(
            **{name: row[name] for name in _COLUMNS},
            **{name: options[name] for name in _SETTINGS},
            method_options=options["settings"],
            schedule=options.get("schedule"),
            averaging=options.get("averaging"),
            vocabulary=options.get("vocabulary"),
            stage=options.get("part"),
            trial_fractions=None if trial_fractions is None else tuple(trial_fractions),
            data_version=options.get("data_version"),
            budget_runs=options.get("budget_runs"),
            noise_multiplier=row["noise_multiplier"] or 0.0,
        )
    except KeyError as error:
        raise OsoError(f"run {row['run_id']}: settings: {error} is missing") from None
    learning_rate, threshold, quantile = (row[name] for name in POINT)
    cohort = cohort.with_runs([(learning_rate, threshold, quantile)], [row["seed"]])
    (run,) = cohort.runs
    if run.run_id != row["run_id"]:
        raise OsoError(f"run {row['run_id']}: its values give another identity, {run.run_id}")
    return cohort, run


def _run_options_of(row: Mapping[str, Any]) -> dict[str, Any]:
    if row["settings"] is None:
        raise OsoError(f"run {row['run_id']}: settings: must not be null")
    options: dict[str, Any] = parse_json(row["settings"])
    return options
