"""Figure 1: the cosine between the true and the sanitized gradient over C."""

from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oso_dp import labels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.figures import layout
from oso_dp.reporting.figures.figure_spec import FigureSpec

ORDER = 10


def plans(study: ResultSet) -> Iterator[FigureSpec]:
    yield from cosine_plans(study)


def cosine_plans(study: ResultSet) -> Iterator[FigureSpec]:
    """Figure 1, from `oso diagnose cosine`: one for each noise, the run's own first."""
    if study.cosine.empty:
        return
    levels = study.cosine.groupby("noise_multiplier")
    for place, (noise, rows) in enumerate(sorted(levels, key=lambda level: -level[0])):
        yield _plan(f"figure_01_nu{noise:g}" if place else "figure_01", float(noise), rows)


def _plan(name: str, noise: float, rows: pd.DataFrame) -> FigureSpec:
    run = rows.iloc[0]
    where = (
        f"{labels.dataset_short(run['dataset'])}, a run of {labels.method_label(run['method'])} "
        f"(k = {run['k']}, ε = {run['epsilon']:g}, ρ = {run['learning_rate']:g})"
    )
    caption = (
        f"{where}: the cosine between the true gradient and the clipped, averaged, noised one "
        f"(ν = {noise:.3g}) over C, at several steps t; mean and standard "
        f"deviation over {run['realisations']} realisations of sampling and noise. Left, the truth "
        "is the mean over the batch that was released; right, over all training examples. The "
        "paper's Figure 1 shows a CNN for character recognition and does not say which data, C, ρ "
        "or noise; it prints no values. Comparing with the true gradient is not private: public "
        "data only."
    )
    title = f"{where}:\nwhat clip and noise leave of the gradient, ν = {noise:.3g}"
    return FigureSpec(
        name, "", None, "cosine", caption, lambda: draw_cosine(rows, title), data=rows
    )


_TRUTHS = {
    "batch": "true gradient: of the same batch",
    "data": "true gradient: of all training examples",
}


def draw_cosine(rows: pd.DataFrame, title: str) -> Figure | None:
    """A panel per kind of true gradient, a curve per step; None without rows.

    rows: as `oso diagnose cosine` writes them.
    """
    if rows.empty:
        return None
    figure, axes = layout.make_panels(len(_TRUTHS), title)
    steps = sorted(rows["step"].unique())
    palette = matplotlib.colormaps["viridis"](np.linspace(0.05, 0.85, len(steps)))
    handles = []
    for panel, (truth, heading) in zip(axes, _TRUTHS.items(), strict=True):
        for step, colour in zip(steps, palette, strict=True):
            curve = rows[rows["step"] == step].sort_values("threshold")
            mean, std = curve[f"{truth}_mean"], curve[f"{truth}_std"].fillna(0)
            panel.fill_between(
                curve["threshold"], mean - std, mean + std, color=colour, alpha=0.15, linewidth=0
            )
            panel.plot(curve["threshold"], mean, color=colour)
            best = curve.loc[mean.idxmax()]
            panel.plot(best["threshold"], best[f"{truth}_mean"], "o", color=colour, zorder=4)
            at = curve["run_threshold"].iloc[0]
            if not np.isnan(at):
                height = np.interp(np.log(at), np.log(curve["threshold"]), mean)
                panel.plot(at, height, "D", color=colour, mfc="white", zorder=4)
            if panel is axes[0]:
                handles.append(Line2D([], [], color=colour, label=f"t = {step}"))
        panel.axhline(0, color="#555555", linewidth=0.8)
        panel.set_xscale("log")
        layout.plain_ticks(panel.xaxis)
        panel.set_title(heading)
        panel.set_xlabel("clipping threshold C")
    axes[0].set_ylabel("cosine similarity")
    grey: dict[str, Any] = {"color": "#555555", "linestyle": ""}
    handles.append(Line2D([], [], marker="o", label="best C of those tried", **grey))
    if rows["run_threshold"].notna().any():
        handles.append(Line2D([], [], marker="D", mfc="white", label="Cₜ of the run", **grey))
    layout.add_legend(figure, handles)
    return figure
