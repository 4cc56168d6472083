"""Noise multiplier of each grid, its ratio to Online's, and metric against noise."""

import pandas as pd

from oso_dp import labels
from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.analysis.result_set import ResultSet, cached_per_study
from oso_dp.analysis.values import CELL, grid_points, select_best_points, sort_as_paper
from oso_dp.paper.tables import PAPER_EPOCHS, paper_results


@cached_per_study
def noise_multipliers(study: ResultSet) -> pd.DataFrame:
    """Each grid's size N, noise multiplier and ratio to Online's noise multiplier.

    One row per grid, columns dataset, k, epsilon, method, grid_size, noise_multiplier, source
    (budget or rows) and ratio_to_online. From the budget if given, else from the rows; NoDP has no
    row. For a data set that is not public N is the number of all runs, which share one budget.
    """
    columns = [*CELL, "grid_size", "noise_multiplier", "source"]
    planned, ran = (
        grids.dropna(subset=["epsilon", "noise_multiplier"]) for grids in (study.budget, study.best)
    )
    sizes = [study.grid_size(row.dataset, row.method, row.k) for row in ran.itertuples()]
    planned = planned.assign(grid_size=planned["runs"], source="budget")
    ran = ran.assign(grid_size=pd.Series(sizes, ran.index).fillna(ran["points"]), source="rows")
    rows = [*planned.to_dict("records"), *ran.to_dict("records")]
    for row in rows:
        row["grid_size"] = int(study.shared_budgets.get(row["dataset"], row["grid_size"]))
    data = sort_as_paper(pd.DataFrame(rows, columns=columns).drop_duplicates(CELL))
    online = data[data["method"] == "online"].set_index(["dataset", "k", "epsilon"])
    online = online["noise_multiplier"].to_dict()
    data["ratio_to_online"] = [
        row.noise_multiplier / online.get((row.dataset, row.k, row.epsilon), float("nan"))
        for row in data.itertuples()
    ]
    return data


def metric_against_noise(study: ResultSet, dataset: str) -> pd.DataFrame:
    """The metric of each grid against its noise multiplier.

    Columns dataset, k, epsilon, method, search_accounting, metric, noise_multiplier, mean, std and
    source.

    One row per grid and noise of ours, and per value that the paper prints; printed unit. Our runs
    have one length, the paper's or else the longest: at equal noise longer training gives a better
    value.
    """
    columns = [*CELL, "search_accounting", "metric", "noise_multiplier", "mean", "std", "source"]
    points = _searched_runs(study, dataset)
    points = points[points["epochs"] == shown_epochs(study, dataset)[0]]
    by_selection = [rows for _, rows in points.groupby("search_accounting") if len(rows)]
    frames = [select_best_points(rows) for rows in by_selection]
    rows = []
    for row in pd.concat(frames).to_dict("records") if frames else []:
        factor = labels.display_factor(row["metric"])
        scaled = {"mean": row["mean"] * factor, "std": row["std"] * factor, "source": "ours"}
        rows.append({name: row[name] for name in columns[:7]} | scaled)
    noise = noise_multipliers(study)
    paid = noise.set_index(CELL)["noise_multiplier"].to_dict()
    paper = paper_results()
    paper = paper[(paper["dataset"] == dataset) & paper["mean"].notna() & paper["epsilon"].notna()]
    for row in paper.to_dict("records"):
        cell = tuple(row[name] for name in CELL)
        if cell in paid:
            more = {
                "noise_multiplier": paid[cell],
                "source": "paper",
                "search_accounting": COMPOSITION,
            }
            rows.append({name: row.get(name) for name in columns} | more)
    return pd.DataFrame(rows, columns=columns)


def shown_epochs(study: ResultSet, dataset: str) -> list[float]:
    """The lengths of searched runs in epochs; that of `metric_against_noise` comes first."""
    lengths = set(_searched_runs(study, dataset)["epochs"])
    return sorted(lengths, key=lambda epochs: (epochs != PAPER_EPOCHS, -epochs)) or [0.0]


def _searched_runs(study: ResultSet, dataset: str) -> pd.DataFrame:
    points = grid_points(
        study.values[study.values["search_accounting"].isin([COMPOSITION, RANDOM_STOPPING])]
    )
    return points[(points["dataset"] == dataset) & points["epsilon"].notna()]


def online_grids(study: ResultSet) -> pd.DataFrame:
    """Online's grids at its largest k on one data set, MNIST if there; a row per epsilon.

    Columns dataset, k, epsilon, noise_multiplier and ratio = nu_q / nu; rows of unknown ratio are
    left out.
    """
    noise = noise_multipliers(study)
    noise = noise[noise["method"] == "online"]
    ratios = {**_ratios(study.runs), **_ratios(study.budget)}
    noise = noise.assign(
        ratio=[ratios.get((r.dataset, r.k, r.epsilon), float("nan")) for r in noise.itertuples()]
    ).dropna(subset="ratio")
    first = noise["dataset"].iloc[:1].tolist()  # labels.DATASETS has MNIST first
    noise = noise[noise["dataset"].isin(first)]
    noise = noise[noise["k"] == noise["k"].max()].sort_values("epsilon")
    columns = ["dataset", "k", "epsilon", "noise_multiplier", "ratio"]
    return noise[columns].reset_index(drop=True)


def _ratios(frame: pd.DataFrame) -> dict[tuple[str, int, float], float]:
    known = frame[frame["method"] == "online"].dropna(
        subset=["epsilon", "noise_multiplier", "query_noise_multiplier"]
    )
    return {
        (row.dataset, int(row.k), float(row.epsilon)): (
            row.query_noise_multiplier / row.noise_multiplier
        )
        for row in known.itertuples()
    }
