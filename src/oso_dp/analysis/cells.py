"""Each cell of the paper's tables beside our value, as tidy data in the printed unit.

A cell is one data set, k, epsilon and method. Its row holds the paper's best hyperparameters and
value, ours by each checkpoint rule, and ours at the paper's best point. `verdicts` adds the
verdicts.
"""

import math
from collections import defaultdict
from dataclasses import dataclass

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.result_set import ResultSet, cached_per_study
from oso_dp.analysis.values import CELL, COMPARABLE_ON, POINT, VARIANT, main_variants, sort_as_paper
from oso_dp.errors import OsoError
from oso_dp.paper.tables import DATASETS as PAPER_DATASETS
from oso_dp.paper.tables import PAPER_EPOCHS, SEEDS, find_table, paper_results, paper_tables

# The status of a cell.
RAN, DIVERGED, NOT_RUN = "run", "diverged", "not run"  # diverged: no run has a value

# Relative tolerance for the paper's grid points, which are printed with three or four digits.
POINT_TOLERANCE = 0.02

COLUMNS = [
    "table",
    *CELL,
    "metric",
    "unit",
    "in_paper",  # the paper's table holds this cell
    "status",
    *(f"paper_{name}" for name in (*POINT, "mean", "std", "seeds", "diverged", "note")),
    *POINT,
    "mean",
    "std",
    "seeds",
    "runs",
    "diverged",
    "best_runs",  # runs of the best grid point, and how many of them diverged
    "best_diverged",
    "grid_points",
    "grid_size",
    "noise_multiplier",
    *COMPARABLE_ON,  # of the variant that represents the cell; precision: of products
    "variant",  # schedule and averaging, in words; empty without
    "difference",  # mean - paper_mean,
    "difference_half",  # and half of its 95 % interval, from `verdicts`; null until then
    "verdict",  # on the value, and
    "point_verdict",  # on the hyperparameters: see `verdicts`; null until then
    *("at_paper_mean", "at_paper_std", "at_paper_seeds"),  # ours at the paper's best point,
    *("at_paper_cross_mean", "at_paper_cross_std", "at_paper_cross_seeds"),  # by cross-selection,
    *("at_paper_last_mean", "at_paper_last_std", "at_paper_last_seeds"),  # and at the last step
    *("last_mean", "last_std", "last_seeds"),
    *(f"last_{name}" for name in POINT),
    *("cross_mean", "cross_std", "cross_seeds"),
    *(f"{half}_{name}" for half in ("even", "odd") for name in POINT),  # chosen on this half
]

_COUNTS = [
    *("table", "k", "paper_seeds", "seeds", "runs", "diverged", "best_runs", "best_diverged"),
    *("grid_points", "grid_size", "at_paper_seeds", "cross_seeds", "epochs"),
    *("at_paper_cross_seeds", "at_paper_last_seeds", "last_seeds"),
]


TablePanel = tuple[str, int]  # a data set and a k
CellKey = tuple[str, int, float | None, str]  # data set, k, epsilon (None: no privacy), method


@cached_per_study
def make_cells(study: ResultSet) -> pd.DataFrame:
    """One row per epsilon and method of each data set and k of the paper or the study.

    Columns `COLUMNS`. Holds every cell of the paper's tables and every cell that was run; of each
    data set and k NoDP comes last.
    """
    asked = [(table.dataset, table.k) for table in paper_tables()]
    sources = _make_inputs(study)
    rows = [
        row
        for panel in dict.fromkeys([*asked, *list_panels(study)])
        for row in _join_paper_values(study, sources, panel)
    ]
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(_COUNTS, "Int64"))


def has_paper_length(dataset: str, epochs: float) -> bool:
    """Whether runs are as long as the paper's, where it has the data set: shorter are not ranked.

    epochs: of runs, so never missing.
    """
    return dataset not in PAPER_DATASETS or epochs >= PAPER_EPOCHS


def have_paper_length(rows: pd.DataFrame) -> pd.Series:
    """Which rows, with their data set and epochs, have that length."""
    pairs = zip(rows["dataset"], rows["epochs"], strict=True)
    return pd.Series([has_paper_length(*pair) for pair in pairs], index=rows.index, dtype=bool)


