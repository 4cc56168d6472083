"""The tables of the report: the paper's beside ours, what was run, and the noise multipliers."""

import pandas as pd

from oso.reporting import labels
from oso.reporting.budget import grid_size
from oso.reporting.compare import Study, compare
from oso.reporting.paper import DATASETS, SEEDS, find_table, paper_tables
from oso.reporting.render import Table
from oso.reporting.select import CELL, VARIANT

RULE_NOTE = (
    "Selection as in the paper: each run's best test value over all evaluations, averaged over "
    "seeds, then the grid's best point. This looks at the test set, so it is neither private nor "
    "an honest estimate. The last column takes each run's last evaluation instead."
)
SEEDS_NOTE = f"The paper's values are means of {SEEDS} seeds. One seed is not five."


def comparison_tables(study: Study) -> list[Table]:
    """The paper's nine tables if any of its data sets was run, and one per other data set and k."""
    tables = []
    if set(study.datasets) & set(DATASETS):
        tables += [comparison_table(study, t.dataset, t.k) for t in paper_tables()]
    done = {(t.dataset, t.k) for t in paper_tables()}
    for dataset in study.datasets:
        for k in sorted(study.runs.loc[study.runs["dataset"] == dataset, "k"].unique()):
            if (dataset, k) not in done:
                tables.append(comparison_table(study, dataset, int(k)))
    return tables


def comparison_table(study: Study, dataset: str, k: int) -> Table:
    """One data set at one k, in the layout of the paper's tables turned to one row per cell."""
    data = compare(study, dataset, k)
    reference = find_table(dataset, k)
    unit = data["unit"].iloc[0]
    shown = pd.DataFrame([_shown(row, unit, reference is not None) for _, row in data.iterrows()])
    label = labels.dataset_label(dataset)
    if reference is None:
        name, title = f"{dataset}_k{k}", f"{label}, k = {k}: best on test"
        notes = [labels.DATASET_NOTES.get(dataset, ""), RULE_NOTE]
    else:
        name = f"table_{reference.number:02d}"
        title = f"Table {reference.number} of the paper and ours: {label}, k = {k}"
        notes = [*_reading_notes(data), RULE_NOTE, SEEDS_NOTE]
        if (data["status"] == "not run").all():
            notes.insert(0, "Nothing of this table was run yet.")
    return Table(name, title, data, shown, tuple(n for n in notes if n))


def _shown(row: pd.Series, unit: str, with_paper: bool) -> dict[str, str]:
    ran = row["status"] != "not run"
    method = row["method"]
    ours = labels.spread(row["mean"], row["std"]) if row["status"] == "run" else row["status"]
    if row["status"] == "run" and row["best_diverged"]:
        ours += f" ({row['best_diverged']} of its {row['best_runs']} runs diverged)"
    size = "" if pd.isna(row["grid_size"]) else f" of {row['grid_size']}"
    lost = f" ({row['diverged']} of {row['runs']} runs diverged)" if ran and row["diverged"] else ""
    cells = {"ε": labels.epsilon_text(row["epsilon"]), "method": labels.method_label(method)}
    if with_paper:
        cells["paper's best"] = labels.point_text(
            method, *(row[f"paper_{n}"] for n in ("learning_rate", "threshold", "quantile"))
        )
        cells[f"paper, {unit}"] = labels.spread(row["paper_mean"], row["paper_std"])
    cells["our best"] = labels.point_text(
        method, row["learning_rate"], row["threshold"], row["quantile"]
    )
    cells[f"ours, {unit}"] = ours
    cells["seeds"] = str(row["seeds"]) if ran else labels.NOTHING
    cells["grid points"] = f"{row['grid_points']}{size}{lost}" if ran else f"0{size}"
    if with_paper:
        cells["ours − paper"] = labels.signed(row["difference"])
        cells["ours at paper's best"] = labels.spread(row["at_paper_mean"], row["at_paper_std"])
    else:
        cells["noise multiplier"] = labels.number(row["noise_multiplier"], ".3f")
    cells["last step"] = labels.spread(row["last_mean"], row["last_std"])
    return cells


def _reading_notes(data: pd.DataFrame) -> list[str]:
    """One line per reading of the paper that is not the printed text, methods joined."""
    noted = data[data["paper_note"].fillna("") != ""]
    lines = []
    for (method, note), rows in noted.groupby(["method", "paper_note"], sort=False):
        at = ", ".join(labels.epsilon_text(e) for e in rows["epsilon"])
        lines.append(f"{labels.method_label(method)}, ε = {at}: {note}.")
    return lines


