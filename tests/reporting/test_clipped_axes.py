"""What is drawn later is within the axes, too: longer runs; bars of what the other half says."""

import numpy as np
import pandas as pd
import pytest
from tests.reporting.drawing_helpers import outside
from tests.reporting.test_scales import GUESS, WAY

from oso_dp.analysis.cells import trajectories
from oso_dp.reporting.figures.adaptation_signs import draw_adaptation_signs, select_runs
from oso_dp.reporting.figures.budget_strategies import strategies_chart
from oso_dp.reporting.figures.training_curves import adapted_chart, curves_chart

RATES = "learning_rate_rate=0.0025, threshold_rate=0.0025"


@pytest.mark.parametrize("steps", [(600, 1200, 2400), (2400, 600, 1200)])
def test_step_axis_covers_longest_run(steps, store, study) -> None:
    """The step axis of every panel covers the longest run."""
    datasets = ("mnist", "fashion_mnist", "glyphs")
    for dataset, length, epsilon in zip(datasets, steps, (3.0, 5.0, 9.0), strict=True):
        known = {"steps": length, "method_options": RATES, "values": (0.7, 0.8, 0.9)}
        store.add(dataset=dataset, **known)
        store.add(dataset="ag_news_partial", epsilon=epsilon, **known)
    made = study(store)
    best = made.best_runs[made.best_runs["dataset"] == "ag_news_partial"]
    over = trajectories(best, made.evaluations)
    for figure in (
        draw_adaptation_signs(select_runs(made)),
        curves_chart(over, "accuracy", "", made.methods).draw(),
        adapted_chart(over, "threshold", "", made.methods).draw(),
    ):
        for axes in figure.axes:
            assert axes.get_xlim()[0] == 0
            assert axes.get_xlim()[1] >= 2400


@pytest.mark.parametrize("spread", [np.nan, 0.5, 3.0, 8.0])
def test_strategies_chart_cross_bars_within_axes(spread: float) -> None:
    rows = [{**WAY, "mean": 50.0}]
    rows += [{**WAY, **GUESS, "mean": 51.0, "cross_mean": 49.0, "cross_std": spread}]
    (axes,) = (
        strategies_chart(pd.DataFrame(rows).assign(metric="accuracy"), "", ["online"]).draw().axes
    )
    assert outside(axes) == []
