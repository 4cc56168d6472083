"""What was run: one row per cell and setting, with counts, devices and time."""

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.coverage import variants
from oso_dp.analysis.study import Study
from oso_dp.reporting.sources import Sources
from oso_dp.reporting.table import Table


def tables(sources: Sources) -> list[Table]:
    return [runs_table(sources.study)]


def runs_table(study: Study) -> Table:
    data = variants(study)
    rows = pd.DataFrame(
        {
            "data set": data["dataset"].map(labels.dataset_short),
            "k": data["k"],
            "ε": data["epsilon"].map(labels.epsilon_text),
            "method": data["method"].map(labels.method_label),
            "grid points": [
                f"{p}" if pd.isna(n) else f"{p} of {int(n)}"
                for p, n in zip(data["grid_points"], data["grid_size"], strict=True)
            ],
            "seeds": data["seeds"],
            "runs": data["runs"],
            "diverged": data["diverged"],
            "search accounted for by": data["selection"].str.replace("_", " "),
            "ν": [labels.number(v, ".3f") for v in data["noise_multiplier"]],
            "momentum": [labels.number(v) for v in data["momentum"]],
            "precision": data["precision"],
            "device": data["device"],
            "time": [labels.duration(v) for v in data["wall_seconds"]],
        }
    )
    notes = ["Time is summed over runs; runs that share a device overlap."]
    if study.shared_budgets:
        notes.append(
            "Times of runs on data that are not public are not kept: they tell of the data."
        )
    return Table("runs", "What was run", data, rows, (*notes,))
