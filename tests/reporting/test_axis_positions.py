"""Where figures put things, and what their axes and legends say of that, where today's rows do not
show it: what diverged, ways that lack a budget, budgets that are no whole numbers."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from tests.analysis.test_budget_strategies import SEARCH, default, searched

from oso_dp.analysis.budget_strategies import budget_strategies
from oso_dp.analysis.random_stopping import outcomes
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.reporting.figures import budget_strategies as budget_strategies_figure
from oso_dp.reporting.figures import chart
from oso_dp.reporting.figures.adaptation_signs import NAMES, draw_adaptation_signs
from oso_dp.reporting.figures.files import write_figures
from oso_dp.reporting.figures.heatmap import draw_grid
from oso_dp.reporting.figures.metric_over_epsilon import dot_chart, metric_chart, outcome_chart
from oso_dp.reporting.figures.noise import metric_over_noise_chart, noise_chart
from oso_dp.reporting.tables.search_cost import noise_table


@pytest.mark.parametrize("at", [(2, 0), (1, 2)])
def test_draw_grid_diverged_cell_grey(at, store, study) -> None:
    """A diverged point is grey, at its learning rate (horizontal) and C (vertical)."""
    rates, thresholds = (0.1, 1.0, 10.0), (0.01, 1.0, 100.0)
    for i, rate in enumerate(rates):
        for j, threshold in enumerate(thresholds):
            point = {"learning_rate": rate, "threshold": threshold, "method": "fixed_threshold"}
            gone = {"values": (), "diverged_at": 2} if (i, j) == at else {"values": (0.5,)}
            store.add(k=3, **point, **gone)
    points = study(store).points
    best = pd.DataFrame(columns=["method", "epsilon", "learning_rate", "threshold", "quantile"])
    (panel, *_) = draw_grid(points, best, "accuracy", "").axes
    (grey,) = panel.patches
    assert grey.get_xy() == at


def test_draw_grid_tied_ring_matches_table(store, study) -> None:
    """Of tied points, the ring marks the one that the table shows."""
    for rate, threshold, value in ((0.1, 1.0, 0.5), (0.1, 0.01, 0.2), (1.0, 0.01, 0.5)):
        point = {"learning_rate": rate, "threshold": threshold, "values": (value,)}
        store.add(k=2, method="fixed_threshold", **point)
    one = study(store)
    best = pd.DataFrame(columns=["method", "epsilon", "learning_rate", "threshold", "quantile"])
    (panel, *_) = draw_grid(one.points, best, "accuracy", "").axes
    (ring,) = [line for line in panel.lines if line.get_marker() == "o"]
    (table,) = one.best.to_dict("records")
    place = [(0.1, 1.0).index(table["learning_rate"]), (0.01, 1.0).index(table["threshold"])]
    assert [ring.get_xdata()[0] - 0.5, ring.get_ydata()[0] - 0.5] == place


def test_strategies_chart_missing_budget_keeps_rows(store, study) -> None:
    for epsilon in (3.0, 9.0):
        searched(store, SEARCH, epsilon=epsilon)
        if epsilon == 9:
            searched(store, SEARCH, method="fixed_threshold", k=2, epsilon=epsilon)
        default(store, [0.90, 0.91, 0.92], epsilon=epsilon)
    one = study(store)
    rows = budget_strategies(one)
    (plan,) = budget_strategies_figure.figures(one)
    figure = plan.draw()
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert [name.split(":")[0] for name in names] == ["Online", "FixedThreshold", "AUTO-S†"]
    colours = {to_hex(chart.colours(one.methods)[m]): m for m in ("online", "auto_s")}
    lines = {"online": 0, "auto_s": 2}
    for axes, epsilon in zip(figure.axes, (3.0, 9.0), strict=True):
        drawn = [line for line in axes.lines if line.get_marker() not in ("None", "|", "_")]
        seen = set()
        for line in drawn:
            method = colours.get(to_hex(line.get_color()))
            if method is not None:
                seen.add(method)
                assert round(float(line.get_ydata()[0])) == lines[method], (epsilon, method)
        assert seen == {"online", "auto_s"}
    assert set(rows["epsilon"]) == {3.0, 9.0}


@pytest.mark.parametrize("epsilons", [(0.5, 1.5, 2.25), (0.125, 10.0)])
def test_epsilon_axis_fractional_budgets_exact(epsilons, store, study) -> None:
    for epsilon in epsilons:
        for search_accounting in ("composition", "random_stopping"):
            for rate in (0.1, 1.0):
                more = {
                    "search_accounting": search_accounting,
                    "learning_rate": rate,
                    "values": (rate / 2,),
                }
                more |= {"shape": "geometric"} if search_accounting == "random_stopping" else {}
                store.add(dataset="glyphs", k=2, epsilon=epsilon, **more)
    one = study(store)
    named = [f"{epsilon:g}" for epsilon in epsilons]
    for figure in (
        metric_chart(judge_cells(one, "glyphs", 2), "", one.methods).draw(),
        noise_chart(noise_table(one).data, "", one.methods).draw(),
        outcome_chart(outcomes(one), "accuracy", "", one.methods).draw(),
    ):
        assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == named


def test_metric_over_noise_chart_separates_methods() -> None:
    rows = [
        {"method": method, "noise_multiplier": nu, "mean": 90.0 + shift + nu, "std": 0.1,
         "source": source}
        for method, shift in (("online", 0.0), ("fixed_threshold", -5.0), ("adam_wosm", -2.0))
        for source in ("ours", "paper")
        for nu in (1.0, 2.0, 4.0)
    ]  # fmt: skip
    methods = ["online", "fixed_threshold", "adam_wosm"]
    (axes,) = metric_over_noise_chart(pd.DataFrame(rows), "accuracy", "", methods).draw().axes
    of_colour = {to_hex(chart.colours(methods)[m]): m for m in methods}
    shifts = {"online": 0.0, "fixed_threshold": -5.0, "adam_wosm": -2.0}
    lines = [line for line in axes.lines if len(line.get_xdata()) == 3]
    curves = [line for line in lines if line.get_marker() not in ("None", "|", "_")]
    assert len(curves) == 6
    for line in curves:
        method = of_colour[to_hex(line.get_color())]
        expected = 90.0 + shifts[method] + np.array([1.0, 2.0, 4.0])
        assert line.get_ydata() == pytest.approx(expected)
    hollow = {line.get_markerfacecolor() == "white" for line in curves}
    assert hollow == {True, False}
    handles = {one.get_label(): one for one in axes.figure.legends[0].legend_handles}
    assert handles["paper"].get_markerfacecolor() == "white"
    assert handles["ours"].get_markerfacecolor() != "white"


def test_dot_chart_legend_matches_fill() -> None:
    sources = ["ours", "paper", "a third", "a fourth"]
    rows = [
        {"method": "online", "mean": 90.0 + place, "std": np.nan, "source": source}
        for place, source in enumerate(sources)
    ]
    figure = dot_chart(pd.DataFrame(rows), "accuracy", "", ["online"]).draw()
    drawn = {
        round(float(line.get_xdata()[0])): line.get_markerfacecolor()
        for line in figure.axes[0].lines
        if line.get_marker() not in ("None", "|", "_")
    }
    handles = {one.get_label(): one for one in figure.legends[0].legend_handles}
    own = to_hex(chart.colours(["online"])["online"])
    for place, source in enumerate(sources):
        filling = to_hex(drawn[90 + place])
        said = to_hex(handles[source].get_markerfacecolor())
        assert (filling == own and said == "#555555") or filling == said, source


def test_draw_adaptation_signs_legend_matches_values() -> None:
    """The lines of C and rho have the colours that the legend gives to their names."""
    rows = [
        {"dataset": "mnist", "run_id": "a", "value": value, "step": step, "moves": 50.0,
         "rate": 0.0025, "factor": factor ** (step / 100), "up": up}
        for value, factor, up in (("threshold", 2.0, 0.9), ("learning_rate", 0.5, 0.2))
        for step in (50.0, 100.0)
    ]  # fmt: skip
    figure = draw_adaptation_signs(pd.DataFrame(rows))
    top = figure.axes[0]
    handles = {one.get_label(): one for one in figure.legends[0].legend_handles}
    for value, end in (("threshold", 2.0), ("learning_rate", 0.5)):
        said = to_hex(handles[NAMES[value]].get_color())
        (line,) = [one for one in top.lines if to_hex(one.get_color()) == said]
        assert line.get_ydata()[-1] == pytest.approx(end)


def test_write_figures_csv_six_digits(tmp_path) -> None:
    plan = SimpleNamespace(
        name="x", dataset="", k=None, kind="", caption="", measured=True,
        data=pd.DataFrame({"value": [0.123456789, 98765.4321]}),
    )  # fmt: skip
    written = {}
    folder = SimpleNamespace(write=lambda name, content: written.update({name: content}))
    drawn = SimpleNamespace(png=bytes(30), pdf=b"", link="")
    write_figures([plan], iter([drawn]), folder)
    assert written["figures/x.csv"] == "value\n0.123457\n98765.4\n"


def test_draw_grid_ticks_two_digits(store, study) -> None:
    for rate in (0.0147, 1.47):
        point = {"learning_rate": rate, "threshold": 0.68, "values": (0.5,)}
        store.add(k=2, method="fixed_threshold", **point)
    best = pd.DataFrame(columns=["method", "epsilon", "learning_rate", "threshold", "quantile"])
    (panel, *_) = draw_grid(study(store).points, best, "accuracy", "").axes
    assert [text.get_text() for text in panel.get_xticklabels()] == ["0.015", "1.5"]
    assert [text.get_text() for text in panel.get_yticklabels()] == ["0.68"]
