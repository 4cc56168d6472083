"""Counts of runs: one row per cell and variant, with devices and time."""

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.cells import count_variants
from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.table_format import Table


def tables(sources: ReportContext) -> list[Table]:
    return [runs_table(sources.study)]


def runs_table(study: ResultSet) -> Table:
    data = count_variants(study)
    rows = pd.DataFrame(
        {
            "data set": data["dataset"].map(labels.dataset_short),
            "k": data["k"],
            "ε": data["epsilon"].map(labels.format_budget),
            "method": data["method"].map(labels.method_label),
            "grid points": [
                f"{p}" if pd.isna(n) else f"{p} of {int(n)}"
                for p, n in zip(data["grid_points"], data["grid_size"], strict=True)
            ],
            "seeds": data["seeds"],
            "runs": data["runs"],
            "diverged": data["diverged"],
            "search accounting": data["search_accounting"].str.replace("_", " "),
            "ν": [labels.format_number(v, ".3f") for v in data["noise_multiplier"]],
            "momentum": [labels.format_number(v) for v in data["momentum"]],
            "precision": data["precision"],
            "device": data["device"],
            "time": [labels.format_duration(v) for v in data["wall_seconds"]],
        }
    )
    notes = ["Time is summed over runs; runs that share a device overlap."]
    if study.shared_budgets:
        notes.append(
            "Times of runs on data that are not public are not stored: they depend on the data."
        )
    return Table("runs", "Runs", data, rows, (*notes,))
