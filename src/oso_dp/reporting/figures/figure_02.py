"""Figure 2: how Online's two noisy sums share one privacy cost."""

from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oso_dp import labels
from oso_dp.analysis.noise_tables import online_grids
from oso_dp.analysis.result_set import ResultSet
from oso_dp.privacy.noise_composition import gradient_noise_multiplier
from oso_dp.reporting.figures import layout
from oso_dp.reporting.figures.figure_spec import FigureSpec

ORDER = 90


def plans(study: ResultSet) -> Iterator[FigureSpec]:
    yield from _split_plan(study)


def _split_plan(study: ResultSet) -> Iterator[FigureSpec]:
    online = online_grids(study)
    if online.empty:
        return
    dataset, k = online["dataset"].iloc[0], int(online["k"].iloc[0])
    where = f"{labels.dataset_short(dataset)}, Online's grids at k = {k}"
    yield FigureSpec(
        "figure_02",
        dataset,
        None,
        "search_cost",
        f"{where}: pairs of noise multipliers, of the gradient (ν_g) and of the direction in which "
        "the clipping threshold moves (ν_q), that together cost as much as one sum with ν "
        "(Proposition 1). The point is the pair that Online uses. The dotted line is ν, which ν_g "
        "approaches as ν_q grows. The paper's Figure 2 shows this for MNIST "
        f"and does not say for which k; this is k = {k}, the study's largest.",
        lambda: draw_split(online, f"{where}: how two noisy sums share one privacy cost"),
    )


# nu_q / nu; at 1 no budget is left for the gradient.
_RATIOS = 1 + np.geomspace(0.02, 24, 100)
NU_G, NU_Q = r"$\mathregular{ν_g}$", r"$\mathregular{ν_q}$"


def draw_split(grids: pd.DataFrame, title: str) -> Figure | None:
    """Plot nu_g over nu_q at equal privacy (Proposition 1), a curve per row.

    grids: columns epsilon, noise_multiplier (nu) and ratio (the nu_q / nu that was chosen). None
    without rows.
    """
    if grids.empty:
        return None
    figure, (axes,) = layout.make_panels(1, title)
    figure.set_size_inches(6.8, 4.6)
    handles = []
    # Without the lightest, which is too light to read.
    palette = matplotlib.colormaps["viridis"](np.linspace(0.1, 0.8, len(grids)))
    for row, colour in zip(grids.itertuples(), palette, strict=True):
        nu = row.noise_multiplier
        curve = [gradient_noise_multiplier(nu, nu * ratio) for ratio in _RATIOS]
        label = f"ε = {row.epsilon:g}, ν = {nu:.3f}"
        handles += axes.plot(nu * _RATIOS, curve, color=colour, label=label)
        axes.axhline(nu, color=colour, linestyle=":", linewidth=1.1)
        chosen = nu * row.ratio
        axes.plot(chosen, gradient_noise_multiplier(nu, chosen), "o", color=colour, markersize=6.5)
    axes.set_xscale("log")
    layout.log_axis(axes)
    layout.plain_ticks(axes.xaxis)
    axes.set_xlabel(f"noise multiplier of the direction, {NU_Q}")
    axes.set_ylabel(f"noise multiplier of the gradient, {NU_G}")
    ratios = ", ".join(f"{ratio:.4g}" for ratio in sorted(set(grids["ratio"].round(6))))
    grey: dict[str, Any] = {"color": "#555555"}
    handles += [
        Line2D([], [], marker="o", linestyle="", label=f"chosen: {NU_Q} = {ratios} ν", **grey),
        Line2D([], [], linestyle=":", label=f"{NU_G} = ν: all budget to the gradient", **grey),
    ]
    layout.add_legend(figure, handles)
    return figure
