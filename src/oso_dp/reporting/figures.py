"""The figures of the report, as PNG and PDF, each with a caption of a few sentences."""

from collections.abc import Iterator

import pandas as pd

from oso_dp.paper.tables import DATASETS, find_table, paper_tables
from oso_dp.reporting import canvas, labels
from oso_dp.reporting.compare import Study, compare
from oso_dp.reporting.draw_metric import draw_metric
from oso_dp.reporting.draw_noise import draw_noise
from oso_dp.reporting.draw_steps import draw_adapted, draw_curves, trajectories
from oso_dp.reporting.files import ReportFolder
from oso_dp.reporting.grid_figures import cosine_plans, grid_plan, noise_plan, outcome_plans
from oso_dp.reporting.pictures import Picture, PicturePlan
from oso_dp.reporting.price_figures import price_plans
from oso_dp.reporting.tables import noise_table


def write_figures(study: Study, folder: ReportFolder) -> list[Picture]:
    """Draw every figure and write `figures/<name>.png` and `.pdf`; empty ones are left out."""
    pictures = []
    with canvas.theme():
        for plan in _plans(study):
            figure = plan.draw()
            if figure is None:
                continue
            png = canvas.to_png(figure)
            folder.write(f"figures/{plan.name}.png", png)
            folder.write(f"figures/{plan.name}.pdf", canvas.to_pdf(figure))
            if plan.data is not None:
                numbers = plan.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
                folder.write(f"figures/{plan.name}.csv", numbers)
            pictures.append(
                Picture(plan.name, plan.dataset, plan.k, plan.kind, plan.caption, png, plan.ours)
            )
    return pictures


def settings(study: Study) -> list[tuple[str, int]]:
    """The pairs of data set and k that have a cell: data sets in the paper's order, its k first."""
    pairs = study.best[["dataset", "k"]].drop_duplicates().itertuples(index=False)
    order = [*labels.DATASETS, *study.datasets]
    return sorted(
        ((dataset, int(k)) for dataset, k in pairs),
        key=lambda pair: (order.index(pair[0]), find_table(*pair) is None, pair[1]),
    )


def _plans(study: Study) -> Iterator[PicturePlan]:
    ran = settings(study)
    yield from cosine_plans(study)
    steps = trajectories(study.best_runs, study.evaluations)
    for dataset, k in ran:
        yield _metric_plan(study, dataset, k, ours=True)
        yield _beyond_plan(study, dataset, k)
        yield grid_plan(study, dataset, k)
        yield from _step_plans(study, steps, dataset, k)
    noise = noise_table(study).data
    for dataset in labels.dataset_order(noise["dataset"].unique()):
        yield _noise_plan(study, dataset, noise[noise["dataset"] == dataset])
        yield noise_plan(study, dataset)
    yield from price_plans(study)
    yield from outcome_plans(study)
    if set(study.datasets) & set(DATASETS):
        for table in paper_tables():
            if (table.dataset, table.k) not in ran:
                yield _metric_plan(study, table.dataset, table.k, ours=False)


def _metric_plan(study: Study, dataset: str, k: int, ours: bool) -> PicturePlan:
    table = find_table(dataset, k)
    cells = compare(study, dataset, k)
    better = "Lower" if cells["metric"].iloc[0] == "mse" else "Higher"
    cells = cells[cells["method"].isin(labels.METHODS)]
    short = labels.dataset_short(dataset)
    name = f"figure_{table.figure:02d}" if table else f"metric_over_epsilon_{dataset}_k{k}"
    title = f"{short}, k = {k}" if ours else f"{short}, k = {k}: the paper's values, none of ours"
    caption = (
        f"{short}, k = {k}: best on test over the budget of the whole grid. {better} is better. "
    )
    if dataset in DATASETS and (note := labels.epochs_note(cells["epochs"])):
        caption += f"{note} "
    ran = cells.loc[cells["status"] == "run", "method"]
    seeds = cells.loc[ran.index, "seeds"]
    if ours and (seeds > 1).any():
        caption += "Filled markers are ours, with the standard deviation over seeds. "
    elif ours:
        caption += "Filled markers are ours, from one seed, so without error bars. "
    if table and cells["paper_mean"].notna().any():
        caption += (
            f"Hollow markers with dashed lines are the paper's (Table {table.number}, five seeds)."
        )
    elif table:
        caption += "The paper plots this figure but prints no values for it."
    return PicturePlan(
        name,
        dataset,
        k,
        "metric",
        caption.strip(),
        # Where the paper has no figure, one method alone makes none.
        lambda: draw_metric(cells, title, study.methods) if table or ran.nunique() > 1 else None,
        ours,
    )


