"""Online's adaptation signs over the steps: from stored values, and with and without noise."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from oso_dp import labels
from oso_dp.analysis.adaptation_signs import (
    SIGN_PRODUCTS,
    coin_factor,
    coin_flip_fraction,
    count_adaptation_signs,
    sign_windows,
)
from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.figures.chart import GREY, FigureSpec, add_legend, log_axis, make_panel_grid

ORDER = 55
NAMES = {"threshold": "C", "learning_rate": "ρ"}
ADAPTED_COLOURS = {"threshold": "#882255", "learning_rate": "#44AA99"}
_WIDTHS = {"threshold": 1.1, "learning_rate": 2.4}
_COIN = "#D9D9D9"
_WINDOW_STEPS = 25
SHOWN = 40  # steps whose signs are drawn one by one
_WINDOW_STYLES: dict[Any, str] = {
    "-": "as released",
    "--": "without noise",
    ":": "expected with noise",
}
_MINUS = "#EDEDED"


def figures(study: ResultSet) -> Iterator[FigureSpec]:
    rows = select_runs(study)
    if len(rows):
        caption = (
            f"Online, {_name_cells(rows)}; a line is a seed. Above: Cₜ and ρₜ over their starting "
            "values. Each step multiplies C by exp(±rate), with the sign of the noisy gradient's "
            "product with the previous noisy direction, and ρ with the sign of its product with "
            "the previous noisy gradient. Grey is the range of a fair coin's signs with "
            "probability 95 %. Below: the fraction of + signs between two evaluations, from Cₜ and "
            "ρₜ; grey is again the coin's. Values outside of the grey are adapted to the data; "
            "values inside are indistinguishable from chance. A fraction of exactly one half at "
            "all times has less scatter than a coin: + and − follow each other in a fixed pattern."
        )
        draw = lambda: draw_adaptation_signs(rows)  # noqa: E731
        yield FigureSpec("adaptation", "", None, "adaptation", caption, draw)
    signs = study.signs
    if len(signs):
        caption = (
            f"One run of Online each: {_name_runs(signs)}. Above: in windows of {_WINDOW_STEPS} "
            "steps, the fraction of + among the adaptation signs of ρ (or C) as released, without "
            "noise (dashed), and as expected for independent noise on the noiseless sums (dotted). "
            f"Below: the last {SHOWN} recorded steps, one by one; dark is +. Values without noise "
            "are computed from the training data and are not private: public data only."
        )
        yield FigureSpec("signs", "", None, "signs", caption, lambda: draw_signs(signs))


def select_runs(study: ResultSet) -> pd.DataFrame:
    """Rows of `count_adaptation_signs` for one cell per data set: most steps, largest k, budget."""
    best = study.best_runs
    best = best[(best["method"] == "online") & best["epsilon"].notna()]
    best = best.sort_values(["steps", "k", "epsilon"], ascending=False)
    cells = best.drop_duplicates("dataset")[["dataset", "steps", "k", "epsilon"]]
    return count_adaptation_signs(best.merge(cells), study.evaluations)


def _name_cells(rows: pd.DataFrame) -> str:
    return ", ".join(
        f"{labels.dataset_short(run.dataset)} (k = {run.k}, ε = {run.epsilon:g})"
        for run in _first_rows(rows, "dataset").itertuples()
    )


def _name_runs(rows: pd.DataFrame) -> str:
    return "; ".join(
        f"{labels.dataset_short(run.dataset)} (k = {run.k}, ε = {run.epsilon:g}, "
        f"ρ₀ = {run.learning_rate:g})"
        for run in _first_rows(rows, "run_id").itertuples()
    )


def _first_rows(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The first row of each value of the column, by data set."""
    order = labels.sort_datasets(rows["dataset"].unique())
    first = rows.drop_duplicates(column)
    return first.sort_values("dataset", key=lambda names: names.map(order.index), kind="stable")


def draw_adaptation_signs(rows: pd.DataFrame) -> Figure:
    """One column per data set: the factors above, the fractions of + below.

    rows: as `analysis.adaptation_signs.count_adaptation_signs` gives them.
    """
    datasets = labels.sort_datasets(rows["dataset"].unique())
    title = "Adaptation of Online: Cₜ and ρₜ over their start, and the fraction of + signs"
    figure, (above, below) = make_panel_grid(2, len(datasets), title)
    for dataset, top, bottom in zip(datasets, above, below, strict=True):
        here = rows[rows["dataset"] == dataset]
        _draw_coin_flip(top, bottom, here)
        for value in reversed(NAMES):  # C above rho, and thinner: both are seen where they agree
            style: dict[str, Any] = {"color": ADAPTED_COLOURS[value], "linewidth": _WIDTHS[value]}
            for _, run in here[here["value"] == value].groupby("run_id"):
                start = [0.0, *run["step"]]
                top.plot(start, [1.0, *run["factor"]], **style)
                bottom.stairs(run["up"], start, baseline=None, **style)
        top.set_title(labels.dataset_short(dataset))
        _set_fraction_axis(bottom)
        bottom.set_xlabel("step")
    for top in above:
        log_axis(top)  # once all is drawn: they share it
    below[0].set_xlim(left=0)  # as well: it is the scale of all panels
    above[0].set_ylabel("factor since the start")
    below[0].set_ylabel("fraction of + signs")
    handles = [
        Line2D([], [], color=ADAPTED_COLOURS[value], linewidth=_WIDTHS[value], label=name)
        for value, name in NAMES.items()
    ]
    add_legend(figure, [*handles, Patch(color=_COIN, label="a fair coin, 95 %")])
    return figure


