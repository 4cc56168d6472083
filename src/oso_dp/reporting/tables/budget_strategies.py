"""Searches and untuned runs under one budget: strategies, untuned runs, linear scaling."""

import math
from typing import Any

from oso_dp import labels
from oso_dp.analysis.budget_strategies import budget_strategies, is_reference, strategy_title
from oso_dp.analysis.linear_scaling import outcomes
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.untuned_runs import LOGARITHMIC, VARIANTS, win_ranges
from oso_dp.reporting.table import (
    DATASET,
    EPSILON,
    METHOD,
    Column,
    K,
    ReportContext,
    Table,
    TableSpec,
    mean_std,
    number,
)


def tables(context: ReportContext) -> list[Table]:
    """No table without rows."""
    study = context.study
    found = [budget_strategies_table(study), untuned_runs_table(study), linear_scaling_table(study)]
    return [table for table in found if len(table.data)]


def strategy_label(row: dict[str, Any]) -> str:
    """The method and variant, with the distribution of K under random stopping."""
    drawn = "" if labels.is_missing(row["distribution"]) else f", K {row['distribution']}"
    return labels.variant_method_label(row["method"], row["variant"]) + drawn


def _gain(row: dict[str, Any]) -> str:
    if is_reference(row):
        return "itself"
    if labels.is_missing(row["gain"]):
        return labels.DASH
    if labels.is_missing(row["gain_half"]):  # with one seed each
        return f"{row['gain']:+.2f}"
    low, high = row["gain"] - row["gain_half"], row["gain"] + row["gain_half"]
    return f"{row['gain']:+.2f} [{low:.2f}, {high:.2f}]"


_STRATEGIES = TableSpec(
    "budget_strategies",
    "Search or default under one budget",
    (
        DATASET,
        EPSILON,
        Column("strategy", strategy_title),
        Column("method", strategy_label),
        Column("chosen by", lambda row: row["chosen"] + (" †" if row["seen"] else "")),
        Column("runs", "runs", number(".0f")),
        Column("ν", "noise_multiplier", number(".3f")),
        Column("value", lambda row: mean_std()(row) + ("" if row["whole"] else "*")),
        Column("seeds", "seeds", number(".0f")),
        Column("chosen on the other half", mean_std("cross_mean", "cross_std")),
        Column("above Online's search", _gain),
    ),
    (
        "All rows of a data set and an ε have the same budget. Value: the best checkpoint on the "
        "test set, for a search at its best point; mean and standard deviation over seeds. Chosen "
        "on the other half: checkpoint and point selected on one half of the test set and reported "
        "on the other, without selection bias. Above Online's search: the difference of the "
        "values, positive is better, with its 95 % interval.",
        "† The default was chosen on this data set, so its choice has a privacy cost that is not "
        "counted. * Incomplete grid: its best point is unknown, and no difference is given. If "
        "runs at the paper's best point exist, it contains them.",
    ),
)


def budget_strategies_table(study: ResultSet) -> Table:
    return _STRATEGIES.fill(budget_strategies(study))


def _searched(group: str, searched: str) -> list[Column]:
    """The search's best value, how many untuned runs beat it, and over how many decades."""

    def value(row: dict[str, Any]) -> str:
        part = row[f"{searched}_points"] < row[f"{searched}_grid_size"]
        return mean_std(f"{searched}_mean", f"{searched}_std")(row) + ("*" if part else "")

    def beat(row: dict[str, Any]) -> str:
        count, surely, possibly = (int(row[f"{searched}_{how}"]) for how in VARIANTS)
        return f"{count} of {row['guesses']} ({surely} to {possibly})"

    def decades(row: dict[str, Any]) -> str:
        widths = []
        for axis in LOGARITHMIC:
            width, least, most = (row[f"{searched}_{axis}_decades_{how}"] for how in VARIANTS)
            if not math.isnan(width):
                widths.append(f"{labels.SYMBOLS[axis]} {width:.1f} ({least:.1f} to {most:.1f})")
        return ", ".join(widths) or labels.DASH

    def known(source: Any) -> Any:
        """A dash without a search, and where Online's own search is already in its row."""
        return lambda row: (
            labels.DASH
            if math.isnan(row[f"{searched}_mean"])
            or (searched, row["method"], row["variant"]) == ("online", "online", "")
            else source(row)
        )

    sources = {"best": value, "guesses that beat it": beat, "decades": decades}
    return [Column((group, label), known(source)) for label, source in sources.items()]


