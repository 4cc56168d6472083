"""Heat maps, the metric at equal noise, both prices, Figure 1: drawn from the right cells."""

import io
import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from oso_dp.analysis.noise_tables import metric_against_noise
from oso_dp.analysis.random_stopping import outcomes
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.methods import PAPER_METHODS
from oso_dp.reporting.figures import chart, every_figure, files
from oso_dp.reporting.figures.heatmap import draw_grid, grid_figure
from oso_dp.reporting.figures.metric_over_epsilon import (
    metric_figure,
    other_methods_figure,
    outcome_chart,
)
from oso_dp.reporting.figures.noise import (
    metric_over_noise_chart,
)
from oso_dp.reporting.tables.study import figures_table


@pytest.fixture
def grid_store(store):
    """FixedThreshold's nine points at k = 3; one diverged at once, seven ran twice, one not."""
    for i, rate in enumerate((0.1, 1.0, 10.0)):
        for j, threshold in enumerate((0.01, 1.0, 100.0)):
            point = {"method": "fixed_threshold", "learning_rate": rate, "threshold": threshold}
            if (i, j) == (2, 2):
                store.add(k=3, **point, values=(), diverged_at=2)
            elif (i, j) != (0, 0):
                for seed in (0, 1):
                    value = 0.1 * (1 + 3 * i + j) + 0.02 * seed
                    store.add(k=3, **point, seed=seed, values=(value,))
    return store


def test_grid_figure_points_placed_by_hyperparameters(grid_store, study):
    plan = grid_figure(study(grid_store), "mnist", 3)
    figure = plan.draw()
    panel = figure.axes[0]
    cells = panel.collections[0].get_array()
    mask = np.ma.getmaskarray(cells)
    assert [tuple(at) for at in np.argwhere(mask)] == [(0, 0), (2, 2)]
    for i in range(3):  # the learning rate to the right, C upward
        for j in range(3):
            if not mask[j, i]:
                assert cells[j, i] == pytest.approx(100 * (0.1 * (1 + 3 * i + j) + 0.01))
    (ours,) = [line for line in panel.lines if line.get_marker() == "o"]
    assert (ours.get_xdata()[0], ours.get_ydata()[0]) == (2.5, 1.5)  # the middle of a cell
    assert [t.get_text() for t in panel.get_xticklabels()] == ["0.1", "1", "10"]
    assert [t.get_text() for t in panel.get_yticklabels()] == ["0.01", "1", "100"]
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == ["our best", "diverged without a value", "not run"]
    assert len(plan.data) == 8


@pytest.mark.parametrize(
    ("rate", "threshold", "place"),
    [(1.0, 1.0, [1.5, 1.5]), (0.1, 99.0, [0.5, 2.5]), (10.1, 0.0099, [2.5, 0.5]),
     (11.0, 1.0, None), (0.05, 1.0, None), (1.0, 0.005, None), (1.0, 200.0, None)],
)  # fmt: skip
def test_draw_grid_paper_square_within_rounding(rate, threshold, place, grid_store, study) -> None:
    points = study(grid_store).points
    theirs = {"method": "fixed_threshold", "epsilon": 9.0, "quantile": np.nan}
    best = pd.DataFrame([{**theirs, "learning_rate": rate, "threshold": threshold}])
    (panel, *_) = draw_grid(points, best, "accuracy", "").axes
    squares = [line for line in panel.lines if line.get_marker() == "s"]
    drawn = [[*line.get_xdata(), *line.get_ydata()] for line in squares]
    assert drawn == ([] if place is None else [pytest.approx(place, abs=0.02)])


def test_grid_figure_missing_row_keeps_axes(store, study):
    """At epsilon = 3, C = 0.01 and one learning rate were not run: the others stay in place."""
    rates = (0.1, 1.0, 10.0)
    for epsilon in (3.0, 9.0):
        cell = {"k": 3, "epsilon": epsilon, "values": (0.5,)}
        for rate in rates:
            for threshold in (0.01, 1.0, 100.0)[epsilon == 3 :]:
                point = {"learning_rate": rate, "threshold": threshold}
                store.add(method="fixed_threshold", **cell, **point)
        for rate in rates[epsilon == 3 :]:
            for quantile in (0.1, 0.3, 0.5, 0.7, 0.9):
                point = {"learning_rate": rate, "quantile": quantile}
                store.add(method="fixed_quantile", **cell, **point)
    figure = grid_figure(study(store), "mnist", 3).draw()
    first, second, third, _, _ = figure.axes  # the last is the colours' scale
    missing = [
        np.ma.getmaskarray(p.collections[0].get_array()).tolist() for p in (first, second, third)
    ]
    assert missing[0] == [[True] * 3, [False] * 3, [False] * 3]
    assert missing[1] == [[False] * 3] * 3
    assert missing[2] == [[True, False, False]] * 5
    assert [t.get_text() for t in third.get_xticklabels()] == ["0.1", "1", "10"]
    assert [t.get_text() for t in first.get_yticklabels()] == ["0.01", "1", "100"]