def list_panels(study: ResultSet) -> list[TablePanel]:
    """The pairs of data set and k that have a cell: data sets in the paper's order, its k first."""
    pairs = study.best[["dataset", "k"]].drop_duplicates().itertuples(index=False)
    order = [*labels.DATASETS, *study.datasets]
    return sorted(
        ((dataset, int(k)) for dataset, k in pairs),
        key=lambda pair: (order.index(pair[0]), find_table(*pair) is None, pair[1]),
    )


@dataclass(frozen=True)
class _CellInputs:
    """The paper's values, ours by each checkpoint rule, and the grid points of each cell."""

    printed: dict[CellKey, dict]
    best: dict[CellKey, dict]
    last: dict[CellKey, dict]
    cross: dict[CellKey, dict]
    # By the rule's suffix in names: of the cell's main variant, by its key `cell`.
    points: dict[str, dict[int, list[dict]]]


def _make_inputs(study: ResultSet) -> _CellInputs:
    frames = paper_results(), study.best, study.last, study.cross_selected
    printed, best, last, cross = (
        {cell_key(row): row for row in reversed(frame.to_dict("records"))}  # of several the first
        for frame in frames
    )
    main = main_variants(study.points)["point"]
    by_rule = {
        "": study.points,
        "_cross": study.cross_selected_points,
        "_last": study.last_points,
    }
    points = {rule: _list_points(f[f["point"].isin(main)]) for rule, f in by_rule.items()}
    return _CellInputs(printed, best, last, cross, points)


def _list_points(frame: pd.DataFrame) -> dict[int, list[dict]]:
    by_cell = defaultdict(list)
    for row in frame[["cell", *POINT, "mean", "std", "seeds"]].to_dict("records"):
        by_cell[row["cell"]].append(row)
    return by_cell


def _join_paper_values(study: ResultSet, sources: _CellInputs, panel: TablePanel) -> list[dict]:
    table = find_table(*panel)
    cells = [key for key in {**sources.printed, **sources.best} if key[:2] == panel]
    known = (sources.best[key]["metric"] for key in cells if key in sources.best)
    metric = table.metric if table else next((name for name in known if not pd.isna(name)), "")
    order = labels.sort_methods(method for *_, method in cells)
    rows = []
    for key in sorted(cells, key=lambda cell: (cell[2] is None, cell[2], order.index(cell[3]))):
        dataset, k, epsilon, method = key
        printed, our_cell = sources.printed.get(key), sources.best.get(key)
        row: dict = {
            "table": table.number if table else None,
            "dataset": dataset,
            "k": k,
            "epsilon": epsilon,
            "method": method,
            "metric": metric,
            "unit": labels.metric_unit(metric),
            "grid_size": study.grid_size(dataset, method, k),
            "in_paper": printed is not None,
            "paper_diverged": False,
            "status": NOT_RUN,
            "variant": "",
        }
        if printed is not None:
            row |= {f"paper_{n}": printed[n] for n in (*POINT, "mean", "std", "diverged", "note")}
            row["paper_seeds"] = math.nan if pd.isna(printed["mean"]) else SEEDS
        if our_cell is not None:
            _check_budget_not_exceeded(row, our_cell)
            row |= _our_columns(our_cell, metric)
            row |= _columns_by_other_rules(sources.last[key], sources.cross[key], metric)
            row["difference"] = row["mean"] - row.get("paper_mean", math.nan)
            if printed is not None:
                for rule, points in sources.points.items():
                    row |= _columns_at_paper_point(points[our_cell["cell"]], printed, metric, rule)
        rows.append(row)
    return rows


def _check_budget_not_exceeded(row: dict, our_cell: dict) -> None:
    """The noise was calibrated for N runs; the best of more than N points would cost more."""
    size = row["grid_size"]
    if size is not None and not pd.isna(row["epsilon"]) and our_cell["points"] > size:
        raise OsoError(
            f"{row['dataset']}, {row['method']}, k = {row['k']}, epsilon = {row['epsilon']:g}: "
            f"{our_cell['points']} points of a grid of {size}; store the results of different "
            "grids in different folders"
        )


