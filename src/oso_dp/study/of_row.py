"""From a stored run's row back to the run: with all that decides its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oso_dp.errors import OsoError
from oso_dp.files import parse_json
from oso_dp.study.cohort import PlannedCohort, Run
from oso_dp.study.identity import POINT, USUAL

_COLUMNS = (
    *("dataset", "method", "momentum", "k", "epsilon", "delta", "selection"),
    *("examples", "batch_size", "epochs", "precision"),
)
_SETTINGS = (
    *("model", "grid_runs", "evaluate_every", "last_layer_nonlinearity"),
    *("loss", "unknown_words", "randomness", "stopping_shape"),
)


def run_of_row(row: Mapping[str, Any]) -> tuple[PlannedCohort, Run]:
    """The run, and its cohort with this run alone.

    row: of the table `runs`, None where a value is null. OsoError where its values do not give its
    identity, so that nobody could know what was trained.
    """
    said = {**USUAL, **_settings_of(row)}
    shares = said.get("trial_shares")
    try:
        cohort = PlannedCohort(
            **{name: row[name] for name in _COLUMNS},
            **{name: said[name] for name in _SETTINGS},
            method_settings=said["settings"],
            schedule=said.get("schedule"),
            averaging=said.get("averaging"),
            vocabulary=said.get("vocabulary"),
            part=said.get("part"),
            trial_shares=None if shares is None else tuple(shares),
            data_version=said.get("data_version"),
            budget_runs=said.get("budget_runs"),
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


def _settings_of(row: Mapping[str, Any]) -> dict[str, Any]:
    if row["settings"] is None:
        raise OsoError(f"run {row['run_id']}: settings: must not be null")
    settings: dict[str, Any] = parse_json(row["settings"])
    return settings
