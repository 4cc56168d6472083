"""Accounting of one training: Figure 2 (two sums at one cost), and three accountants."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from oso_dp import labels
from oso_dp.accounting.accountants import compute_epsilon_of_event
from oso_dp.accounting.advanced_composition import compute_advanced_epsilon
from oso_dp.analysis.noise_tables import online_grids
from oso_dp.analysis.result_set import ResultSet
from oso_dp.privacy.ledger import composed_event
from oso_dp.privacy.noise_composition import gradient_noise_multiplier
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.reporting.figures.chart import GREY, Axis, Chart, FigureSpec, Line

ORDER = 90
_RATIOS = 1 + np.geomspace(0.02, 24, 100)  # nu_q / nu; at 1 no budget is left for the gradient
NU_G, NU_Q = r"$\mathregular{ν_g}$", r"$\mathregular{ν_q}$"


def figures(study: ResultSet) -> Iterator[FigureSpec]:
    online = online_grids(study)
    if len(online):
        yield _split_figure(online)
    yield _accountants_figure()


def _split_figure(online: pd.DataFrame) -> FigureSpec:
    dataset, k = online["dataset"].iloc[0], int(online["k"].iloc[0])
    where = f"{labels.dataset_short(dataset)}, Online's grids at k = {k}"
    caption = (
        f"{where}: pairs of noise multipliers, of the gradient (ν_g) and of the direction in which "
        "the clipping threshold moves (ν_q), that together cost as much as one sum with ν "
        "(Proposition 1). The point is the pair that Online uses. The dotted line is ν, which ν_g "
        "approaches as ν_q grows. The paper's Figure 2 shows this for MNIST "
        f"and does not say for which k; this is k = {k}, the study's largest."
    )
    draw = split_chart(online, f"{where}: how two noisy sums share one privacy cost").draw
    return FigureSpec("figure_02", dataset, None, "search_cost", caption, draw)


def split_chart(grids: pd.DataFrame, title: str) -> Chart:
    """nu_g over nu_q at equal privacy (Proposition 1), a curve per row.

    grids: columns epsilon, noise_multiplier (nu) and ratio (the nu_q / nu that was chosen).
    """
    # Without the lightest, which is too light to read.
    palette = matplotlib.colormaps["viridis"](np.linspace(0.1, 0.8, len(grids)))
    rows = [*zip(grids.to_dict("records"), palette, strict=True)]
    curves = [
        {"row": place, "nu_q": nu * ratio, "nu_g": gradient_noise_multiplier(nu, nu * ratio)}
        for place, nu in enumerate(grids["noise_multiplier"])
        for ratio in _RATIOS
    ]

    def mark_chosen(axes: Axes, _: pd.DataFrame) -> None:
        for row, colour in rows:
            chosen = row["noise_multiplier"] * row["ratio"]
            height = gradient_noise_multiplier(row["noise_multiplier"], chosen)
            axes.plot(chosen, height, "o", color=colour, markersize=6.5)

    ratios = ", ".join(f"{ratio:.4g}" for ratio in sorted(set(grids["ratio"].round(6))))
    grey: dict[str, Any] = {"color": GREY}
    return Chart(
        pd.DataFrame(curves, columns=["row", "nu_q", "nu_g"]),
        title,
        Axis("nu_q", f"noise multiplier of the direction, {NU_Q}", "log"),
        Axis("nu_g", f"noise multiplier of the gradient, {NU_G}", "log"),
        {
            place: {"color": colour,
                    "label": f"ε = {row['epsilon']:g}, ν = {row['noise_multiplier']:.3f}"}
            for place, (row, colour) in enumerate(rows)
        },
        hue="row",
        lines=[
            Line(row["noise_multiplier"], {"color": colour, "linestyle": ":", "linewidth": 1.1})
            for row, colour in rows
        ],
        legend=[
            Line2D([], [], marker="o", linestyle="", label=f"chosen: {NU_Q} = {ratios} ν", **grey),
            Line2D([], [], linestyle=":", label=f"{NU_G} = ν: all budget to the gradient", **grey),
        ],
        decorate=mark_chosen,
    )  # fmt: skip


# Abadi et al. 2016, Figure 2: q, sigma and delta; the epochs are 1 / q steps each.
RATE, NOISE_MULTIPLIER, DELTA = 0.01, 4.0, 1e-5
EPOCHS = (1, 2, 5, 10, 20, 35, 60, 100, 150, 200, 300, 400)
_ACCOUNTANTS = {
    "advanced": {"label": "advanced composition", "color": "#D55E00"},
    "rdp": {"label": "RDP (successor of the moments accountant)", "color": "#0072B2"},
    "pld": {"label": "PLD", "color": "#000000", "linestyle": "--"},
}


@cache
def accountants() -> pd.DataFrame:
    """Columns epochs, advanced, rdp, pld: epsilon at `DELTA`."""
    sampling = PoissonSampling(RATE)
    rows = []
    for epochs in EPOCHS:
        steps = round(epochs / RATE)
        event = composed_event({(sampling, NOISE_MULTIPLIER): steps})
        row = {
            "epochs": epochs,
            "advanced": compute_advanced_epsilon(sampling, NOISE_MULTIPLIER, steps, DELTA),
        }
        for name in ("rdp", "pld"):
            row[name] = compute_epsilon_of_event(sampling, event, DELTA, name)
        rows.append(row)
    return pd.DataFrame(rows)


def _accountants_figure() -> FigureSpec:
    """Epsilon over epochs by three accountants (Abadi et al. 2016, Figure 2)."""
    last = accountants().iloc[-1]
    caption = (
        f"The same {EPOCHS[-1]} epochs (q = {RATE:g}, ν = {NOISE_MULTIPLIER:g}, δ = "
        f"{labels.format_delta(DELTA)}, as in Figure 2 of Abadi et al. 2016) cost ε = "
        f"{last['advanced']:.3g} by advanced composition of the steps' own guarantees, "
        f"{last['rdp']:.3g} by RDP, which took the moments accountant's place, and "
        f"{last['pld']:.3g} by privacy loss distributions. The noise is the same; only the "
        "bookkeeping differs. Abadi et al. state 9.34 and 1.26 at 100 epochs: they let "
        "sampling turn ε into qε, which holds for small ε only, and get ε by an older bound."
    )
    draw = accountants_chart("One training, three ways to account for it").draw
    return FigureSpec("moments_accountant", "", None, "search_cost", caption, draw)


def accountants_chart(title: str) -> Chart:
    rows = accountants().melt("epochs", var_name="accountant", value_name="epsilon")

    def name_ends(axes: Axes, rows: pd.DataFrame) -> None:
        for row in rows[rows["epochs"] == EPOCHS[-1]].itertuples():
            axes.annotate(
                f"{row.epsilon:.3g}",
                (row.epochs, row.epsilon),
                xytext=(4, {"rdp": 4, "pld": -4}.get(row.accountant, 0)),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=_ACCOUNTANTS[row.accountant]["color"],
            )

    return Chart(
        rows,
        title,
        Axis("epochs", "epochs", limits=(0, 1.08 * EPOCHS[-1])),
        Axis("epsilon", f"ε at δ = {labels.format_delta(DELTA)}", "log"),
        _ACCOUNTANTS,
        hue="accountant",
        decorate=name_ends,
    )
