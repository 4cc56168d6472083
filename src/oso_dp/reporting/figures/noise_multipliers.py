"""Noise multipliers by grid size, one bar per method."""

from collections.abc import Iterator

import pandas as pd
import seaborn
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from oso_dp import labels
from oso_dp.analysis.noise_tables import noise_multipliers
from oso_dp.analysis.result_set import ResultSet
from oso_dp.methods import PAPER_METHODS
from oso_dp.paper.tables import DATASETS, find_table
from oso_dp.reporting.figures import layout, styles
from oso_dp.reporting.figures.figure_spec import FigureSpec

ORDER = 60


def plans(study: ResultSet) -> Iterator[FigureSpec]:
    noise = noise_multipliers(study)
    for dataset in labels.sort_datasets(set(noise["dataset"]) - {*study.shared_budgets}):
        yield _noise_plan(dataset, noise[noise["dataset"] == dataset])


def _noise_plan(dataset: str, noise: pd.DataFrame) -> FigureSpec:
    """The paper's methods, on its data sets at its k; the table has the others."""
    short = labels.dataset_short(dataset)
    in_paper = noise["method"].isin(PAPER_METHODS)
    if dataset in DATASETS:
        in_paper &= noise["k"].map(lambda k: find_table(dataset, k) is not None)
    noise = noise[in_paper]
    methods = labels.sort_methods(noise["method"])
    caption = (
        f"{short}: the noise multiplier of each run when the budget covers the complete grid. The "
        "number above a bar is N, the number of runs in the grid: a method with one "
        "hyperparameter less trains with less noise."
    )
    title = f"{short}: noise multiplier of each run, N above the bar"
    return FigureSpec(
        f"noise_multipliers_{dataset}",
        dataset,
        None,
        "noise",
        caption,
        lambda: draw_noise(noise, title, methods) if len(noise) else None,
    )


WIDTH = 0.8  # of all bars at one epsilon


def draw_noise(noise: pd.DataFrame, title: str, methods: list[str]) -> Figure | None:
    """Bars over epsilon per method, a panel per k, N above each bar.

    noise: rows of one data set as in the table `noise_multipliers`.
    """
    if noise.empty:
        return None
    ks = sorted(noise["k"].unique())
    figure, axes = layout.make_panels(len(ks), title, abreast=3)
    colour = styles.colours(methods)
    ordered = labels.sort_methods(noise["method"].unique())
    for panel, k in zip(axes, ks, strict=True):
        here = noise[noise["k"] == k]
        epsilons = sorted(here["epsilon"].unique())  # Fashion-MNIST's differ from k to k
        seaborn.barplot(
            here,
            x="epsilon",
            y="noise_multiplier",
            order=epsilons,
            hue="method",
            hue_order=ordered,
            palette=colour,
            saturation=1,
            width=WIDTH,
            gap=0.08,
            errorbar=None,
            legend=False,
            ax=panel,
        )
        sizes = here.set_index(["method", "epsilon"])["grid_size"]
        for method, bars in zip(ordered, panel.containers, strict=True):
            middles = [bar.get_x() + bar.get_width() / 2 for bar in bars]
            sides = [f"{sizes[method, epsilons[round(middle)]]}" for middle in middles]
            panel.bar_label(bars, sides, padding=1.5, fontsize=6.5)  # type: ignore[arg-type]
        panel.set_xticks(range(len(epsilons)), [f"{e:g}" for e in epsilons])
        panel.set_xlim(-0.6, len(epsilons) - 0.4)
        panel.margins(y=0.12)
        panel.grid(axis="x", visible=False)
        panel.set_title(f"k = {k}")
        panel.set_xlabel("ε of the complete grid")
        panel.set_ylabel("noise multiplier ν" if panel is axes[0] else "")
    handles = [Patch(color=colour[m], label=labels.method_label(m)) for m in ordered]
    layout.add_legend(figure, handles)
    return figure
