"""How Online's two noisy sums share one price (the paper's Figure 2)."""

from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oso_dp.privacy.noise_split import gradient_noise_multiplier
from oso_dp.reporting import canvas

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
    figure, (axes,) = canvas.panels(1, title)
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
    canvas.log_axis(axes)
    canvas.plain_ticks(axes.xaxis)
    axes.set_xlabel(f"noise multiplier of the direction, {NU_Q}")
    axes.set_ylabel(f"noise multiplier of the gradient, {NU_G}")
    ratios = ", ".join(f"{ratio:.4g}" for ratio in sorted(set(grids["ratio"].round(6))))
    grey: dict[str, Any] = {"color": "#555555"}
    handles += [
        Line2D([], [], marker="o", linestyle="", label=f"chosen: {NU_Q} = {ratios} ν", **grey),
        Line2D([], [], linestyle=":", label=f"{NU_G} = ν: all budget to the gradient", **grey),
    ]
    canvas.legend(figure, handles)
    return figure
