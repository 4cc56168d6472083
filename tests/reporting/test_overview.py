"""The overview: every printed value against ours, in the panel of its data set."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from oso_dp.analysis.verdicts import judge_cells, margin_near
from oso_dp.reporting.figures.chart import colours
from oso_dp.reporting.figures.overview import figures


@pytest.fixture
def made(store, study):
    for seed in (0, 1):
        for epsilon, value in ((3.0, 0.90), (9.0, 0.94)):
            store.add(epsilon=epsilon, seed=seed, values=(value + 0.01 * seed,))
    known = {"dataset": "fashion_mnist", "metric": "mse", "epsilon": 4.0}
    store.add(**known, values=(0.004,))
    return study(store)


def test_overview_draws_all_printed_values(made) -> None:
    (spec,) = figures(made)
    panels = spec.draw().axes
    assert [axes.get_title() for axes in panels] == ["MNIST, %", "Fashion-MNIST, mse × 100"]
    for axes, dataset in zip(panels, ("mnist", "fashion_mnist"), strict=True):
        cells = judge_cells(made, dataset, 9).dropna(subset=["mean", "paper_mean"])
        drawn = {
            (x, y)
            for line in axes.lines
            if line.get_marker() == "o"
            and to_hex(line.get_color()) == colours([])["online"].lower()
            for x, y in zip(*line.get_data(), strict=True)
        }
        assert drawn == set(zip(cells["paper_mean"], cells["mean"], strict=True))


def test_overview_band_equals_margin(made) -> None:
    (spec,) = figures(made)
    for axes, dataset in zip(spec.draw().axes, ("mnist", "fashion_mnist"), strict=True):
        (band,) = [one for one in axes.collections if isinstance(one, PolyCollection)]
        corners = band.get_paths()[0].vertices
        at = corners[:, 0].max()
        heights = corners[np.isclose(corners[:, 0], at), 1]
        assert heights.max() == pytest.approx(at + margin_near(dataset, at))
        assert heights.min() < at < heights.max()


def test_overview_without_printed_values_omitted(store, study) -> None:
    store.add(dataset="glyphs")
    assert list(figures(study(store))) == []