_OWN, _UNTUNED = "the method's own search", "one run without a search"
_UNTUNED_RUNS = TableSpec(
    "untuned_runs",
    "Tuned and untuned runs under one budget",
    (
        *(DATASET, K, EPSILON, METHOD),
        Column((_UNTUNED, "ν"), "noise_multiplier", number(".3f")),
        Column((_UNTUNED, "best guess"), mean_std("best_mean", "best_std")),
        Column(
            (_UNTUNED, "at"),
            lambda row: labels.format_point(
                row["method"], *(row[f"best_{name}"] for name in labels.SYMBOLS)
            ),
        ),
        Column((_OWN, "ν"), "own_noise_multiplier", number(".3f")),
        *_searched(_OWN, "own"),
        *_searched("Online's search", "online"),
    ),
    (
        "A guess is an untuned run: a grid point whose run has the whole budget, and therefore "
        "less noise than a run of a search. Values are means over seeds in the unit of the other "
        "tables. Guesses that beat it: number of guesses whose mean is better than that of the "
        "grid search's best point; in brackets, the number for which the 95 % interval of the "
        "difference lies above 0, and the number for which it does not lie below 0.",
        "Decades: width of the range of such guesses on a logarithmic axis, where each grid value "
        "covers an interval of one grid step; in brackets for the same two counts. If two "
        "hyperparameters are guessed, at the best value of the other.",
        "The best guess and the search's best point are selected on the test set, and the search "
        "is not charged for the choice of its ranges. *: the searched grid is incomplete; in most "
        "cases only the paper's best point was run.",
    ),
)


def untuned_runs_table(study: ResultSet) -> Table:
    return _UNTUNED_RUNS.fill(win_ranges(study))


_RULE = "linear scaling rule"
_LINEAR_SCALING = TableSpec(
    "linear_scaling",
    "Search by the linear scaling rule",
    (
        *(DATASET, K, EPSILON, METHOD),
        Column((_RULE, "ν"), "noise_multiplier", number(".3f")),
        Column((_RULE, "ρ (seeds)"), lambda row: row["learning_rates"] or labels.DASH),
        Column(
            (_RULE, "off the grid"),
            lambda row: f"{row['beyond']} of {row['finals']}" if row["finals"] else labels.DASH,
        ),
        Column((_RULE, "final run"), mean_std()),
        Column((_OWN, "ν"), "own_noise_multiplier", number(".3f")),
        Column((_OWN, "best"), mean_std("own_mean", "own_std")),
        Column((_UNTUNED, "ν"), "guess_noise_multiplier", number(".3f")),
        Column((_UNTUNED, "best guess"), mean_std("guess_mean", "guess_std")),
    ),
    (
        "The rule of Panda et al. (2024): trials with small fractions of the budget run the "
        "complete grid; a line through their best learning rates, over the epsilon of one run, "
        "gives the learning rate of the final run, which has the rest of the budget. Values are "
        "means over seeds in the unit of the other tables; each seed is a separate search. ν: of "
        "the final run.",
        "ρ: of the final runs, with the number of seeds. The study has runs at the grid's points "
        "only: the line's ρ is rounded to the nearest of them on the log scale, which is not part "
        "of the paper, and clipped to the grid's range. Off the grid: number of seeds whose line "
        "leaves that range. Other hyperparameters are those of the last trial's best point.",
        "The grid search's best point, the best untuned run and each trial's best point are "
        "selected on the test set. The budget of the rule's search covers all its trials and one "
        "final run; the study has a final run at every point, and publishing several of them would "
        "cost more.",
    ),
)


def linear_scaling_table(study: ResultSet) -> Table:
    return _LINEAR_SCALING.fill(outcomes(study))
