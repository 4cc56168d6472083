"""Evaluations over the steps of selected runs, and their means over seeds."""

import pandas as pd


def trajectories(runs: pd.DataFrame, evaluations: pd.DataFrame) -> pd.DataFrame:
    """The evaluations on `test` of some runs, with each run's method, epsilon, seed and status."""
    keep = ["run_id", "method", "epsilon", "seed", "status"]
    seen = evaluations[evaluations["run_id"].isin(runs["run_id"])]
    seen = seen[seen["split"] == "test"]
    return seen.merge(runs[keep], on="run_id").sort_values(["run_id", "step"])


def average_over_seeds(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Columns method, step, mean, min and max of `column`, over the runs of `trajectories`."""
    return rows.groupby(["method", "step"])[column].agg(["mean", "min", "max"]).reset_index()
