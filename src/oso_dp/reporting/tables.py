"""What was run, and the noise multipliers."""

import pandas as pd

from oso_dp.paper.tables import DATASETS
from oso_dp.reporting import labels
from oso_dp.reporting.budget import grid_size
from oso_dp.reporting.compare import Study
from oso_dp.reporting.render import Table
from oso_dp.reporting.select import CELL, VARIANT


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
            "search priced by": data["selection"].str.replace("_", " "),
            "ν": [labels.number(v, ".3f") for v in data["noise_multiplier"]],
            "momentum": [labels.number(v) for v in data["momentum"]],
            "precision": data["precision"],
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
