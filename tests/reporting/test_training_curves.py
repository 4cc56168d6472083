"""Learning curves: where a run ended, and what it had reached there."""

import pytest

from oso_dp.analysis.cells import trajectories
from oso_dp.reporting.figures.training_curves import adapted_chart, curves_chart


@pytest.mark.parametrize("seen", [1, 2, 4])
@pytest.mark.parametrize("turned", [False, True])
def test_curves_chart_cross_at_last_evaluation(seen, turned, make_store, study) -> None:
    """Each diverged run has a cross at its last evaluation, not at the mean over seeds."""
    store = make_store()
    store.add(seed=0, values=(0.9,) * 12)
    ends = []
    for seed in (1, 2):
        values = tuple(0.1 * seed + 0.05 * n for n in range(seen))
        store.add(seed=seed, values=values, diverged_at=50 * seen + 20)
        ends.append(100 * values[-1])
    of = study(store)
    steps = trajectories(of.best_runs, of.evaluations.iloc[:: -1 if turned else 1])
    (axes,) = curves_chart(steps, "accuracy", "", of.methods).draw().axes
    crosses = [line for line in axes.lines if line.get_marker() == "X"]
    assert {line.get_xdata()[0] for line in crosses} == {50 * seen}
    assert sorted(line.get_ydata()[0] for line in crosses) == pytest.approx(sorted(ends))
    (adapted,) = adapted_chart(steps, "threshold", "", of.methods).draw().axes
    at = {line.get_xdata()[0] for line in adapted.lines if line.get_marker() == "X"}
    assert at == {50 * seen}


@pytest.mark.parametrize("metric", ["accuracy", "mse"])
@pytest.mark.parametrize("falls", [False, True])
def test_curves_chart_panels_cover_all_curves(metric, falls, make_store, study) -> None:
    """Each panel covers all its curves, whichever panel has the largest values."""
    store = make_store()
    for place, epsilon in enumerate((3.0, 5.0, 7.0, 9.0)):
        height = 0.02 * 3.0 ** (-place if falls else place)
        values = tuple(height * by for by in (1.0, 1.1, 1.2))
        known = {"dataset": "mnist" if metric == "accuracy" else "fashion_mnist", "metric": metric}
        store.add(epsilon=epsilon, values=values, threshold=height, **known)
    of = study(store)
    steps = trajectories(of.best_runs, of.evaluations)
    drawn = [
        curves_chart(steps, metric, "", of.methods).draw(),
        adapted_chart(steps, "threshold", "", of.methods).draw(),
    ]
    for figure in drawn:
        for axes in figure.axes:
            low, high = axes.get_ylim()
            heights = [y for line in axes.lines for y in line.get_ydata()]
            assert len(heights) >= 3
            assert low <= min(heights)
            assert max(heights) <= high
