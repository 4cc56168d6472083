"""Counts of runs, seeds and devices for each variant of a cell."""

import pandas as pd

from oso_dp.analysis.values import CELL, VARIANT
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.values import sort_as_paper


def count_variants(study: ResultSet) -> pd.DataFrame:
    """One row per cell and variant that was run, with counts, devices and time."""
    rows = []
    for _, group in study.values.groupby("variant_key", sort=True):
        first = group.iloc[0]
        rows.append(
            {name: first[name] for name in CELL + VARIANT}
            | {
                "grid_points": group["point"].nunique(),
                "grid_size": study.grid_size(first["dataset"], first["method"], first["k"]),
                "seeds": group["seed"].nunique(),
                "runs": len(group),
                "finished": int((group["status"] == "finished").sum()),
                "diverged": int((group["status"] == "diverged").sum()),
                "device": ", ".join(sorted(group["device"].dropna().unique())),
                "wall_seconds": group["wall_seconds"].sum(min_count=1),
            }
        )
    return sort_as_paper(pd.DataFrame(rows))