def _set_fraction_axis(axes: Axes) -> None:
    axes.set_ylim(-0.04, 1.04)
    axes.set_yticks([0, 0.5, 1], ["0", "½", "1"])


def _draw_coin_flip(top: Axes, bottom: Axes, rows: pd.DataFrame) -> None:
    # Close together where the band opens: a point for each step would make the page too large.
    steps = rows["step"].max() * np.linspace(0, 1, 60) ** 2
    factor = coin_factor(steps, float(rows["rate"].max()))
    top.fill_between(steps, 1 / factor, factor, color=_COIN, linewidth=0)
    one = rows[rows["run_id"] == rows["run_id"].iloc[0]].drop_duplicates("step")
    half = np.array([coin_flip_fraction(moves) if moves > 0 else 0.0 for moves in one["moves"]])
    edges = [0, *one["step"]]
    bottom.stairs(0.5 + half, edges, baseline=0.5 - half, fill=True, color=_COIN, linewidth=0)


def draw_signs(rows: pd.DataFrame) -> Figure:
    """One column per run: fractions of + of rho's sign and C's, and the last signs one by one.

    rows: of `side_measurements.ADAPTATION_SIGNS`.
    """
    windows = sign_windows(rows, _WINDOW_STEPS)
    runs = _first_rows(rows, "run_id")
    title = "The signs that move C and ρ, with and without noise"
    figure, panels = make_panel_grid(3, len(runs), title, sharex=False)
    for column, run in enumerate(runs.itertuples()):
        panels[0][column].set_title(labels.dataset_short(str(run.dataset)))
        of_run = windows[windows["run_id"] == run.run_id]
        for row, value in enumerate(reversed(SIGN_PRODUCTS)):
            _draw_fractions(panels[row][column], of_run[of_run["value"] == value], value)
        _draw_last_signs(panels[2][column], rows[rows["run_id"] == run.run_id].tail(SHOWN))
    for row, value in enumerate(reversed(SIGN_PRODUCTS)):
        panels[row][0].set_ylabel(f"fraction of +, {NAMES[value]}'s sign")
    handles = [
        Line2D([], [], color=GREY, linestyle=style, label=name)
        for style, name in _WINDOW_STYLES.items()
    ]
    add_legend(figure, handles)
    return figure


def _draw_fractions(axes: Axes, windows: pd.DataFrame, value: str) -> None:
    edges = [windows["first"].iloc[0], *windows["last"]]
    colour = ADAPTED_COLOURS[value]
    axes.axhline(0.5, color="#9A9A9A", linewidth=0.8)
    axes.stairs(windows["up"], edges, baseline=None, color=colour, linewidth=3.2)
    axes.stairs(windows["true_up"], edges, baseline=None, color="black", linestyle="--")
    axes.stairs(windows["expected_up"], edges, baseline=None, color="black", linestyle=":")
    _set_fraction_axis(axes)
    axes.set_xlim(0, windows["last"].max())


def _draw_last_signs(axes: Axes, rows: pd.DataFrame) -> None:
    """A row for each product, with and without noise, a cell for each step: dark is +."""
    lanes = [
        (value, product, noisy)
        for value, product in reversed(SIGN_PRODUCTS.items())
        for noisy in (True, False)
    ]
    edges = np.append(rows["step"].to_numpy(), rows["step"].max() + 1) - 0.5
    names = [f"{NAMES[value]}{'' if noisy else ', no noise'}" for value, _, noisy in lanes]
    for lane, (value, product, noisy) in enumerate(lanes):
        up = (rows[product if noisy else f"true_{product}"].to_numpy() > 0)[None]
        colours = ListedColormap([_MINUS, ADAPTED_COLOURS[value]])
        axes.pcolormesh(edges, [lane + 0.12, lane + 0.88], up, cmap=colours, vmin=0, vmax=1)
    axes.set_yticks([lane + 0.5 for lane in range(len(lanes))], names)
    axes.set_ylim(len(lanes), 0)
    axes.grid(visible=False)
    axes.set_xlabel("step")
