"""What an axis says is where a mark stands; what is drawn is of one rule, and of enough points."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from oso_dp.reporting.figures import noise as noise_figures
from oso_dp.reporting.figures.chart import log_axis, plain_ticks
from oso_dp.reporting.figures.heatmap import grid_figure
from oso_dp.reporting.figures.noise import metric_over_noise_figure


@pytest.mark.parametrize("low", [0.004, 0.15, 0.7, 1.0, 30.0, 2500.0])
@pytest.mark.parametrize("factor", [4.5, 14.0, 60.0, 900.0, 3e4])
def test_log_axis_tick_labels_match_positions(low: float, factor: float) -> None:
    """Each tick label, read as a number, equals the position of its tick."""
    axes = Figure().subplots()
    axes.set_xscale("log")
    axes.set_xlim(low, low * factor)
    axes.set_ylim(low, low * factor)
    plain_ticks(axes.xaxis)
    log_axis(axes)
    for axis in (axes.xaxis, axes.yaxis):
        shown = [(place, axis.get_major_formatter()(place)) for place in axis.get_majorticklocs()]
        inside = [pair for pair in shown if low <= pair[0] <= low * factor]
        assert len(inside) >= 2
        for place, text in inside:
            assert float(text) == pytest.approx(place, rel=1e-9)


@pytest.mark.parametrize("value", [0.02, 0.9])
def test_log_axis_flat_line_widens_limits(value: float) -> None:
    axes = Figure().subplots()
    axes.plot([1, 2], [value, value])
    axes.set_ylim(0.99 * value, 1.01 * value)
    log_axis(axes)
    low, high = axes.get_ylim()
    assert low < value < high
    assert high / low >= 4


@pytest.mark.parametrize("search_accounting", ["random_stopping", "single"])
def test_metric_over_noise_figure_composition_only(search_accounting: str, store, study) -> None:
    """The figure omits searches by random stopping and single runs."""
    for place, nu in enumerate((2.0, 4.0, 8.0)):
        known = {"dataset": "glyphs", "epsilon": 3.0 + place, "k": 3}
        store.add(**known, noise_multiplier=nu, values=(0.8,))
        store.add(
            **known, noise_multiplier=nu / 3, values=(0.9,), search_accounting=search_accounting
        )
    (axes,) = metric_over_noise_figure(study(store), "glyphs").draw().axes
    drawn = {(x, round(y, 6)) for line in axes.lines if line.get_marker() == "o"
             for x, y in zip(*line.get_data(), strict=True)}  # fmt: skip
    assert drawn == {(2.0, 80.0), (4.0, 80.0), (8.0, 80.0)}


def test_noise_figures_shared_budget_omitted(store, study, monkeypatch) -> None:
    """Data sets whose runs share one budget have no noise figure; rows override the plan."""
    for dataset, rate in itertools.product(("glyphs", "mnist"), (0.1, 1.0)):
        store.add(dataset=dataset, k=2, learning_rate=rate, values=(0.8,))
    monkeypatch.setattr("oso_dp.analysis.result_set.shared_budgets", lambda runs: {"glyphs": 12})
    plan = pd.DataFrame({"dataset": ["glyphs", "yours", "mnist"], "budget_runs": [24, 6, None]})
    made = study(store)
    made = replace(made, budget=plan.reindex(columns=made.budget.columns.union(plan.columns)))
    assert made.shared_budgets == {"glyphs": 12, "yours": 6}
    drawn = [figure for figure in noise_figures.figures(made) if figure.kind == "noise"]
    assert {figure.dataset for figure in drawn} == {"mnist"}


QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)


@pytest.mark.parametrize("ran", [1, 2, 3, 4])
def test_grid_figure_half_grid_drawn(ran: int, store, study) -> None:
    """A heat map needs at least two of FixedThreshold's four points at k = 2."""
    for rate, threshold in [*itertools.product((0.1, 1.0), (0.5, 5.0))][:ran]:
        point = {"learning_rate": rate, "threshold": threshold}
        store.add(dataset="glyphs", method="fixed_threshold", k=2, **point, values=(0.5,))
    figure = grid_figure(study(store), "glyphs", 2).draw()
    assert (figure is not None) == (ran >= 2)
    if figure is not None:
        cells = np.ma.getmaskarray(figure.axes[0].collections[0].get_array())
        assert (~cells).sum() == ran


def test_grid_figure_incomplete_panel_drawn(store, study) -> None:
    """A panel shows the single point of an incomplete grid beside complete panels."""
    ran = {"fixed_threshold": ("threshold", (0.5, 5.0)), "fixed_quantile": ("quantile", QUANTILES)}
    for (method, (upward, values)), epsilon in itertools.product(ran.items(), (3.0, 9.0)):
        few = method == "fixed_quantile" and epsilon == 9.0
        for rate, value in [*itertools.product((0.1, 1.0), values)][: 1 if few else None]:
            known = {"dataset": "glyphs", "method": method, "k": 2, "epsilon": epsilon}
            store.add(**known, learning_rate=rate, **{upward: value}, values=(0.5,))
    store.add(dataset="glyphs", method="online", k=2, epsilon=5.0, values=(0.9,))
    plan = grid_figure(study(store), "glyphs", 2)
    *panels, _ = plan.draw().axes  # the last is the colours' scale
    drawn = {
        panel.get_title(): int((~np.ma.getmaskarray(panel.collections[0].get_array())).sum())
        for panel in panels
    }
    names = ("FixedThreshold, ε = 3", "FixedThreshold, ε = 9")
    names += ("FixedQuantile, ε = 3", "FixedQuantile, ε = 9")
    assert drawn == dict(zip(names, (4, 4, 10, 1), strict=True))
    assert len(plan.data) == sum(drawn.values())
