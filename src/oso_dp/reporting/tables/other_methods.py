"""Cells that are not in the paper's tables: further methods, ablations, k and budgets."""

import math

import pandas as pd

from oso_dp import labels
from oso_dp.analysis import verdicts
from oso_dp.analysis.cells import has_paper_length, list_panels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.values import CELL, COMPARABLE_ON, POINT, are_comparable
from oso_dp.analysis.verdicts import Comparison, Difference, Sample, judge_cells
from oso_dp.methods import PAPER_METHODS
from oso_dp.metrics import is_higher_better
from oso_dp.paper.tables import DATASETS
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.table_format import Table
from oso_dp.reporting.tables.cells import method_columns, our_columns, tooltip

_BEYOND_NOTES = (
    "Values are in the unit of the other tables, which also give the other checkpoint rules.",
    "Budgets and grid ranges are the same; the paper has no such cells. “Against Online” is the "
    "difference to our Online at the same data set, k and ε, ± half of its 95 % interval; all "
    "cells of this table are judged together, by the rule of the verdicts. Runs shorter than the "
    "paper's, or of another precision, length or δ than Online's, are not judged. An incomplete "
    "grid is never judged worse, and never judged better than an incomplete grid of Online's: a "
    "point that was not run may be better.",
    "The noise multiplier depends on the size of the method's grid: a method that searches fewer "
    "hyperparameters trains with less noise.",
)


def tables(sources: ReportContext) -> list[Table]:
    return beyond_table(sources.study)


def beyond_table(study: ResultSet) -> list[Table]:
    """The cells that were run but are not in the paper's tables, each compared with Online.

    Further methods, ablations, other k and budgets; on data sets that are not in the paper, which
    have separate tables, only further methods and ablations. Empty without such cells.
    """
    frames = []
    for dataset, k in list_panels(study):
        cells = judge_cells(study, dataset, k)
        further = ~cells["in_paper"]
        if dataset not in DATASETS:
            further &= ~cells["method"].isin(PAPER_METHODS)
        further = cells[further]
        if len(further):
            online = cells[(cells["method"] == "online") & (cells["status"] == "run")]
            frames.append(
                further.merge(
                    online[["epsilon", *_ONLINE]], "left", "epsilon", suffixes=("", "_online")
                )
            )
    if not frames:
        return []
    data = pd.concat(frames, ignore_index=True)
    data["against_online"] = data["mean"] - data["mean_online"]
    compared = _compared(data)
    data["against_online_half"] = [
        math.nan if pair is None or (gap := _gap(row)) is None else gap.half
        for pair, row in zip(compared, data.to_dict("records"), strict=True)
    ]
    data["verdict"] = [
        labels.DASH if _mark_incomplete(verdict, row) else verdict
        for verdict, row in zip(_against_online(compared), data.to_dict("records"), strict=True)
    ]
    rows = [
        {"data set": labels.dataset_short(row["dataset"]), "k": str(row["k"])}
        | {"epochs": labels.format_number(row["epochs"])}
        | method_columns(row)
        | our_columns(row, "ours")
        | {
            "against Online": _shown(row["against_online"], row["against_online_half"]),
            "": row["verdict"],
        }
        for _, row in data.iterrows()
    ]
    keep = [*CELL, "metric", "unit", "status", *POINT, "mean", "std", "seeds", "runs", "diverged"]
    keep += ["grid_points", "grid_size", "noise_multiplier", "epochs", "against_online", "verdict"]
    keep += ["against_online_half", "last_mean", "last_std", "cross_mean", "cross_std"]
    title = "Beyond the paper: further methods, ablations and budgets"
    printed = pd.DataFrame(rows)
    column = printed.columns.get_loc("ours")
    hovers = {
        (place, column): tooltip(study, row) for place, row in enumerate(data.to_dict("records"))
    }
    return [Table("beyond", title, data[keep], printed, _BEYOND_NOTES, hovers=hovers)]


_ONLINE = ["mean", "std", "seeds", *COMPARABLE_ON, "variant", "grid_points", "grid_size"]


def _mark_incomplete(verdict: str, row: dict) -> bool:
    """Whether points that were not run could reverse the verdict."""
    end = {verdicts.WORSE: "", verdicts.BETTER: "_online"}.get(verdict)
    if end is None:
        return False
    size = row[f"grid_size{end}"]  # missing if the grid's size is unknown
    return not labels.is_missing(size) and row[f"grid_points{end}"] < size


def _compared(data: pd.DataFrame) -> list[Comparison | None]:
    """Each cell compared with Online's; None if not comparable.

    None for Online itself, if either has no value, if runs differ in precision, length or delta,
    and on the paper's data sets if runs are shorter than the paper's.
    """
    return [
        verdicts.make_comparison(
            row["dataset"], *_compare_with_online(row), is_higher_better(row["metric"])
        )
        if row["status"] == "run"
        and row["method"] != "online"
        and not math.isnan(row["mean_online"])
        and are_comparable(row, {name: row[f"{name}_online"] for name in COMPARABLE_ON})
        and has_paper_length(row["dataset"], row["epochs"])
        and not row["variant_online"]
        else None
        for row in data.to_dict("records")
    ]


def _compare_with_online(row: dict) -> tuple[Sample, Sample]:
    online = Sample(row["mean_online"], row["std_online"], int(row["seeds_online"]))
    return Sample.of(row), online


def _gap(row: dict) -> Difference | None:
    return verdicts.difference([_compare_with_online(row)])


def _shown(difference: float, half: float) -> str:
    return labels.format_signed(difference) + ("" if math.isnan(half) else f" ± {half:.2f}")


def _against_online(compared: list[Comparison | None]) -> list[str]:
    """A verdict for each cell against Online's; all are judged together."""
    judged = iter(verdicts.judge([pair for pair in compared if pair is not None]))
    return [labels.DASH if pair is None else next(judged) for pair in compared]