def test_grid_figure_lowest_mse_brightest(store, study):
    for i, value in enumerate((0.1, 0.01, 0.5)):
        point = {"learning_rate": 10.0**i, "threshold": 1.0, "method": "fixed_threshold"}
        store.add(dataset="fashion_mnist", metric="mse", k=2, **point, values=(value,))
    panel = grid_figure(study(store), "fashion_mnist", 2).draw().axes[0]
    (ours,) = [line for line in panel.lines if line.get_marker() == "o"]
    assert ours.get_xdata()[0] == 1.5
    image = panel.collections[0]
    shades = image.cmap(image.norm(image.get_array()))[0, :, :3].sum(axis=1)
    assert shades.argmax() == 1


def test_grid_figure_few_points_not_drawn(paper_store, study):
    assert grid_figure(study(paper_store), "mnist", 9).draw() is None


def test_metric_against_noise_uses_grid_noise(store, study):
    for epsilon, nu, value in ((3.0, 4.0, 0.8), (9.0, 2.0, 0.9)):
        store.add(epsilon=epsilon, noise_multiplier=nu, values=(value,))
    store.add(
        epsilon=9.0, noise_multiplier=1.0, values=(0.95,), search_accounting="random_stopping"
    )
    s = study(store)
    cells = metric_against_noise(s, "mnist")
    ours = cells[cells["source"] == "ours"].set_index("noise_multiplier")["mean"]
    assert ours.to_dict() == {
        4.0: pytest.approx(80),
        2.0: pytest.approx(90),
        1.0: pytest.approx(95),
    }
    theirs = cells[cells["source"] == "paper"].set_index("noise_multiplier")["mean"]
    assert theirs.to_dict() == {4.0: 90.69, 2.0: 93.62}  # of Table 8, at the same grids
    axes = metric_over_noise_chart(cells, "accuracy", "", s.methods).draw().axes[0]
    drawn = {x for line in axes.lines for x in line.get_xdata() if line.get_marker() == "o"}
    assert drawn == {1.0, 2.0, 4.0}


def test_metric_over_noise_chart_nonprivate_omitted(store, study):
    store.add(method="no_dp")
    s = study(store)
    assert (
        metric_over_noise_chart(metric_against_noise(s, "mnist"), "accuracy", "", s.methods).draw()
        is None
    )


def test_outcome_chart_panels_share_scale(store, study):
    for search_accounting, best in (("composition", 0.8), ("random_stopping", 0.9)):
        for point, epsilon in itertools.product(range(3), (3.0, 9.0)):
            store.add(
                k=3,
                epsilon=epsilon,
                learning_rate=10.0**point,
                values=(best - 0.1 * point,),
                search_accounting=search_accounting,
            )
    s = study(store)
    figure = outcome_chart(outcomes(s), "accuracy", "", s.methods).draw()
    left, right = figure.axes
    assert left.lines[0].get_ydata() == pytest.approx([80, 80])
    assert 80 < right.lines[0].get_ydata()[0] < 90
    assert left.get_ylim() == right.get_ylim()
    only = outcomes(s)
    only = only[only["search_accounting"] == "random_stopping"]
    assert outcome_chart(only, "accuracy", "", s.methods).draw() is None


def test_other_methods_figure_contains_new_method(paper_store, study):
    paper_store.add(method="magic", values=(0.99,))
    s = study(paper_store)
    paper, beyond = (
        metric_figure(s, "mnist", 9, measured=True).draw(),
        other_methods_figure(s, "mnist", 9).draw(),
    )
    said = [[t.get_text() for t in figure.legends[0].get_texts()] for figure in (paper, beyond)]
    assert "magic" not in said[0]
    assert said[1] == ["Online", "FixedThreshold", "magic", "NoDP, ours"]


def test_other_methods_figure_without_others_omitted(paper_store, study):
    assert other_methods_figure(study(paper_store), "mnist", 9).draw() is None


def test_figures_table_reports_run_status(paper_store, study):
    s = study(paper_store)
    drawn = [f"figure_{n:02d}" for n in (2, 6, 8)]
    shown = figures_table(s, drawn).printed.astype({"figure": int}).set_index("figure")
    assert shown.index.tolist() == list(range(1, 12))
    assert shown.loc[6, ["status", "cells run", "runs"]].tolist() == ["drawn", "4 of 16", "6"]
    assert shown.loc[8, "status"] == "not run: the paper's values only"
    assert shown.loc[3, ["status", "cells run", "file"]].tolist() == ["not run", "0 of 16", "–"]
    assert shown.loc[1, "status"] == "not run"
    assert shown.loc[2, ["status", "file"]].tolist() == ["drawn", "figures/figure_02.png"]


