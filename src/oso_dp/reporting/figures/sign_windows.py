"""Online's adaptation signs with and without noise, over the steps of a run."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oso_dp import labels
from oso_dp.analysis.adaptation_signs import SIGN_PRODUCTS, sign_windows
from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.figures import layout, styles
from oso_dp.reporting.figures.figure_spec import FigureSpec

ORDER = 56

_WINDOW_STEPS = 25
SHOWN = 40  # steps whose signs are drawn one by one
_NAMES = {"threshold": "C", "learning_rate": "ρ"}
_TITLE = "The signs that move C and ρ, with and without noise"
_STYLES: dict[Literal["-", "--", ":"], str] = {
    "-": "as released",
    "--": "without noise",
    ":": "to expect with noise",
}
_MINUS = "#EDEDED"


def plans(study: ResultSet) -> Iterator[FigureSpec]:
    rows = study.signs
    if rows.empty:
        return
    caption = (
        f"One run of Online each: {_which(rows)}. Above: in windows of {_WINDOW_STEPS} steps, the "
        "fraction of + among the adaptation signs of ρ (or C) as released, without noise (dashed), "
        "and as expected for independent noise on the noiseless sums (dotted). Below: the last "
        f"{SHOWN} recorded steps, one by one; dark is +. Values without noise are computed from "
        "the training data and are not private: public data only."
    )
    yield FigureSpec("signs", "", None, "signs", caption, lambda: draw_signs(rows))


def _which(rows: pd.DataFrame) -> str:
    return "; ".join(
        f"{labels.dataset_short(run.dataset)} (k = {run.k}, ε = {run.epsilon:g}, "
        f"ρ₀ = {run.learning_rate:g})"
        for run in _runs(rows).itertuples()
    )


def _runs(rows: pd.DataFrame) -> pd.DataFrame:
    """The first row of each run, in the order of the columns."""
    order = labels.sort_datasets(rows["dataset"].unique())
    first = rows.drop_duplicates("run_id")
    return first.sort_values("dataset", key=lambda names: names.map(order.index), kind="stable")


def draw_signs(rows: pd.DataFrame) -> Figure:
    """One column per run: fractions of + of rho's sign and C's, and the last signs one by one.

    rows: as `side_measurements.read_signs` gives them.
    """
    windows = sign_windows(rows, _WINDOW_STEPS)
    runs = _runs(rows)
    figure, panels = layout.make_panel_grid(3, len(runs), _TITLE, sharex=False)
    for column, run in enumerate(runs.itertuples()):
        panels[0][column].set_title(labels.dataset_short(str(run.dataset)))
        of_run = windows[windows["run_id"] == run.run_id]
        for row, value in enumerate(reversed(SIGN_PRODUCTS)):
            _draw_fractions(
                panels[row][column], of_run[of_run["value"] == value], styles.STEERED[value]
            )
        _lanes(panels[2][column], rows[rows["run_id"] == run.run_id].tail(SHOWN))
    for row, value in enumerate(reversed(SIGN_PRODUCTS)):
        panels[row][0].set_ylabel(f"fraction of +, {_NAMES[value]}'s sign")
    handles = [
        Line2D([], [], color="#555555", linestyle=style, label=name)
        for style, name in _STYLES.items()
    ]
    layout.add_legend(figure, handles)
    return figure


def _draw_fractions(panel: Axes, windows: pd.DataFrame, colour: str) -> None:
    edges = [windows["first"].iloc[0], *windows["last"]]
    panel.axhline(0.5, color="#9A9A9A", linewidth=0.8)
    panel.stairs(windows["up"], edges, baseline=None, color=colour, linewidth=3.2)
    panel.stairs(windows["true_up"], edges, baseline=None, color="black", linestyle="--")
    panel.stairs(windows["expected_up"], edges, baseline=None, color="black", linestyle=":")
    panel.set_ylim(-0.04, 1.04)
    panel.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    panel.set_xlim(0, windows["last"].max())


def _lanes(panel: Axes, rows: pd.DataFrame) -> None:
    """A row for each product, a cell for each step: dark is +."""
    lanes = [
        (
            f"{_NAMES[value]}{'' if noisy else ', no noise'}",
            value,
            product if noisy else f"true_{product}",
        )
        for value, product in reversed(SIGN_PRODUCTS.items())
        for noisy in (True, False)
    ]
    edges = np.append(rows["step"].to_numpy(), rows["step"].max() + 1) - 0.5
    for lane, (_, value, product) in enumerate(lanes):
        up = (rows[product].to_numpy() > 0)[None]
        colours = ListedColormap([_MINUS, styles.STEERED[value]])
        panel.pcolormesh(edges, [lane + 0.12, lane + 0.88], up, cmap=colours, vmin=0, vmax=1)
    panel.set_yticks([lane + 0.5 for lane in range(len(lanes))], [name for name, *_ in lanes])
    panel.set_ylim(len(lanes), 0)
    panel.grid(visible=False)
    panel.set_xlabel("step")
