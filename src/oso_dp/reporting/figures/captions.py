"""Shared sentences of figure captions."""

import pandas as pd

from oso_dp import labels


def incomplete_note(cells: pd.DataFrame) -> str:
    """A sentence on incomplete grids, whose best is over fewer points."""
    part = cells[(cells["status"] == "run") & (cells["grid_points"] < cells["grid_size"])]
    names = [
        f"{labels.method_label(method)} (ε = {', '.join(f'{e:g}' for e in rows['epsilon'])})"
        for method, rows in part.dropna(subset="epsilon").groupby("method")
    ]
    return f"Only a part of these grids ran: {', '.join(names)}." if names else ""