def test_metric_against_noise_subset_excludes_paper(store, study):
    store.add(dataset="ag_news_partial", values=(0.8,))
    s = study(store)
    cells = metric_against_noise(s, "ag_news_partial")
    assert set(cells["source"]) == {"ours"}
    names = [plan.name for plan in every_figure(s) if plan.measured]
    assert not [name for name in names if name.startswith("figure_") and name != "figure_02"]
    assert "metric_over_epsilon_ag_news_partial_k9" in names


def test_to_png_keeps_method_colours():
    """The palette of a small PNG keeps the colour of thin lines beside a heat map."""
    with chart.theme():
        figure = Figure(figsize=(6.4, 3.8), layout="constrained")
        axes = figure.subplots()
        axes.imshow(np.arange(400).reshape(20, 20), extent=(0, 20, 0, 20), cmap="viridis")
        for i, method in enumerate(PAPER_METHODS):
            axes.axhline(i + 1, color=chart.colours([])[method])
        data = files.to_png(figure)
    with Image.open(io.BytesIO(data)) as picture:
        seen = np.array(picture.convert("RGB").getcolors(2**20), dtype=object)
    shades = np.array([colour for _, colour in seen], dtype=float)
    for method in PAPER_METHODS:
        wanted = 255 * np.array(to_rgb(chart.colours([])[method]))
        assert np.abs(shades - wanted).max(axis=1).min() <= 10, method


@pytest.mark.parametrize("method", ["fixed_threshold", "fixed_threshold_per_layer"])
@pytest.mark.parametrize("dataset", ["mnist", "ag_news_partial"])
def test_grid_figure_complete_without_plan_drawn(store, study, dataset, method):
    """A complete grid is drawn without a plan, also for a method outside the paper."""
    for rate in (0.1, 1.0, 10.0):
        for threshold in (0.1, 1.0, 10.0):
            more = {"learning_rate": rate, "threshold": threshold, "values": (0.5,)}
            store.add(dataset=dataset, method=method, k=3, grid_runs=9, **more)
    s = study(store)
    assert grid_figure(s, dataset, 3).draw() is not None
    assert judge_cells(s, dataset, 3)["grid_size"].dropna().tolist() == [9]


def test_metric_over_noise_chart_draws_std():
    """Bars are mean ± std, with filled markers for ours and hollow ones for the paper's."""
    cells = pd.DataFrame(
        {
            "method": "online",
            "noise_multiplier": [1.0, 2.0, 4.0] * 2,
            "mean": [95.0, 90.0, 80.0, 96.0, 91.0, 81.0],
            "std": [0.5, 1.0, 2.0, 0.1, 0.2, 0.3],
            "source": ["ours"] * 3 + ["paper"] * 3,
        }
    )
    (axes,) = metric_over_noise_chart(cells[::-1], "accuracy", "", ["online"]).draw().axes
    drawn = {
        (container.lines[0].get_markerfacecolor() == "white", *segment[:, 1].round(9))
        for container in axes.containers
        for bar in container.lines[2]
        for segment in bar.get_segments()
    }
    assert drawn == {
        (row.source == "paper", round(row.mean - row.std, 9), round(row.mean + row.std, 9))
        for row in cells.itertuples()
    }


def test_draw_grid_paper_square_per_budget():
    """Each panel has one square, at the paper's rho and C for its epsilon."""
    axes = {"learning_rate": (0.1, 1.0, 10.0), "threshold": (0.01, 1.0, 100.0)}
    known = {"method": "fixed_threshold", "quantile": np.nan}
    points = pd.DataFrame(
        [
            {**known, "epsilon": epsilon, "learning_rate": rho, "threshold": c, "mean": rho + c}
            for epsilon in (3.0, 9.0)
            for rho, c in itertools.product(*axes.values())
        ]
    )
    best = pd.DataFrame(
        [
            {**known, "epsilon": epsilon, "learning_rate": rho, "threshold": c}
            for epsilon, rho, c in ((3.0, 0.1, 100.0), (9.0, 10.0, 0.01))
        ]
    )
    panels = draw_grid(points, best, "accuracy", "").axes
    for panel, place in zip(panels, ((0.5, 2.5), (2.5, 0.5)), strict=False):
        squares = [line for line in panel.lines if line.get_marker() == "s"]
        assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in squares] == [
            pytest.approx(place)
        ]


def test_grid_figure_other_momentum_excluded(grid_store, study):
    """A point of another momentum is not drawn, although it has a better value."""

    def drawn():
        plan = grid_figure(study(grid_store), "mnist", 3)
        image = plan.draw().axes[0].collections[0].get_array()
        return plan.data.to_numpy().tolist(), np.ma.filled(image.astype(float), -1.0).tolist()

    before = drawn()
    point = {"method": "fixed_threshold", "learning_rate": 1.0, "threshold": 1.0, "k": 3}
    grid_store.add(**point, momentum=0.99, values=(0.99,))
    assert repr(drawn()) == repr(before)
