"""Figure 1: the cosine between the true and the sanitized gradient over C."""

from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from oso_dp import labels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.figures.chart import GREY, Axis, Chart, Facet, FigureSpec, Line

ORDER = 10
_TRUTHS = {
    "batch": "true gradient: of the same batch",
    "data": "true gradient: of all training examples",
}


def figures(study: ResultSet) -> Iterator[FigureSpec]:
    """From `oso diagnose cosine`: one for each noise, the run's own first."""
    if study.cosine.empty:
        return
    levels = study.cosine.groupby("noise_multiplier")
    for place, (noise, rows) in enumerate(sorted(levels, key=lambda level: -level[0])):
        run = rows.iloc[0]
        where = (
            f"{labels.dataset_short(run['dataset'])}, a run of {labels.method_label(run['method'])}"
            f" (k = {run['k']}, ε = {run['epsilon']:g}, ρ = {run['learning_rate']:g})"
        )
        caption = (
            f"{where}: the cosine between the true gradient and the clipped, averaged, noised one "
            f"(ν = {noise:.3g}) over C, at several steps t; mean and standard "
            f"deviation over {run['realisations']} realisations of sampling and noise. Left, the "
            "truth is the mean over the batch that was released; right, over all training "
            "examples. The paper's Figure 1 shows a CNN for character recognition and does not say "
            "which data, C, ρ or noise; it prints no values. Comparing with the true gradient is "
            "not private: public data only."
        )
        title = f"{where}:\ncosine of the clipped and noised gradient, ν = {noise:.3g}"
        name = f"figure_01_nu{noise:g}" if place else "figure_01"
        draw = cosine_chart(rows, title).draw
        yield FigureSpec(name, "", None, "cosine", caption, draw, data=rows)


def cosine_chart(rows: pd.DataFrame, title: str) -> Chart:
    """A panel per kind of true gradient, a curve per step.

    rows: as `oso diagnose cosine` writes them.
    """
    kept = rows[["step", "threshold", "run_threshold"]]
    curves = pd.concat(
        kept.assign(truth=truth, mean=rows[f"{truth}_mean"], std=rows[f"{truth}_std"].fillna(0))
        for truth in _TRUTHS
    )
    curves = curves.assign(low=curves["mean"] - curves["std"], high=curves["mean"] + curves["std"])
    steps = sorted(rows["step"].unique())
    palette = matplotlib.colormaps["viridis"](np.linspace(0.05, 0.85, len(steps)))
    series = {
        step: {"color": colour, "label": f"t = {step}"}
        for step, colour in zip(steps, palette, strict=True)
    }

    def mark_thresholds(axes: Axes, here: pd.DataFrame) -> None:
        for step, curve in here.sort_values("threshold").groupby("step"):
            colour = series[step]["color"]
            best = curve.loc[curve["mean"] == curve["mean"].max()].iloc[0]
            axes.plot(best["threshold"], best["mean"], "o", color=colour, zorder=4)
            own = curve["run_threshold"].iloc[0]
            if not np.isnan(own):
                height = np.interp(np.log(own), np.log(curve["threshold"]), curve["mean"])
                axes.plot(own, height, "D", color=colour, mfc="white", zorder=4)

    grey: dict[str, Any] = {"color": GREY, "linestyle": ""}
    marks = [Line2D([], [], marker="o", label="best C of those tried", **grey)]
    if rows["run_threshold"].notna().any():
        marks.append(Line2D([], [], marker="D", mfc="white", label="Cₜ of the run", **grey))
    return Chart(
        curves,
        title,
        Axis("threshold", "clipping threshold C", "log"),
        Axis("mean", "cosine similarity"),
        series,
        hue="step",
        band=("low", "high"),
        columns=Facet("truth", _TRUTHS.__getitem__),
        lines=[Line(0, {"color": GREY, "linewidth": 0.8})] if len(rows) else (),
        legend=marks,
        decorate=mark_thresholds,
    )
