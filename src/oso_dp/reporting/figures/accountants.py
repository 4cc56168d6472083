"""Epsilon over epochs by three accountants (Figure 1 of the lecture, from Abadi et al. 2016)."""

from collections.abc import Iterator
from functools import cache

import pandas as pd
from matplotlib.figure import Figure

from oso_dp import labels
from oso_dp.accounting.accountants import compute_epsilon_of_event
from oso_dp.accounting.advanced_composition import compute_advanced_epsilon
from oso_dp.analysis.result_set import ResultSet
from oso_dp.privacy.ledger import composed_event
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.reporting.figures import layout
from oso_dp.reporting.figures.figure_spec import FigureSpec

ORDER = 100


def plans(study: ResultSet) -> Iterator[FigureSpec]:
    yield _accountants_plan()


def _accountants_plan() -> FigureSpec:
    last = accountants().iloc[-1]
    return FigureSpec(
        "moments_accountant",
        "",
        None,
        "search_cost",
        f"The same {EPOCHS[-1]} epochs (q = {RATE:g}, ν = {NOISE_MULTIPLIER:g}, δ = "
        f"{labels.format_delta(DELTA)}, as in Figure 2 of Abadi et al. 2016) cost ε = "
        f"{last['advanced']:.3g} by advanced composition of the steps' own guarantees, "
        f"{last['rdp']:.3g} by RDP, which took the moments accountant's place, and "
        f"{last['pld']:.3g} by privacy loss distributions. The noise is the same; only the "
        "bookkeeping differs. Abadi et al. state 9.34 and 1.26 at 100 epochs: they let "
        "sampling turn ε into qε, which holds for small ε only, and get ε by an older bound.",
        lambda: draw_accountants("One training, three ways to account for it"),
    )


# Abadi et al. 2016, Figure 2: q, sigma and delta; the epochs are 1 / q steps each.
RATE, NOISE_MULTIPLIER, DELTA = 0.01, 4.0, 1e-5
EPOCHS = (1, 2, 5, 10, 20, 35, 60, 100, 150, 200, 300, 400)

_LINES = {  # column -> (label, colour, linestyle)
    "advanced": ("advanced composition", "#D55E00", "-"),
    "rdp": ("RDP (the moments accountant's heir)", "#0072B2", "-"),
    "pld": ("PLD", "#000000", "--"),
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


def draw_accountants(title: str) -> Figure:
    """Epsilon over epochs, a line per accountant."""
    data = accountants()
    figure, (axes,) = layout.make_panels(1, title)
    figure.set_size_inches(6.8, 4.2)
    handles = []
    for column, (label, colour, style) in _LINES.items():
        handles += axes.plot(
            data["epochs"], data[column], color=colour, linestyle=style, label=label
        )
        last = data.iloc[-1]
        axes.annotate(
            f"{last[column]:.3g}",
            (last["epochs"], last[column]),
            xytext=(4, {"rdp": 4, "pld": -4}.get(column, 0)),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=colour,
        )
    layout.log_axis(axes)
    axes.set_xlim(0, 1.08 * max(EPOCHS))
    axes.set_xlabel("epochs")
    axes.set_ylabel(f"ε at δ = {labels.format_delta(DELTA)}")
    layout.add_legend(figure, handles)
    return figure
