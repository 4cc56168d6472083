"""Scales and reference lines of figures: whole, upright, and those of the values that are drawn."""

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import LogNorm, to_hex
from tests.reporting.drawing_helpers import marks

from oso_dp.accounting.search_accounting import COMPOSITION
from oso_dp.analysis.adaptation_signs import coin_factor
from oso_dp.analysis.search_costs import grids_at_largest_k, search_costs
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.reporting.figures import chart
from oso_dp.reporting.figures.adaptation_signs import draw_adaptation_signs
from oso_dp.reporting.figures.budget_strategies import strategies_chart
from oso_dp.reporting.figures.figure_01 import cosine_chart
from oso_dp.reporting.figures.heatmap import draw_grid
from oso_dp.reporting.figures.metric_over_epsilon import metric_chart
from oso_dp.reporting.figures.noise import cost_chart, noise_chart
from oso_dp.reporting.figures.untuned_runs import untuned_chart

RATES, THRESHOLDS = (0.1, 1.0, 10.0), (0.01, 1.0, 100.0)


def whole_grids(values, epsilons=(3.0, 9.0)) -> pd.DataFrame:
    """FixedThreshold's points, in the order of the values."""
    places = itertools.product(epsilons, RATES, THRESHOLDS)
    return pd.DataFrame(
        [
            {"method": "fixed_threshold", "quantile": np.nan, "epsilon": epsilon, "mean": value}
            | {"learning_rate": rate, "threshold": threshold}
            for (epsilon, rate, threshold), value in zip(places, values, strict=True)
        ]
    )


NOBODYS = pd.DataFrame(columns=["method", "epsilon", "learning_rate", "threshold", "quantile"])


@pytest.mark.parametrize(("metric", "logarithmic"), [("accuracy", False), ("mse", True)])
@pytest.mark.parametrize("order", [1, -1])
def test_draw_grid_colours_span_all_panels(metric: str, logarithmic: bool, order: int) -> None:
    """The colours span the values of all panels, for errors on a logarithmic scale."""
    values = np.geomspace(0.5, 80.0, 18)[::order]
    *panels, bar = draw_grid(whole_grids(values), NOBODYS, metric, "").axes
    for panel in panels:
        norm = panel.collections[0].norm
        assert isinstance(norm, LogNorm) == logarithmic
        assert (norm.vmin, norm.vmax) == pytest.approx((0.5, 80.0))
        assert panel.get_xlim() == panel.get_ylim() == (0, 3)  # upright
    assert bar.get_ylim() == pytest.approx((0.5, 80.0))


@pytest.mark.parametrize("values", [(0.99, 0.95), (0.95, 0.99), (0.5, 0.7, 0.6)])
@pytest.mark.parametrize("epsilons", [(), (3.0, 9.0)])
def test_metric_chart_no_dp_at_best(values, epsilons, store, study) -> None:
    store.add(method="no_dp", dataset="glyphs", values=values)
    for epsilon in epsilons:
        store.add(dataset="glyphs", epsilon=epsilon, values=tuple(v - 0.3 for v in values))
    made = study(store)
    (axes,) = metric_chart(judge_cells(made, "glyphs", 9), "", made.methods).draw().axes
    colour = chart.colours(made.methods)["no_dp"].lower()
    (line,) = [line for line in axes.lines if to_hex(line.get_color()) == colour]
    assert line.get_ydata() == pytest.approx([100 * max(values)] * 2)
    ours = [y for line in marks(axes) for y in line.get_ydata()]
    assert ours == pytest.approx([100 * (max(values) - 0.3)] * len(epsilons))


