"""Users' updates: C beside the true quantiles of their norms, and the norms of layers."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.side_measurements import WHOLE
from oso_dp.reporting.figures.chart import Axis, Chart, Facet, FigureSpec

ORDER = 58
_THRESHOLD, _QUANTILE = "threshold", "quantile"
_SERIES: dict[Any, dict[str, Any]] = {
    _THRESHOLD: {"label": "Cₜ", "color": "#882255"},
    _QUANTILE: {"label": "quantile γ of the norms (Online: the median)", "color": "#117733"},
}
_LAYERS = ("#332288", "#44AA99", "#DDCC77", "#CC6677", "#AA4499", "#661100", "#999933", "#88CCEE")
_STEP, _NORM = Axis("step", "step"), Axis("value", "norm of an update", "log")


def figures(study: ResultSet) -> Iterator[FigureSpec]:
    """None without measured update norms."""
    rows = study.update_norms
    if rows.empty:
        return
    whole = rows[rows["layer"] == WHOLE]
    for (dataset, model), here in whole.groupby(["dataset", "model"], sort=False):
        where = f"{labels.dataset_short(dataset)}, {model}"
        caption = (
            f"{where}: the clipping threshold in runs that protect users, beside the quantile of "
            "all users' update norms that it is to follow; the band spans the 10 % and the 90 % "
            "quantile. The norms are computed without privacy, from public data."
        )
        chart = threshold_chart(here, f"{where}: C beside the norms of users' updates")
        name = f"update_norms_{dataset}_{model}"
        yield FigureSpec(name, dataset, None, "updates", caption, chart.draw)
        layers = rows[(rows["dataset"] == dataset) & (rows["model"] == model)]
        layers = layers[(layers["layer"] != WHOLE) & (layers["run_id"] == here["run_id"].iloc[0])]
        if layers["layer"].nunique() < 2:
            continue
        caption = (
            f"{where}: the mean norm of each layer's update over all users, in one run "
            "(Thakkar et al. 2019 show such norms for their Figure 1)."
        )
        chart = layers_chart(layers, f"{where}: norms of users' updates by layer")
        yield FigureSpec(f"{name}_layers", dataset, None, "updates", caption, chart.draw)


def threshold_chart(rows: pd.DataFrame, title: str) -> Chart:
    """A panel for each run: C and the quantile that it is to follow, over the steps."""
    parts = []
    for _, run in rows.groupby("run_id", sort=False):
        first = run.iloc[0]
        gamma = 0.5 if labels.is_missing(first["quantile"]) else float(first["quantile"])
        panel = f"{labels.method_label(first['method'])}, ε = {first['epsilon']:g}"
        panel += "" if labels.is_missing(first["quantile"]) else f", γ = {gamma:g}"
        panel += f", C₀ = {first['threshold']:g}"  # of runs that differ in it alone
        parts += [
            run.assign(panel=panel, line=_THRESHOLD, value=run["threshold"], q10=None, q90=None),
            run.assign(panel=panel, line=_QUANTILE, value=run[f"q{round(100 * gamma)}"]),
        ]
    data = pd.concat(parts).astype({"q10": float, "q90": float})
    return Chart(
        data, title, _STEP, _NORM, _SERIES, "line", band=("q10", "q90"), columns=Facet("panel")
    )


def layers_chart(rows: pd.DataFrame, title: str) -> Chart:
    """The mean norm of each layer over the steps."""
    names = list(dict.fromkeys(rows["layer"]))
    series: dict[Any, dict[str, Any]] = {
        name: {"label": f"layer {name}", "color": _LAYERS[place % len(_LAYERS)]}
        for place, name in enumerate(names)
    }
    return Chart(rows.assign(value=rows["mean"]), title, _STEP, _NORM, series, "layer")
