"""The figures of the report, as PNG and PDF, each with a caption of a few sentences."""

from collections.abc import Iterator

import pandas as pd

from oso.reporting import canvas, labels
from oso.reporting.compare import Study, compare
from oso.reporting.draw_metric import draw_metric
from oso.reporting.draw_noise import draw_noise
from oso.reporting.draw_steps import draw_adapted, draw_curves, trajectories
from oso.reporting.files import ReportFolder
from oso.reporting.paper import DATASETS, find_table, paper_tables
from oso.reporting.pictures import Picture, PicturePlan
from oso.reporting.price_figures import price_plans
from oso.reporting.tables import noise_table


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
            pictures.append(
                Picture(plan.name, plan.dataset, plan.k, plan.kind, plan.caption, png, plan.ours)
            )
    return pictures


def settings(study: Study) -> list[tuple[str, int]]:
    """The pairs of data set and k that have rows, in the paper's order."""
    pairs = study.runs[["dataset", "k"]].drop_duplicates().itertuples(index=False)
    order = [*labels.DATASETS, *study.datasets]
    return sorted(((d, int(k)) for d, k in pairs), key=lambda p: (order.index(p[0]), p[1]))


def _plans(study: Study) -> Iterator[PicturePlan]:
    ran = settings(study)
    for dataset, k in ran:
        yield _metric_plan(study, dataset, k, ours=True)
        yield from _step_plans(study, dataset, k)
    noise = noise_table(study).data
    for dataset in labels.dataset_order(noise["dataset"].unique()):
        yield _noise_plan(study, dataset, noise[noise["dataset"] == dataset])
    yield from price_plans(study)
    if set(study.datasets) & set(DATASETS):
        for table in paper_tables():
            if (table.dataset, table.k) not in ran:
                yield _metric_plan(study, table.dataset, table.k, ours=False)


def _metric_plan(study: Study, dataset: str, k: int, ours: bool) -> PicturePlan:
    table = find_table(dataset, k)
    cells = compare(study, dataset, k)
    short = labels.dataset_short(dataset)
    name = f"figure_{table.figure:02d}" if table else f"metric_over_epsilon_{dataset}_k{k}"
    title = f"{short}, k = {k}" if ours else f"{short}, k = {k}: the paper's values, none of ours"
    better = "Lower" if cells["metric"].iloc[0] == "mse" else "Higher"
    caption = (
        f"{short}, k = {k}: best on test over the budget of the whole grid. {better} is better. "
    )
    seeds = cells.loc[cells["status"] == "run", "seeds"]
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
        lambda: draw_metric(cells, title, study.methods),
        ours,
    )


def _step_plans(study: Study, dataset: str, k: int) -> Iterator[PicturePlan]:
    best = study.best_runs
    runs = best[(best["dataset"] == dataset) & (best["k"] == k)]
    steps = trajectories(runs, study.evaluations)
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
    short = labels.dataset_short(dataset)
    methods = labels.method_order({*study.methods, *noise["method"]})
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
        lambda: draw_noise(noise, title, methods),
    )