@pytest.mark.parametrize("rates", [(0.0025, 0.01), (0.01, 0.0025)])
def test_draw_adaptation_signs_band_larger_rate(rates) -> None:
    """The chance band uses the larger of the two rates."""
    rows = [
        {"dataset": "mnist", "run_id": "a", "value": value, "step": step, "moves": 50.0}
        | {"rate": rate, "factor": 1.0, "up": 0.5}
        for value, rate in zip(("threshold", "learning_rate"), rates, strict=True)
        for step in (50.0, 100.0)
    ]
    (band,) = draw_adaptation_signs(pd.DataFrame(rows)).axes[0].collections
    reach = coin_factor(np.array([100.0]), 0.01)[0]
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.max(), heights.min()) == pytest.approx((reach, 1 / reach))


@pytest.mark.parametrize("steps", [(50.0, 100.0), (1.0, 2.0, 600.0)])
def test_draw_adaptation_signs_at_evaluated_steps(steps) -> None:
    """Factors are drawn at step 0 and each evaluated step, fractions between them."""
    rows = [
        {"dataset": "mnist", "run_id": "a", "value": value, "step": step, "moves": 1.0}
        | {"rate": 0.0025, "factor": 1.0 + step / 100, "up": 0.5}
        for value in ("threshold", "learning_rate")
        for step in steps
    ]
    above, below = draw_adaptation_signs(pd.DataFrame(rows)).axes
    assert len(above.lines) == 2
    for line in above.lines:
        assert line.get_xdata() == pytest.approx([0.0, *steps])
        assert line.get_ydata() == pytest.approx([1.0, *(1.0 + step / 100 for step in steps)])
    assert len(below.patches) == 3  # the coin's, too
    for patch in below.patches:
        assert list(patch.get_data().edges) == [0.0, *steps]


@pytest.mark.parametrize("largest", [5, 9])
def test_cost_chart_covers_costs_and_grids(largest, store, study) -> None:
    """The axis covers all costs and grid sizes, also where a smaller k has the larger grid."""
    store.add(k=9, method="online")
    store.add(k=largest, method="fixed_threshold")
    store.add(k=largest, method="fixed_quantile", quantile=0.5)
    made = study(store)
    costs, marked = search_costs(made), grids_at_largest_k(made, "mnist")
    sizes = {"Online": 9, "FixedThreshold": largest**2, "FixedQuantile": 5 * largest}
    if largest < 9:
        sizes = {"Online": 9}
    for turned in (1, -1):
        marks_there = dict(list(marked.items())[::turned])
        (axes,) = cost_chart(costs, marks_there, "").draw().axes
        assert axes.get_xlim()[0] < costs["runs"].min()
        assert axes.get_xlim()[1] > costs["runs"].max() == largest**2
        (above,) = axes.child_axes
        names = [label.get_text().strip() for label in above.get_xticklabels()]
        assert dict(zip(names, above.get_xticks(), strict=True)) == sizes
        for place, text in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True):
            assert float(text.get_text()) == place


WAY = {
    "dataset": "glyphs",
    "method": "online",
    "k": 4,
    "epsilon": 3.0,
    "variant": "",
    "seen": False,
}
WAY |= {
    "strategy": COMPOSITION,
    "chosen": "the search",
    "distribution": None,
    "trial_fractions": None,
}
WAY |= {"std": 0.5, "cross_mean": np.nan, "cross_std": np.nan, "whole": True, "seeds": 3}
GUESS = {"strategy": "default", "method": "auto_s"}


@pytest.mark.parametrize(("metric", "direction"), [("accuracy", 1), ("mse", -1)])
@pytest.mark.parametrize("far", [-1, 1])
def test_strategies_chart_far_worse_value_labelled(metric, direction, far) -> None:
    """A value far worse than the searches is cut off and labelled; a far better one is drawn."""
    value = 50.0 + far * 40.0
    rows = [{**WAY, "mean": mean, "method": m} for mean, m in ((50.0, "online"), (51.0, "psac"))]
    rows = pd.DataFrame([*rows, {**WAY, **GUESS, "mean": value}]).assign(metric=metric)
    (axes,) = strategies_chart(rows, "", ["online", "psac", "auto_s"]).draw().axes
    low, high = axes.get_xlim()
    if far == direction:
        assert [text.get_text() for text in axes.texts] == []
        assert low < value < high
        return
    (text,) = axes.texts
    assert text.get_text() == f"{value:.3g}"
    assert text.get_position()[0] == (low if far < 0 else high)
    assert text.get_horizontalalignment() == ("left" if far < 0 else "right")
    assert not low <= value <= high