def _our_columns(best: dict, metric: str) -> dict:
    return {
        **_printed_value("", best, metric),
        **{name: best[name] for name in (*POINT, "noise_multiplier", *COMPARABLE_ON, "variant")},
        "status": DIVERGED if pd.isna(best["mean"]) else RAN,
        "runs": best["cell_runs"],
        "diverged": best["cell_diverged"],
        "best_runs": best["runs"],
        "best_diverged": best["diverged"],
        "grid_points": best["points"],
    }


def _columns_by_other_rules(last: dict, cross: dict, metric: str) -> dict:
    row = _printed_value("last_", last, metric) | _printed_value("cross_", cross, metric)
    row |= {f"last_{name}": last[name] for name in POINT}
    return row | {f"{h}_{name}": cross[f"{h}_{name}"] for h in ("even", "odd") for name in POINT}


def _printed_value(prefix: str, row: dict, metric: str) -> dict:
    """The columns of a value in the printed unit; prefix: of their names."""
    factor = labels.display_factor(metric)
    columns = {f"{prefix}{name}": row[name] * factor for name in ("mean", "std")}
    return columns | {f"{prefix}seeds": row["seeds"]}


def _columns_at_paper_point(
    our_points: list[dict], printed: dict, metric: str, rule: str = ""
) -> dict:
    """Columns of our first point that equals the paper's best one; empty without such a point.

    rule: suffix of `at_paper` in the names; empty for the paper's checkpoint rule.
    """
    names = [n for n in labels.searched_axes(printed["method"]) if not pd.isna(printed[n])]
    for at in our_points:
        near = (
            abs(at[name] - printed[name]) <= POINT_TOLERANCE * abs(printed[name]) for name in names
        )
        if names and all(near):
            return _printed_value(f"at_paper{rule}_", at, metric)
    return {}


@cached_per_study
def contributing_runs(study: ResultSet) -> dict[CellKey, list[dict]]:
    """For each cell the rows of the runs whose mean is its value, by seed."""
    behind = defaultdict(list)
    for row in study.best_runs.sort_values(["seed", "run_id"]).to_dict("records"):
        behind[cell_key(row)].append(row)
    return behind


def cell_key(row: dict | pd.Series) -> CellKey:
    """The key of a row with the columns `values.CELL`."""
    dataset, k, epsilon, method = (row[name] for name in CELL)
    return dataset, int(k), None if pd.isna(epsilon) else float(epsilon), method


def trajectories(runs: pd.DataFrame, evaluations: pd.DataFrame) -> pd.DataFrame:
    """The evaluations on `test` of some runs, with each run's method, epsilon, seed and status."""
    keep = ["run_id", "method", "epsilon", "seed", "status"]
    seen = evaluations[evaluations["run_id"].isin(runs["run_id"])]
    seen = seen[seen["split"] == "test"]
    return seen.merge(runs[keep], on="run_id").sort_values(["run_id", "step"])


def average_over_seeds(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Columns method, step, mean, min and max of `column`, over the runs of `trajectories`."""
    return rows.groupby(["method", "step"])[column].agg(["mean", "min", "max"]).reset_index()


def count_variants(study: ResultSet) -> pd.DataFrame:
    """One row per cell and variant that was run, with counts, devices and time."""
    rows = []
    for _, group in study.values.groupby("variant_key", sort=True):
        first = group.iloc[0]
        rows.append(
            {name: first[name] for name in CELL + VARIANT}
            | {
                "grid_points": group["point"].nunique(),
                "grid_size": study.grid_size(first["dataset"], first["method"], first["k"]),
                "seeds": group["seed"].nunique(),
                "runs": len(group),
                "finished": int((group["status"] == "finished").sum()),
                "diverged": int((group["status"] == "diverged").sum()),
                "device": ", ".join(sorted(group["device"].dropna().unique())),
                "wall_seconds": group["wall_seconds"].sum(min_count=1),
            }
        )
    return sort_as_paper(pd.DataFrame(rows))
