"""Each grid's size N, noise multiplier and ratio to Online's noise multiplier."""

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.noise_tables import noise_multipliers
from oso_dp.analysis.result_set import ResultSet
from oso_dp.paper.tables import DATASETS
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.table_format import Table


def tables(sources: ReportContext) -> list[Table]:
    return [noise_table(sources.study)]


def noise_table(study: ResultSet) -> Table:
    data = noise_multipliers(study)
    rows = pd.DataFrame(
        {
            "data set": data["dataset"].map(labels.dataset_short),
            "k": data["k"],
            "ε": data["epsilon"].map(labels.format_budget),
            "method": data["method"].map(labels.method_label),
            "N": data["grid_size"],
            "noise multiplier ν": [
                labels.format_number(v, ".3f") for v in data["noise_multiplier"]
            ],
            "ν / Online's ν": [labels.format_number(v, ".2f") for v in data["ratio_to_online"]],
        }
    )
    notes = ["The budget covers all N runs of a grid: a larger grid needs more noise per run."]
    if ((data["source"] == "rows") & ~data["dataset"].isin(DATASETS)).any():
        notes.append(
            "Without a plan, N of a grid that is not in the paper is the number of run points."
        )
    if shared := [labels.dataset_short(name) for name in study.shared_budgets]:
        notes.append(
            f"On {', '.join(shared)} the budget covers the runs of all methods, grids and seeds: N "
            "is their number, and all have the same noise."
        )
    title = "Noise multiplier by grid size"
    return Table("noise_multipliers", title, data, rows, (*notes,))