def runs_table(study: Study) -> Table:
    """What was run: one row per cell and setting, with counts, devices and time."""
    rows = []
    for _, group in study.values.groupby("variant", sort=True):
        first = group.iloc[0]
        rows.append(
            {name: first[name] for name in CELL + VARIANT}
            | {
                "grid_points": group["point"].nunique(),
                "grid_size": grid_size(first["dataset"], first["method"], first["k"], study.budget),
                "seeds": group["seed"].nunique(),
                "runs": len(group),
                "finished": int((group["status"] == "finished").sum()),
                "diverged": int((group["status"] == "diverged").sum()),
                "device": ", ".join(sorted(group["device"].dropna().unique())),
                "wall_seconds": group["wall_seconds"].sum(),
            }
        )
    data = ordered(pd.DataFrame(rows))
    shown = pd.DataFrame(
        {
            "data set": data["dataset"].map(labels.dataset_short),
            "k": data["k"],
            "ε": data["epsilon"].map(labels.epsilon_text),
            "method": data["method"].map(labels.method_label),
            "grid points": [
                f"{p}" if pd.isna(n) else f"{p} of {int(n)}"
                for p, n in zip(data["grid_points"], data["grid_size"], strict=True)
            ],
            "seeds": data["seeds"],
            "runs": data["runs"],
            "diverged": data["diverged"],
            "noise multiplier": [labels.number(v, ".3f") for v in data["noise_multiplier"]],
            "momentum": [labels.number(v) for v in data["momentum"]],
            "epochs": data["epochs"],
            "device": data["device"],
            "time": [labels.duration(v) for v in data["wall_seconds"]],
        }
    )
    note = "Time is summed over runs; runs that share a device overlap."
    return Table("runs", "What was run", data, shown, (note,))


def noise_table(study: Study) -> Table:
    """What each grid's size costs: N, the noise multiplier and its ratio to Online's.

    From the budget where one is given, else from the rows; NoDP has none.
    """
    columns = [*CELL, "grid_size", "noise_multiplier", "source"]
    budget = study.budget.dropna(subset=["epsilon", "noise_multiplier"])
    rows = [
        {name: row[name] for name in CELL}
        | {
            "grid_size": row["runs"],
            "noise_multiplier": row["noise_multiplier"],
            "source": "budget",
        }
        for _, row in budget.iterrows()
    ]
    listed = {tuple(row[name] for name in CELL) for row in rows}
    for _, row in study.best.dropna(subset=["epsilon", "noise_multiplier"]).iterrows():
        if tuple(row[name] for name in CELL) not in listed:
            size = grid_size(row["dataset"], row["method"], row["k"], study.budget)
            rows.append(
                {name: row[name] for name in CELL}
                | {
                    "grid_size": row["points"] if size is None else size,
                    "noise_multiplier": row["noise_multiplier"],
                    "source": "rows",
                }
            )
    data = ordered(pd.DataFrame(rows, columns=columns))
    online = data[data["method"] == "online"].set_index(["dataset", "k", "epsilon"])
    online = online["noise_multiplier"].to_dict()
    data["ratio_to_online"] = [
        row.noise_multiplier / online.get((row.dataset, row.k, row.epsilon), float("nan"))
        for row in data.itertuples()
    ]
    shown = pd.DataFrame(
        {
            "data set": data["dataset"].map(labels.dataset_short),
            "k": data["k"],
            "ε": data["epsilon"].map(labels.epsilon_text),
            "method": data["method"].map(labels.method_label),
            "N": data["grid_size"],
            "noise multiplier ν": [labels.number(v, ".3f") for v in data["noise_multiplier"]],
            "ν / Online's ν": [labels.number(v, ".2f") for v in data["ratio_to_online"]],
        }
    )
    notes = ["The budget covers all N runs of a grid: more candidates, more noise in each."]
    if ((data["source"] == "rows") & ~data["dataset"].isin(DATASETS)).any():
        notes.append("Where neither the paper nor a budget file gives N, it counts the points run.")
    return Table("noise_multipliers", "What a grid's size costs in noise", data, shown, (*notes,))


def ordered(data: pd.DataFrame) -> pd.DataFrame:
    """Rows in the paper's order of data sets, k, epsilon (none last) and methods."""
    datasets = labels.dataset_order(data["dataset"])
    methods = labels.method_order(data["method"])
    ranked = data.assign(
        _dataset=data["dataset"].map(datasets.index), _method=data["method"].map(methods.index)
    )
    by = ["_dataset", "k", "epsilon", "_method"]
    ranked = ranked.sort_values(by, kind="stable", na_position="last")
    return ranked.drop(columns=["_dataset", "_method"]).reset_index(drop=True)


def all_tables(study: Study) -> list[Table]:
    """Every table of the report, the comparisons first."""
    return [*comparison_tables(study), runs_table(study), noise_table(study)]
