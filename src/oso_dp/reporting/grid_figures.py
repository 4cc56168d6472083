"""Figures that the paper lacks, and its first: which there are, and what is said below them."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from oso_dp.paper.tables import paper_results
from oso_dp.reporting import labels
from oso_dp.reporting.budget import grid_size
from oso_dp.reporting.compare import Study
from oso_dp.reporting.draw_against_noise import draw_against_noise
from oso_dp.reporting.draw_cosine import draw_cosine
from oso_dp.reporting.draw_grid import AXES, draw_grid
from oso_dp.reporting.draw_outcomes import draw_outcomes
from oso_dp.reporting.pictures import PicturePlan
from oso_dp.reporting.select import (
    CELL,
    DEFAULT_EPOCHS,
    best_of_grid,
    grid_points,
    main_variants,
)
from oso_dp.reporting.stopping import distributions, outcomes
from oso_dp.reporting.tables import noise_table

_ENOUGH = 0.5  # of a grid's points: with fewer, a heat map is mostly blank


def cosine_plans(study: Study) -> Iterator[PicturePlan]:
    """Figure 1, from what `oso cosine` measured."""
    rows = study.cosine
    if rows.empty:
        return
    run = rows.iloc[0]
    where = (
        f"{labels.dataset_short(run['dataset'])}, a run of {labels.method_label(run['method'])} "
        f"(k = {run['k']}, ε = {run['epsilon']:g}, ρ = {run['learning_rate']:g})"
    )
    caption = (
        f"{where}: the cosine between the true gradient and the clipped, averaged, noised one "
        f"(ν = {run['noise_multiplier']:.3f}) over C, at several steps t; mean and deviation over "
        f"{run['realisations']} realisations of sampling and noise. Left, the truth is the mean "
        "over the batch that was released; right, over all training examples. The paper's Figure 1 "
        "shows a CNN for character recognition and does not say which data, C, ρ or noise; it "
        "prints no values. Comparing with the true gradient is not private: public data only."
    )
    title = f"{where}:\nwhat clip and noise leave of the gradient"
    yield PicturePlan(
        "figure_01", "", None, "cosine", caption, lambda: draw_cosine(rows, title), data=rows
    )


def grid_plan(study: Study, dataset: str, k: int) -> PicturePlan:
    """The metric over the whole grids of one data set at one k."""
    points = main_variants(study.points)
    points = points[(points["dataset"] == dataset) & (points["k"] == k)]
    points = pd.concat(
        [points.iloc[:0]]
        + [
            cell
            for (method, _), cell in points.groupby(["method", "epsilon"])
            if method in AXES
            and len(cell) >= _ENOUGH * (grid_size(dataset, method, k, study.budget) or np.inf)
        ]
    )
    metric = points["metric"].dropna().iloc[0] if points["metric"].notna().any() else ""
    shown = points.assign(mean=points["mean"] * labels.scale(metric))
    paper = paper_results()
    paper = paper[(paper["dataset"] == dataset) & (paper["k"] == k)]
    theirs = ", the square the paper's" if len(paper) else ""
    where = f"{labels.dataset_short(dataset)}, k = {k}"
    return PicturePlan(
        f"grid_{dataset}_k{k}",
        dataset,
        k,
        "grid",
        f"{where}: the test metric over the whole grid, mean over seeds; brighter is better. The "
        f"ring is our best point{theirs}. Each panel's runs share one budget.",
        lambda: draw_grid(shown, paper, metric, f"{where}: the metric over the whole grid"),
        data=shown[[*CELL, "learning_rate", "threshold", "quantile", "mean", "seeds", "diverged"]],
    )


def noise_plan(study: Study, dataset: str) -> PicturePlan:
    """The best value of each grid of the paper's methods over the noise of its runs.

    One data set; the paper's values beside ours. The numbers beside the picture hold every method:
    drawn, those that search alike would cover each other.
    """
    cells = against_noise(study, dataset)
    drawn = cells[cells["method"].isin(labels.METHODS)]
    metric = cells["metric"].dropna().iloc[0] if cells["metric"].notna().any() else ""
    short = labels.dataset_short(dataset)
    paper = (
        " Hollow markers are the paper's values, at the noise that its budgets buy by our "
        "accounting: the paper does not print its noise."
    )
    return PicturePlan(
        f"metric_over_noise_{dataset}",
        dataset,
        None,
        "noise",
        f"{short}: each grid's best value over the noise multiplier of its runs, for every k and "
        "ε of the paper's methods. At equal ν, methods differ by what they make of the noise; what "
        "is left of a difference at equal ε is the price of the grid's size."
        + (paper if (cells["source"] == "paper").any() else ""),
        lambda: draw_against_noise(
            drawn, metric, f"{short}: the metric at equal noise", study.methods
        ),
        data=cells,
    )


def against_noise(study: Study, dataset: str) -> pd.DataFrame:
    """Columns dataset, k, epsilon, method, selection, metric, noise_multiplier, mean, std, source.

    A row per grid and price of ours, and per value that the paper prints; printed unit. Of ours
    only runs of one length, the paper's or else the longest: at equal noise longer training gives
    more.
    """
    columns = [*CELL, "selection", "metric", "noise_multiplier", "mean", "std", "source"]
    points = grid_points(study.values)
    points = points[(points["dataset"] == dataset) & points["epsilon"].notna()]
    lengths = set(points["epochs"])
    length = DEFAULT_EPOCHS if DEFAULT_EPOCHS in lengths else max(lengths, default=0)
    points = points[points["epochs"] == length]
    frames = [best_of_grid(mine) for _, mine in points.groupby("selection") if len(mine)]
    rows = []
    for row in pd.concat(frames).to_dict("records") if frames else []:
        factor = labels.scale(row["metric"])
        scaled = {"mean": row["mean"] * factor, "std": row["std"] * factor, "source": "ours"}
        rows.append({name: row[name] for name in columns[:7]} | scaled)
    noise = noise_table(study).data
    paid = noise.set_index(CELL)["noise_multiplier"].to_dict()
    paper = paper_results()
    paper = paper[(paper["dataset"] == dataset) & paper["mean"].notna() & paper["epsilon"].notna()]
    for row in paper.to_dict("records"):
        cell = tuple(row[name] for name in CELL)
        if cell in paid:
            more = {"noise_multiplier": paid[cell], "source": "paper", "selection": "composition"}
            rows.append({name: row.get(name) for name in columns} | more)
    return pd.DataFrame(rows, columns=columns)


def outcome_plans(study: Study) -> Iterator[PicturePlan]:
    """Both prices of a search, for each data set and k that was run under both."""
    data = outcomes(study)
    for (dataset, k), rows in data.groupby(["dataset", "k"], sort=False):
        metric = rows["metric"].iloc[0]
        where = f"{labels.dataset_short(dataset)}, k = {k}"
        yield PicturePlan(
            f"search_outcome_{dataset}_k{k}",
            dataset,
            None,
            "price",
            f"{where}: what comes out of a search under either price, from runs with the noise "
            "that each one asks for. Left, the best point; right, the expected best of K random "
            f"points, K {distributions(rows)} with the grid's size as its mean. Bars are "
            "deviations over seeds. The paper has composition only.",
            lambda rows=rows, metric=metric, where=where: draw_outcomes(  # type: ignore[misc]
                rows, metric, f"{where}: two prices of a search", study.methods
            ),
        )
