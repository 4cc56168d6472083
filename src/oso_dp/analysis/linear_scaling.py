"""Outcomes of searches by the linear scaling rule (Panda et al. 2024): trials, a line, a final run.

Each trial's best point has a learning rate, and r = learning rate x steps. A line through the r of
the trials, over the epsilon of one run of each, gives r at the epsilon of the final run; with more
than two trials it is the least-squares line. The study has final runs at the grid's points only, so
the learning rate is clipped to the grid's range (also where the line falls, or is below 0) and
rounded to the nearest grid value on the log scale; this rounding is not part of the paper. Other
searched hyperparameters keep the value of the last trial's best point.

The axis is the epsilon of one run, not of a whole trial: a trial splits its budget among N runs,
and the best learning rate depends on the noise of one run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from oso_dp import labels
from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting import LINEAR_SCALING
from oso_dp.accounting.search_accounting.linear_scaling import FINAL_STAGE, make_stages
from oso_dp.analysis.result_set import ResultSet, cached_per_study
from oso_dp.analysis.untuned_runs import win_ranges
from oso_dp.analysis.values import (
    CELL,
    COMPARABLE_ON,
    POINT,
    VARIANT,
    are_comparable,
    best_row,
    grid_points,
    main_variants,
    sort_as_paper,
    variant_labels,
)
from oso_dp.defaults import ROUNDING
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.cohort import sampling_of
from oso_dp.study.identity import parse_trial_fractions

PER_SEED = [
    *(*CELL, "variant", "seed", "metric", *COMPARABLE_ON),
    "grid_runs",  # of each trial
    "trial_fractions",  # of epsilon, one per trial; comma-separated
    "trial_epsilons",  # of one run of each trial; these two comma-separated
    "trial_learning_rates",  # of the trials' best points
    "final_epsilon",  # of the final run alone
    "extrapolated",  # learning rate on the line at that epsilon
    *POINT,  # of the final run
    *("value", "status"),  # of that run; printed unit
    "noise_multiplier",  # of that run
    "beyond",  # whether the line leaves the range of the grid
    "lacks",  # the first stage with missing rows; empty where the search is complete
]
OUTCOMES = [
    *(
        *CELL,
        "variant",
        *COMPARABLE_ON,
        "grid_runs",
        "trial_fractions",
        "metric",
        "mean",
        "std",
        "seeds",
    ),
    *("searches", "finals", "noise_multiplier"),  # finals: searches whose final run was made
    "learning_rates",  # of the final runs, and how many seeds took each
    "beyond",  # number of `finals` for which the line leaves the range of the grid
    *("own_mean", "own_std", "own_seeds", "own_noise_multiplier"),  # the method's searched grid
    *("guess_mean", "guess_std", "guess_seeds", "guess_noise_multiplier"),  # the best untuned run
]
# Columns that distinguish searches of one cell.
_SEARCH = [
    name for name in VARIANT if name not in ("stage", "noise_multiplier", "query_noise_multiplier")
]


def extrapolate(epsilons: Sequence[float], radii: Sequence[float], epsilon: float) -> float:
    """r at this epsilon, on the least-squares line through the trials' values.

    Constant if all trials have the same epsilon. The result may be negative.
    """
    middle, level = float(np.mean(epsilons)), float(np.mean(radii))
    apart = np.asarray(epsilons) - middle
    width = float(apart @ apart)
    slope = float(apart @ (np.asarray(radii) - level)) / width if width > 0 else 0.0
    return level + slope * (epsilon - middle)


def nearest(learning_rate: float, grid: Sequence[float]) -> float:
    """The grid value nearest on the log scale; the smallest one for 0 and below."""
    low, high = min(grid), max(grid)
    held = math.log(min(max(learning_rate, low), high))
    return min(grid, key=lambda value: abs(math.log(value) - held))


@cached_per_study
def list_searches(study: ResultSet) -> pd.DataFrame:
    """One row per search and seed, columns `PER_SEED`: the rule's decisions and their outcome.

    Null from `extrapolated` on where rows of a stage are missing, or no row of a trial has a value;
    `lacks` names that stage.
    """
    values = study.values[study.values["search_accounting"] == LINEAR_SCALING]
    if values.empty:
        return pd.DataFrame(columns=PER_SEED)
    values = values.assign(variant=variant_labels(values))
    groups = values.groupby(["cell", *_SEARCH], dropna=False)
    values["variant_key"] = groups.ngroup()
    kept = {
        variant
        for _, alike in values.groupby("variant")
        for variant in main_variants(grid_points(alike))["variant_key"]
    }
    values = values[values["variant_key"].isin(kept)]
    rows = [_outcome(rows) for _, rows in values.groupby(["variant_key", "seed"], sort=False)]
    return sort_as_paper(pd.DataFrame(rows, columns=PER_SEED))


def outcomes(study: ResultSet) -> pd.DataFrame:
    """One row per cell and variant, columns `OUTCOMES`; printed unit.

    mean, std: over the seeds whose final run has a value. The method's grid search and its best
    untuned run are added if they have the same precision, length and delta.
    """
    guessed = win_ranges(study).set_index([*CELL, "variant"]).sort_index()
    best = study.plain_best.set_index(CELL).sort_index()
    rows = []
    for cell, seeds in list_searches(study).groupby([*CELL, "variant"], sort=False, dropna=False):
        row = dict(zip([*CELL, "variant"], cell, strict=True))
        taken = seeds[seeds["lacks"] == ""]
        counts = taken["learning_rate"].value_counts().sort_index()
        row |= {
            **{
                name: seeds[name].iloc[0]
                for name in (*COMPARABLE_ON, "grid_runs", "trial_fractions")
            },
            "metric": seeds["metric"].iloc[0],
            "mean": taken["value"].mean(),
            "std": taken["value"].std(),
            "seeds": int(taken["value"].count()),
            "searches": len(seeds),
            "finals": len(taken),
            "noise_multiplier": taken["noise_multiplier"].min(),
            "learning_rates": ", ".join(f"{value:g} ({n})" for value, n in counts.items()),
            "beyond": int(taken["beyond"].sum()),
        }
        factor = labels.display_factor(row["metric"])
        if cell[:-1] in best.index:
            same_cell = best.loc[cell[:-1]]
            if are_comparable(row, same_cell):
                row |= {
                    "own_mean": same_cell["mean"] * factor,
                    "own_std": same_cell["std"] * factor,
                }
                row |= {f"own_{name}": same_cell[name] for name in ("seeds", "noise_multiplier")}
        if cell in guessed.index:
            guess = guessed.loc[cell]
            if are_comparable(row, guess):
                row |= {f"guess_{name}": guess[f"best_{name}"] for name in ("mean", "std", "seeds")}
                row["guess_noise_multiplier"] = guess["noise_multiplier"]
        rows.append(row)
    return sort_as_paper(pd.DataFrame(rows, columns=OUTCOMES))


def _outcome(rows: pd.DataFrame) -> dict[str, Any]:
    """The outcome of one search under one seed."""
    first = rows.iloc[0]
    row = {name: first[name] for name in (*CELL, "variant", "seed", "metric", *COMPARABLE_ON)}
    grid_runs = int(first["grid_runs"])
    row |= {"trial_fractions": first["trial_fractions"], "grid_runs": grid_runs}
    row |= {"lacks": "", "beyond": False}
    *trials, final = make_stages(parse_trial_fractions(first["trial_fractions"]))
    epsilons, radii, best = [], [], first
    for part in trials:
        of_part = rows[rows["stage"] == part]
        if len(of_part.drop_duplicates("point")) < grid_runs or of_part["value"].isna().all():
            return row | {"lacks": part}
        best = best_row(of_part, "value")
        epsilons.append(_stage_epsilon(best))
        radii.append(best["learning_rate"] * best["steps"])
    row["trial_epsilons"] = _numbers(epsilons)
    row["trial_learning_rates"] = _numbers([radius / first["steps"] for radius in radii])
    finals = rows[rows["stage"] == final]
    if finals.empty:
        return row | {"lacks": FINAL_STAGE}
    grid = rows.loc[rows["stage"] != final, "learning_rate"].unique()
    row["final_epsilon"] = _stage_epsilon(finals.iloc[0])
    row["extrapolated"] = extrapolate(epsilons, radii, row["final_epsilon"]) / first["steps"]
    ends = min(grid) * (1 - ROUNDING), max(grid) * (1 + ROUNDING)
    row["beyond"] = not ends[0] <= row["extrapolated"] <= ends[1]
    row["learning_rate"] = nearest(row["extrapolated"], list(grid))
    row |= {name: best[name] for name in POINT if name != "learning_rate"}
    at = finals[POINT].fillna(0) == pd.Series({name: row[name] for name in POINT}).fillna(0)
    run = finals[at.all(axis=1)]
    if run.empty:
        return row | {"lacks": FINAL_STAGE}
    taken = run.iloc[0]
    row["value"] = taken["value"] * labels.display_factor(first["metric"])
    return row | {name: taken[name] for name in ("status", "noise_multiplier")}


def _stage_epsilon(run: pd.Series) -> float:
    """The epsilon of one training run with this noise."""
    return _epsilon(
        sampling_of(run.where(run.notna(), None)),
        int(run["steps"]),
        float(run["noise_multiplier"]),
        float(run["delta"]),
    )


@cache  # the runs of a stage share it
def _epsilon(sampling: PoissonSampling, steps: int, noise_multiplier: float, delta: float) -> float:
    return Search(sampling, steps, 1).epsilon(noise_multiplier, delta)


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in values)
