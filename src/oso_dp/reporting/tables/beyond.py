"""What was run and stands in none of the paper's tables: methods, controls, budgets."""

import math

import pandas as pd

from oso_dp import labels
from oso_dp.analysis import verdicts
from oso_dp.analysis.cell_verdicts import judged_cells
from oso_dp.analysis.cells import settings
from oso_dp.analysis.keys import CELL, POINT
from oso_dp.analysis.study import Study
from oso_dp.analysis.verdicts import Comparison, Sample
from oso_dp.metrics import is_higher_better
from oso_dp.paper.tables import (
    DATASETS,
)
from oso_dp.reporting.sources import Sources
from oso_dp.reporting.table import Table
from oso_dp.reporting.tables.cells import name, own

_BEYOND_NOTES = (
    "Values are in the unit of the other tables, which have the other checkpoint rules, too.",
    "Same budgets, same grid ranges, none of the paper's numbers: it has no such cells. "
    "“Against Online” is the difference to our own Online at the same data set, k and ε, judged by "
    "the rule of the verdicts, all cells of this table together.",
    "The noise multiplier says what the method's own grid leaves to each run: a method that "
    "searches fewer hyperparameters trains with less noise.",
)


def tables(sources: Sources) -> list[Table]:
    return beyond_table(sources.study)


def beyond_table(study: Study) -> list[Table]:
    """The cells that were run and stand in none of the paper's tables, each against Online.

    Further methods, controls, other k and budgets; on data sets that the paper does not have, which
    have a table of their own, further methods and controls only. Empty where there is none.
    """
    frames = []
    for dataset, k in settings(study):
        cells = judged_cells(study, dataset, k)
        further = ~cells["in_paper"]
        if dataset not in DATASETS:
            further &= ~cells["method"].isin(labels.METHODS)
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
    data["verdict"] = _against_online(data)
    rows = [
        {"data set": labels.dataset_short(row["dataset"]), "k": str(row["k"])}
        | {"epochs": labels.number(row["epochs"])}
        | name(row)
        | own(row, "ours")
        | {
            "against Online": labels.signed(row["against_online"]),
            "": row["verdict"],
        }
        for _, row in data.iterrows()
    ]
    keep = [*CELL, "metric", "unit", "status", *POINT, "mean", "std", "seeds", "runs", "diverged"]
    keep += ["grid_points", "grid_size", "noise_multiplier", "epochs", "against_online", "verdict"]
    keep += ["last_mean", "last_std", "cross_mean", "cross_std"]
    title = "Beyond the paper: further methods, controls and budgets"
    return [Table("beyond", title, data[keep], pd.DataFrame(rows), _BEYOND_NOTES)]


_ONLINE = ["mean", "std", "seeds"]


def _against_online(data: pd.DataFrame) -> list[str]:
    """A verdict for each cell beside Online's; all are judged together."""
    rows = data.to_dict("records")
    other = [
        row["status"] == "run" and row["method"] != "online" and not math.isnan(row["mean_online"])
        for row in rows
    ]
    compared = [
        Comparison(
            Sample(row["mean"], row["std"], int(row["seeds"])),
            Sample(row["mean_online"], row["std_online"], int(row["seeds_online"])),
            verdicts.MARGINS[row["dataset"]],
            is_higher_better(row["metric"]),
        )
        for row, usable in zip(rows, other, strict=True)
        if usable
    ]
    judged = iter(verdicts.judge(compared))
    return [next(judged) if usable else labels.NOTHING for usable in other]