@pytest.mark.parametrize("below", [-10.0, 10.0])
def test_strategies_chart_cross_value_within_axis(below: float) -> None:
    rows = [{**WAY, "mean": 50.0}, {**WAY, **GUESS, "mean": 51.0, "cross_mean": 50.0 + below}]
    (axes,) = (
        strategies_chart(pd.DataFrame(rows).assign(metric="accuracy"), "", ["online"]).draw().axes
    )
    low, high = axes.get_xlim()
    assert low < 50.0 + below < high


@pytest.mark.parametrize("spread", [0.1, 5.0, 20.0])
def test_untuned_chart_best_bar_within_axis(spread: float) -> None:
    known = {"dataset": "glyphs", "k": 4, "epsilon": 3.0, "method": "online", "variant": ""}
    known |= {"metric": "accuracy", "threshold": 0.1, "quantile": np.nan, "own_std": 0.1}
    known |= {"own_mean": 72.0, "online_mean": 72.0}
    rows = pd.DataFrame(
        [
            known | {"learning_rate": rate, "mean": mean, "std": spread}
            for rate, mean in ((0.1, 70.0), (1.0, 75.0), (10.0, 20.0))
        ]
    )
    (axes,) = untuned_chart(rows, "", ["online"]).draw().axes
    low, high = axes.get_ylim()
    assert high > 75.0 + spread
    assert low < 70.0


@pytest.mark.parametrize("seed", [0, 1])
def test_cosine_chart_row_order_ignored(seed: int) -> None:
    rows = pd.DataFrame(
        [
            {"step": step, "threshold": c, "run_threshold": 0.3, "batch_mean": mean, "batch_std": 0}
            | {"data_mean": mean / 2, "data_std": 0.05}
            for step in (100, 950)
            for c, mean in ((0.01, 0.1), (0.1, 0.5), (1.0, 0.7), (100.0, -0.1))
        ]
    )

    def lines(table):
        return [
            [np.asarray(data, float).round(9).tolist() for data in line.get_data()]
            for axes in cosine_chart(table, "").draw().axes
            for line in axes.lines
        ]

    assert lines(rows.sample(frac=1, random_state=seed)) == lines(rows)


@pytest.mark.parametrize("noise", [(1.0, 1.0), (1.0, 2.0)])
@pytest.mark.parametrize("lacking", [None, ("adam_wosm", 3.0), ("online", 5.0)])
def test_noise_chart_bars_labelled_grid_size(noise, lacking) -> None:
    """Each bar has its grid size, also at equal noise or where a method lacks a budget."""
    sizes = {("online", 3.0): 5, ("online", 5.0): 9, ("adam_wosm", 3.0): 7, ("adam_wosm", 5.0): 11}
    sizes.pop(lacking, None)
    rows = [
        {"dataset": "glyphs", "k": 5, "epsilon": epsilon, "method": method, "grid_size": size}
        | {"noise_multiplier": noise[epsilon > 3]}
        for (method, epsilon), size in sizes.items()
    ]
    methods = ["online", "adam_wosm"]
    (axes,) = noise_chart(pd.DataFrame(rows), "", methods).draw().axes
    of_colour = {chart.colours(methods)[method].lower(): method for method in methods}
    drawn = {}
    bars = [bar for bars in axes.containers for bar in bars]
    for bar, text in zip(bars, axes.texts, strict=True):
        middle = bar.get_x() + bar.get_width() / 2
        assert text.xy[0] == pytest.approx(middle)
        assert bar.get_height() == noise[round(middle)]
        drawn[of_colour[to_hex(bar.get_facecolor())], (3.0, 5.0)[round(middle)]] = text.get_text()
    assert drawn == {key: str(size) for key, size in sizes.items()}
