"""The metric over epsilon for methods that are not in the paper."""

from collections.abc import Iterator

from oso_dp import labels
from oso_dp.analysis.cells import list_panels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.methods import PAPER_METHODS
from oso_dp.paper.tables import DATASETS
from oso_dp.reporting.figures.captions import incomplete_note
from oso_dp.reporting.figures.figure_spec import FigureSpec
from oso_dp.reporting.figures.figures_03_to_11 import draw_metric
from oso_dp.reporting.tables.cells import variant_note

ORDER = 30


def plans(study: ResultSet) -> Iterator[FigureSpec]:
    for dataset, k in list_panels(study):
        yield beyond_plan(study, dataset, k)


def beyond_plan(study: ResultSet, dataset: str, k: int) -> FigureSpec:
    """Methods that are not in the paper, beside Online and FixedThreshold."""
    cells = judge_cells(study, dataset, k)
    paper = [name for name in cells if name.startswith("paper_")]
    cells = cells.assign(**dict.fromkeys(paper))  # the paper's values are in its own figure
    beyond = ~cells["method"].isin(PAPER_METHODS) & cells["mean"].notna()
    kept = ("online", "fixed_threshold", "no_dp", *cells.loc[beyond, "method"])
    cells = cells[cells["method"].isin(kept) & beyond.any()]
    where = f"{labels.dataset_short(dataset)}, k = {k}"
    return FigureSpec(
        f"beyond_{dataset}_k{k}",
        dataset,
        k,
        "beyond",
        f"{where}: methods that the paper does not compare, with Online and FixedThreshold for "
        f"reference; best on test over the budget of the {study.budgeted_runs(dataset)}. The "
        "table has "
        "each N. "
        + " ".join(
            filter(
                None,
                (
                    labels.format_epochs_note(cells["epochs"]) if dataset in DATASETS else "",
                    incomplete_note(cells),
                    variant_note(cells),
                ),
            )
        ),
        lambda: draw_metric(cells, f"{where}: beyond the paper's methods", study.methods),
    )
