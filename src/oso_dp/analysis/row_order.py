"""Sort rows in the paper's order."""

import pandas as pd

from oso_dp import labels


def sort_as_paper(data: pd.DataFrame) -> pd.DataFrame:
    """Rows in the paper's order of data sets, k, epsilon (none last) and methods."""
    datasets = labels.sort_datasets(data["dataset"])
    methods = labels.sort_methods(data["method"])
    ranked = data.assign(
        _dataset=data["dataset"].map(datasets.index), _method=data["method"].map(methods.index)
    )
    by = ["_dataset", "k", "epsilon", "_method"]
    ranked = ranked.sort_values(by, kind="stable", na_position="last")
    return ranked.drop(columns=["_dataset", "_method"]).reset_index(drop=True)
