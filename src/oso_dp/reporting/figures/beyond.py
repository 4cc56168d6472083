"""Methods that the paper does not have: the metric over epsilon."""

from collections.abc import Iterator

from oso_dp import labels
from oso_dp.analysis.cell_verdicts import judged_cells
from oso_dp.analysis.cells import settings
from oso_dp.analysis.study import Study
from oso_dp.methods import PAPER_METHODS
from oso_dp.paper.tables import DATASETS
from oso_dp.reporting.figures.captions import part_note
from oso_dp.reporting.figures.figures_03_to_11 import draw_metric
from oso_dp.reporting.figures.picture import PicturePlan
from oso_dp.reporting.tables.cells import laid_note

PLACE = 30


def plans(study: Study) -> Iterator[PicturePlan]:
    for dataset, k in settings(study):
        yield beyond_plan(study, dataset, k)


def beyond_plan(study: Study, dataset: str, k: int) -> PicturePlan:
    """Methods that the paper does not have, beside Online and FixedThreshold."""
    cells = judged_cells(study, dataset, k)
    paper = [name for name in cells if name.startswith("paper_")]
    cells = cells.assign(**dict.fromkeys(paper))  # theirs are in the paper's own figure
    beyond = ~cells["method"].isin(PAPER_METHODS) & cells["mean"].notna()
    kept = ("online", "fixed_threshold", "no_dp", *cells.loc[beyond, "method"])
    cells = cells[cells["method"].isin(kept) & beyond.any()]
    where = f"{labels.dataset_short(dataset)}, k = {k}"
    return PicturePlan(
        f"beyond_{dataset}_k{k}",
        dataset,
        k,
        "beyond",
        f"{where}: methods that the paper does not compare, with Online and FixedThreshold for "
        f"reference; best on test over the budget of the {study.paid_for(dataset)}. The table has "
        "each N. "
        + " ".join(
            filter(
                None,
                (
                    labels.epochs_note(cells["epochs"]) if dataset in DATASETS else "",
                    part_note(cells),
                    laid_note(cells),
                ),
            )
        ),
        lambda: draw_metric(cells, f"{where}: beyond the paper's methods", study.methods),
    )
