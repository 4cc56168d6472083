"""Online's adaptation signs: the fraction of + for C_t and rho_t over the steps."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from oso_dp import labels
from oso_dp.analysis.adaptation_signs import coin_factor, coin_flip_fraction, count_adaptation_signs
from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.figures import layout, styles
from oso_dp.reporting.figures.figure_spec import FigureSpec

ORDER = 55

NAMES = {"threshold": "C", "learning_rate": "ρ"}
_WIDTHS = {"threshold": 1.1, "learning_rate": 2.4}
_COIN = "#D9D9D9"
_TITLE = "What steers Online: Cₜ and ρₜ over their start, and how often their signs are +"


def plans(study: ResultSet) -> Iterator[FigureSpec]:
    rows = select_runs(study)
    if rows.empty:
        return
    caption = (
        f"Online, {_which(rows)}; a line is a seed. Above: Cₜ and ρₜ over their starting values. "
        "Each step multiplies C by exp(±rate), with the sign of the noisy gradient's product with "
        "the previous noisy direction, and ρ with the sign of its product with the previous noisy "
        "gradient. Grey is where the signs of a fair coin would lead with probability "
        "95 %. Below: the share of the signs that were + between two evaluations, as Cₜ and ρₜ "
        "tell it; grey is again the coin's. Outside of the grey something is steered, inside of it "
        "nothing can be told from chance; but a share that stays at exactly one half has too "
        "little scatter for a coin: there, as many + as − follow each other in a fixed pattern."
    )
    yield FigureSpec("steering", "", None, "steering", caption, lambda: draw_adaptation_signs(rows))


def select_runs(study: ResultSet) -> pd.DataFrame:
    """Rows of `count_adaptation_signs` for one cell per data set: most steps, largest k, budget."""
    best = study.best_runs
    best = best[(best["method"] == "online") & best["epsilon"].notna()]
    best = best.sort_values(["steps", "k", "epsilon"], ascending=False)
    cells = best.drop_duplicates("dataset")[["dataset", "steps", "k", "epsilon"]]
    return count_adaptation_signs(best.merge(cells), study.evaluations)


def _which(rows: pd.DataFrame) -> str:
    cells = rows.drop_duplicates("dataset").set_index("dataset")
    named = [
        f"{labels.dataset_short(name)} (k = {cells.at[name, 'k']}, "
        f"ε = {cells.at[name, 'epsilon']:g})"
        for name in labels.sort_datasets(cells.index)
    ]
    return ", ".join(named)


def draw_adaptation_signs(rows: pd.DataFrame) -> Figure:
    """One column per data set: the factors above, the fractions of + below.

    rows: as `analysis.adaptation_signs.count_adaptation_signs` gives them.
    """
    datasets = labels.sort_datasets(rows["dataset"].unique())
    figure, (above, below) = layout.make_panel_grid(2, len(datasets), _TITLE)
    for dataset, top, bottom in zip(datasets, above, below, strict=True):
        here = rows[rows["dataset"] == dataset]
        _draw_coin_flip(top, bottom, here)
        for value in reversed(NAMES):  # C above rho, and thinner: both are seen where they agree
            line_style: dict[str, Any] = {
                "color": styles.STEERED[value],
                "linewidth": _WIDTHS[value],
            }
            for _, run in here[here["value"] == value].groupby("run_id"):
                start = [0.0, *run["step"]]
                top.plot(start, [1.0, *run["factor"]], **line_style)
                bottom.stairs(run["up"], start, baseline=None, **line_style)
        top.set_title(labels.dataset_short(dataset))
        bottom.set_ylim(-0.04, 1.04)
        bottom.set_yticks([0, 0.5, 1], ["0", "½", "1"])
        bottom.set_xlabel("step")
    for top in above:
        layout.log_axis(top)  # once all is drawn: they share it
    below[0].set_xlim(left=0)  # as well: it is the scale of all panels
    above[0].set_ylabel("factor since the start")
    below[0].set_ylabel("fraction of + signs")
    handles = [
        Line2D([], [], color=styles.STEERED[value], linewidth=_WIDTHS[value], label=name)
        for value, name in NAMES.items()
    ]
    layout.add_legend(figure, [*handles, Patch(color=_COIN, label="a fair coin, 95 %")])
    return figure


def _draw_coin_flip(top: Axes, bottom: Axes, rows: pd.DataFrame) -> None:
    # Close together where the band opens: a point for each step would make the page too large.
    steps = rows["step"].max() * np.linspace(0, 1, 60) ** 2
    factor = coin_factor(steps, float(rows["rate"].max()))
    top.fill_between(steps, 1 / factor, factor, color=_COIN, linewidth=0)
    one = rows[rows["run_id"] == rows["run_id"].iloc[0]].drop_duplicates("step")
    half = np.array([coin_flip_fraction(moves) if moves > 0 else 0.0 for moves in one["moves"]])
    edges = [0, *one["step"]]
    bottom.stairs(0.5 + half, edges, baseline=0.5 - half, fill=True, color=_COIN, linewidth=0)
