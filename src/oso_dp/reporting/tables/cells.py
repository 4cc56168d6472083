"""What tables of cells have in common: a cell in words, and the notes below."""

from collections.abc import Iterator

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.contributing_runs import cell_key, runs_behind
from oso_dp.analysis.study import Study
from oso_dp.paper.tables import SEEDS

RULE_NOTE = (
    "Selection as in the paper: each run's best test value over all evaluations, averaged over "
    "seeds, then the grid's best point. This looks at the test set, so it is neither private nor "
    "an honest estimate. Beside it stand the last evaluation, and cross-selection: checkpoint and "
    "point chosen on one half of the test set, reported on the other, the mean of both ways."
)
SEEDS_NOTE = f"The paper's values are means of {SEEDS} seeds. One seed is not five."


MARK = "*"  # of the cell that chose the momentum


def name(row: pd.Series) -> dict[str, str]:
    return {
        "ε": labels.epsilon_text(row["epsilon"]),
        "method": labels.laid_label(row["method"], row["laid"]),
    }


def own(row: pd.Series, heading: str) -> dict[str, str]:
    text = labels.spread(row["mean"], row["std"]) if row["status"] == "run" else row["status"]
    if row["status"] == "run" and row["best_diverged"]:
        text += f" ({row['best_diverged']} of its {row['best_runs']} runs diverged)"
    return {
        "our best": labels.point_text(
            row["method"], row["learning_rate"], row["threshold"], row["quantile"]
        ),
        heading: text,
        **counts(row),
        "ν": labels.number(row["noise_multiplier"], ".3f"),
    }


def anchor(row: pd.Series | dict) -> str:
    """The name of a cell's row, for links: `mnist-k9-eps3-online`."""
    dataset, k, epsilon, method = cell_key(row)
    budget = "none" if epsilon is None else f"eps{epsilon:g}"
    return f"{dataset}-k{k}-{budget}-{method}"


def hover(study: Study, row: pd.Series | dict) -> str:
    """The seeds and runs behind a cell's value; empty where there are none."""
    runs = runs_behind(study).get(cell_key(row), [])
    return "\n".join(
        f"seed {r.seed}: {labels.number(r.value, '.2f')} (run {r.run_id})" for r in runs
    )


def verdict_text(row: pd.Series, verdict: str) -> str:
    """`undecided (1 seed, ±2.77)`: the seeds of ours, and half of the difference's interval."""
    if row["status"] == "not run":
        return verdict
    seeds = f"{row['seeds']} seed{'' if row['seeds'] == 1 else 's'}"
    half = row["difference_half"]
    return f"{verdict} ({seeds}{'' if pd.isna(half) else f', ±{half:.2f}'})"


def counts(row: pd.Series) -> dict[str, str]:
    ran = row["status"] != "not run"
    size = "" if pd.isna(row["grid_size"]) else f" of {row['grid_size']}"
    lost = f" ({row['diverged']} of {row['runs']} runs diverged)" if ran and row["diverged"] else ""
    return {
        "seeds": str(row["seeds"]) if ran else labels.NOTHING,
        "grid points": f"{row['grid_points']}{size}{lost}" if ran else f"0{size}",
    }


def other_rules(row: pd.Series) -> dict[str, str]:
    return {
        "last step": labels.spread(row["last_mean"], row["last_std"]),
        "cross-selection": labels.spread(row["cross_mean"], row["cross_std"]),
    }


def precision_note(data: pd.DataFrame) -> Iterator[str]:
    """A line where products were not all in float32; a mean never holds two precisions."""
    ran = data[data["status"] != "not run"]
    if set(ran["precision"]) <= {"float32"}:
        return
    parts = []
    for precision, rows in ran.groupby("precision"):
        cells = [
            f"{labels.method_label(method)} at ε = "
            + ", ".join(labels.epsilon_text(epsilon) for epsilon in of_method["epsilon"])
            for method, of_method in rows.groupby("method", sort=False)
        ]
        parts.append(f"{precision}: {', '.join(cells)}")
    yield f"Products were computed in {'; in '.join(parts)}."


def laid_note(data: pd.DataFrame) -> str:
    """A sentence where something is laid over a method's steps: it stands there by its name."""
    names = [
        f"{labels.method_label(row['method'])} at ε = {labels.epsilon_text(row['epsilon'])} "
        f"({row['laid']})"
        for row in data[data["laid"] != ""].to_dict("records")
    ]
    return f"With something laid over the steps: {', '.join(names)}." if names else ""