def _beyond_plan(study: Study, dataset: str, k: int) -> PicturePlan:
    """Methods that the paper does not have, beside Online and FixedThreshold."""
    cells = compare(study, dataset, k)
    paper = [name for name in cells if name.startswith("paper_")]
    cells = cells.assign(**dict.fromkeys(paper))  # theirs are in the paper's own figure
    beyond = ~cells["method"].isin(labels.METHODS) & cells["mean"].notna()
    kept = ("online", "fixed_threshold", "no_dp", *cells.loc[beyond, "method"])
    cells = cells[cells["method"].isin(kept) & beyond.any()]
    where = f"{labels.dataset_short(dataset)}, k = {k}"
    return PicturePlan(
        f"beyond_{dataset}_k{k}",
        dataset,
        k,
        "beyond",
        f"{where}: methods that the paper does not compare, with Online and FixedThreshold for "
        "reference; best on test over the budget of the whole grid. The table has each N. "
        + (labels.epochs_note(cells["epochs"]) if dataset in DATASETS else ""),
        lambda: draw_metric(cells, f"{where}: beyond the paper's methods", study.methods),
    )


def _step_plans(study: Study, steps: pd.DataFrame, dataset: str, k: int) -> Iterator[PicturePlan]:
    best = study.best_runs
    runs = best[(best["dataset"] == dataset) & (best["k"] == k)]
    runs = runs[runs["method"].isin(labels.METHODS)]
    steps = steps[steps["run_id"].isin(runs["run_id"])]
    metric = runs["metric"].iloc[0] if len(runs) else ""
    where = f"{labels.dataset_short(dataset)}, k = {k}"
    band = " Bands span the seeds." if runs["seed"].nunique() > 1 else ""
    yield PicturePlan(
        f"learning_curves_{dataset}_k{k}",
        dataset,
        k,
        "curves",
        f"{where}: the test metric during training, for each method's best grid point.{band}",
        lambda: draw_curves(steps, metric, f"{where}: test metric of the best runs", study.methods),
    )
    yield PicturePlan(
        f"threshold_{dataset}_k{k}",
        dataset,
        k,
        "threshold",
        f"{where}: the clipping threshold of the methods that adapt it, starting at their C₀. "
        f"Dotted lines are the constants that the other methods' grids chose.{band}",
        lambda: draw_adapted(
            steps, "threshold", f"{where}: clipping threshold of the best runs", study.methods
        ),
    )
    yield PicturePlan(
        f"learning_rate_{dataset}_k{k}",
        dataset,
        k,
        "learning_rate",
        f"{where}: the learning rate of the methods that adapt it, starting at the grid's best "
        f"value.{band}",
        lambda: draw_adapted(
            steps, "learning_rate", f"{where}: learning rate of the best runs", study.methods
        ),
    )


def _noise_plan(study: Study, dataset: str, noise: pd.DataFrame) -> PicturePlan:
    """Of the paper's methods, and on its data sets of its k: others' numbers are in the table."""
    short = labels.dataset_short(dataset)
    shown = noise["method"].isin(labels.METHODS)
    if dataset in DATASETS:
        shown &= noise["k"].map(lambda k: find_table(dataset, k) is not None)
    noise = noise[shown]
    methods = labels.method_order(noise["method"])
    caption = (
        f"{short}: the noise multiplier of each run when the budget covers the whole grid. The "
        "figure above a bar is N, the number of runs in the grid: a method with one "
        "hyperparameter less trains with less noise."
    )
    title = f"{short}: noise multiplier of each run, N above the bar"
    return PicturePlan(
        f"noise_multipliers_{dataset}",
        dataset,
        None,
        "noise",
        caption,
        lambda: draw_noise(noise, title, methods) if len(noise) else None,
    )
