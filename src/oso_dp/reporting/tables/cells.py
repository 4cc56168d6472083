"""Shared columns and notes of the tables of cells."""

from collections.abc import Iterator

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.cells import cell_key, contributing_runs
from oso_dp.analysis.result_set import ResultSet
from oso_dp.paper.tables import SEEDS

RULE_NOTE = (
    "Selection as in the paper: each run's best test value over all evaluations, averaged over "
    "seeds, then the grid's best point. It uses the test set, so it is neither private nor "
    "unbiased. Other columns give the last evaluation, and cross-selection: checkpoint and point "
    "selected on one half of the test set and reported on the other, mean of both directions."
)
SEEDS_NOTE = f"The paper's values are means of {SEEDS} seeds; ours may have fewer."


MARK = "*"  # of the cell to which the momentum was fitted


def method_columns(row: pd.Series) -> dict[str, str]:
    return {
        "ε": labels.format_budget(row["epsilon"]),
        "method": labels.variant_method_label(row["method"], row["variant"]),
    }


def our_columns(row: pd.Series, heading: str) -> dict[str, str]:
    text = (
        labels.format_mean_std(row["mean"], row["std"]) if row["status"] == "run" else row["status"]
    )
    if row["status"] == "run" and row["best_diverged"]:
        text += f" ({row['best_diverged']} of its {row['best_runs']} runs diverged)"
    return {
        "our best": labels.format_point(
            row["method"], row["learning_rate"], row["threshold"], row["quantile"]
        ),
        heading: text,
        **count_columns(row),
        "ν": labels.format_number(row["noise_multiplier"], ".3f"),
    }


def anchor(row: pd.Series | dict) -> str:
    """The anchor of a cell's row, such as `mnist-k9-eps3-online`."""
    dataset, k, epsilon, method = cell_key(row)
    budget = "none" if epsilon is None else f"eps{epsilon:g}"
    return f"{dataset}-k{k}-{budget}-{method}"


def tooltip(study: ResultSet, row: pd.Series | dict) -> str:
    """The seeds and runs behind a cell's value; empty without runs."""
    runs = contributing_runs(study).get(cell_key(row), [])
    return "\n".join(
        f"seed {r.seed}: {labels.format_number(r.value, '.2f')} (run {r.run_id})" for r in runs
    )


def verdict_text(row: pd.Series, verdict: str) -> str:
    """For example `undecided (1 seed, ±2.77)`: our seeds, half of the difference's interval."""
    if row["status"] == "not run":
        return verdict
    seeds = f"{row['seeds']} seed{'' if row['seeds'] == 1 else 's'}"
    half = row["difference_half"]
    return f"{verdict} ({seeds}{'' if pd.isna(half) else f', ±{half:.2f}'})"


def count_columns(row: pd.Series) -> dict[str, str]:
    ran = row["status"] != "not run"
    size = "" if pd.isna(row["grid_size"]) else f" of {row['grid_size']}"
    lost = f" ({row['diverged']} of {row['runs']} runs diverged)" if ran and row["diverged"] else ""
    return {
        "seeds": str(row["seeds"]) if ran else labels.DASH,
        "grid points": f"{row['grid_points']}{size}{lost}" if ran else f"0{size}",
    }


def other_rule_columns(row: pd.Series) -> dict[str, str]:
    return {
        "last step": labels.format_mean_std(row["last_mean"], row["last_std"]),
        "cross-selection": labels.format_mean_std(row["cross_mean"], row["cross_std"]),
    }


def precision_note(data: pd.DataFrame) -> Iterator[str]:
    """A note if not all products were in float32; runs of two precisions are never averaged."""
    ran = data[data["status"] != "not run"]
    if set(ran["precision"]) <= {"float32"}:
        return
    parts = []
    for precision, rows in ran.groupby("precision"):
        cells = [
            f"{labels.method_label(method)} at ε = "
            + ", ".join(labels.format_budget(epsilon) for epsilon in of_method["epsilon"])
            for method, of_method in rows.groupby("method", sort=False)
        ]
        parts.append(f"{precision}: {', '.join(cells)}")
    yield f"Products were computed in {'; in '.join(parts)}."


def variant_note(data: pd.DataFrame) -> str:
    """A sentence that lists variants with a schedule or averaging; empty without them."""
    names = [
        f"{labels.method_label(row['method'])} at ε = {labels.format_budget(row['epsilon'])} "
        f"({row['variant']})"
        for row in data[data["variant"] != ""].to_dict("records")
    ]
    return f"Variants with a schedule or averaging: {', '.join(names)}." if names else ""
