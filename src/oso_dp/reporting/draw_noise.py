"""The noise multiplier that a method's grid size costs."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from oso_dp.reporting import canvas, labels

WIDTH = 0.8  # of all bars at one epsilon


def draw_noise(noise: pd.DataFrame, title: str, methods: list[str]) -> Figure | None:
    """Bars over epsilon per method, a panel per k, N above each bar.

    noise: rows of one data set as in the table `noise_multipliers`.
    """
    if noise.empty:
        return None
    ks = sorted(noise["k"].unique())
    figure, axes = canvas.panels(len(ks), title, abreast=3)
    colour = labels.colours(methods)
    shown = labels.method_order(noise["method"].unique())
    width = WIDTH / len(shown)
    for panel, k in zip(axes, ks, strict=True):
        here = noise[noise["k"] == k]
        epsilons = sorted(here["epsilon"].unique())  # Fashion-MNIST's differ from k to k
        for i, method in enumerate(shown):
            rows = here[here["method"] == method]
            x = rows["epsilon"].map(epsilons.index) + width * (i - (len(shown) - 1) / 2)
            bars = panel.bar(x, rows["noise_multiplier"], width * 0.92, color=colour[method])
            panel.bar_label(bars, [f"{n}" for n in rows["grid_size"]], padding=1.5, fontsize=6.5)
        panel.set_xticks(range(len(epsilons)), [f"{e:g}" for e in epsilons])
        panel.set_xlim(-0.6, len(epsilons) - 0.4)
        panel.margins(y=0.12)
        panel.grid(axis="x", visible=False)
        panel.set_title(f"k = {k}")
        panel.set_xlabel("ε of the whole grid")
        if panel is axes[0]:
            panel.set_ylabel("noise multiplier ν")
    handles = [Patch(color=colour[m], label=labels.method_label(m)) for m in shown]
    canvas.legend(figure, handles)
    return figure
