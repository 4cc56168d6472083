"""Figures: drawn from whatever is there, one colour per method."""

import io
import itertools
import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from oso_dp import labels
from oso_dp.analysis.cells import trajectories
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.reporting.figures import chart, every_figure
from oso_dp.reporting.figures.metric_over_epsilon import (
    dot_chart,
    metric_chart,
    metric_figure,
    other_methods_figure,
)
from oso_dp.reporting.figures.noise import noise_chart
from oso_dp.reporting.figures.training_curves import adapted_chart, curves_chart
from oso_dp.reporting.tables.search_cost import noise_table


def steps_of(s):
    return trajectories(s.best_runs, s.evaluations)


def lines_in(axes, colour):
    return [line for line in axes.lines if to_hex(line.get_color()) == colour.lower()]


@pytest.mark.parametrize(
    ("epsilons", "axis"), [((9.0,), 0), ((3.0, 9.0), 1)], ids=["dots", "lines"]
)
def test_metric_chart_one_seed_without_bars(make_store, study, epsilons, axis):
    """One seed has no error bar; the bar of two seeds is their std, not a standard error."""

    def bars(seeds):
        store = make_store()
        for epsilon, seed in itertools.product(epsilons, range(seeds)):
            value = 0.9 + 0.01 * seed
            store.add(dataset="glyphs", epsilon=epsilon, seed=seed, values=(value,))
        axes = metric_chart(judge_cells(study(store), "glyphs", 9), "", ["online"]).draw().axes[0]
        return [c for container in axes.containers for c in container.lines[2]]

    assert bars(1) == []
    segments = [segment for bar in bars(2) for segment in bar.get_segments()]
    assert len(segments) == len(epsilons)
    half = 100 * 0.01 / 2 * math.sqrt(2)
    for segment in segments:
        assert segment[:, axis] == pytest.approx([90.5 - half, 90.5 + half])


def test_metric_chart_mse_axis_logarithmic(store, study):
    store.add(dataset="fashion_mnist", metric="mse", values=(0.1, 0.01))
    s = study(store)
    assert (
        metric_chart(judge_cells(s, "fashion_mnist", 9), "", s.methods).draw().axes[0].get_yscale()
        == "log"
    )
    figure = curves_chart(steps_of(s), "mse", "", s.methods).draw()
    assert figure.axes[0].get_yscale() == "log"
    assert lines_in(figure.axes[0], chart.colours([])["online"])[0].get_ydata() == pytest.approx(
        [10, 1]
    )


def test_chart_draw_empty_returns_none(store, study):
    store.add(method="no_dp")
    s = study(store)
    assert adapted_chart(steps_of(s), "threshold", "", s.methods).draw() is None  # all null
    assert adapted_chart(steps_of(s), "learning_rate", "", s.methods).draw() is None  # constant
    assert noise_chart(noise_table(s).data, "", s.methods).draw() is None
    empty = judge_cells(s, "mnist", 7)  # no rows of ours, and the paper prints no value
    assert metric_chart(empty, "", s.methods).draw() is None


def test_colours_independent_of_other_methods():
    few, many = chart.colours(["online"]), chart.colours(["zeta", "alpha", "online"])
    assert all(many[m] == few[m] for m in few)
    assert len(set(many.values())) == len(many)
    marks = chart.markers(["zeta", "alpha"])
    assert len(set(marks.values())) == len(marks)


def test_build_report_demo_figures_written(glyphs_report):
    names = {
        "metric_over_epsilon_glyphs_k3",
        "learning_curves_glyphs",
        "threshold_glyphs",
        "learning_rate_glyphs",
        "noise_multipliers_glyphs",
        "metric_over_noise_glyphs",
        "search_cost_glyphs",
        "figure_02",
        "moments_accountant",
    }
    folder = glyphs_report / "figures"
    numbers = {"metric_over_noise_glyphs.csv"}  # in no table
    pictures = {f"{n}.{e}" for n in names for e in ("png", "pdf")}
    assert {p.name for p in folder.iterdir()} == pictures | numbers
    for name in names:
        data = (folder / f"{name}.png").read_bytes()
        with Image.open(io.BytesIO(data)) as picture:
            assert min(picture.size) > 300
            assert len(picture.convert("RGB").getcolors(2**16)) > 10  # something is drawn
        assert len(data) < 120_000
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_build_report_paper_figures_numbered(paper_report):
    numbered = {p.stem for p in (paper_report / "figures").glob("figure_*.png")}
    # k = 7 has values of ours or none; the other six also where only the paper has values.
    assert numbered == {f"figure_{n:02d}" for n in (2, 6, 7, 8, 9, 10, 11)}


def test_noise_figure_paper_grids_only(store, study):
    """The noise figure shows only the paper's methods and k."""
    store.add(values=(0.9,))
    store.add(method="auto_s", values=(0.9,))
    store.add(k=1, values=(0.9,))
    (plan,) = [p for p in every_figure(study(store)) if p.name == "noise_multipliers_mnist"]
    figure = plan.draw()
    assert [axes.get_title() for axes in figure.axes] == ["k = 9"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Online"]


def test_incomplete_note_in_figure_captions(store, study):
    store.add(dataset="glyphs", k=1)
    store.add(dataset="glyphs", k=1, method="auto_s")
    store.add(dataset="glyphs", k=2, method="online")
    store.add(dataset="glyphs", k=2, method="fixed_quantile_linear", quantile=0.5)
    whole, part = (other_methods_figure(study(store), "glyphs", k).caption for k in (1, 2))
    assert "Only a part" not in whole
    assert part.endswith(
        "Only a part of these grids ran: FixedQuantile, linear (ε = 9), Online (ε = 9)."
    )
    metric = metric_figure(study(store), "glyphs", 2, measured=True).caption
    assert metric.endswith("Only a part of these grids ran: Online (ε = 9).")
    assert "Only a part" not in metric_figure(study(store), "glyphs", 1, measured=True).caption


def bars_in(axes, axis=1):
    """Of each drawn series: whether it is hollow, and the middle and half of each of its bars."""
    found = []
    for container in axes.containers:
        line, _, bars = container.lines
        ends = [segment[:, axis] for bar in bars for segment in bar.get_segments()]
        middles = [(float(np.mean(end)), float(np.ptp(end)) / 2) for end in ends]
        found.append((line.get_markerfacecolor() == "white", middles))
    return found


@pytest.mark.parametrize(("epsilons", "axis"), [((9.0,), 0), ((7.0, 9.0), 1)])
def test_metric_chart_paper_bars_equal_std(store, study, epsilons, axis):
    """The paper's bars are its printed stds, and ours are the stds over our seeds."""
    for epsilon, seed in itertools.product(epsilons, range(3)):
        store.add(epsilon=epsilon, seed=seed, values=(0.90 + 0.02 * seed,))
    cells = judge_cells(study(store), "mnist", 9)
    cells = cells[cells["epsilon"].isin(epsilons) & (cells["method"] == "online")]
    drawn = bars_in(metric_chart(cells, "", ["online"]).draw().axes[0], axis)
    theirs = [bar for hollow, bars in drawn if hollow for bar in bars]
    ours = [bar for hollow, bars in drawn if not hollow for bar in bars]
    expected = zip(cells["paper_mean"], cells["paper_std"], strict=True)
    assert theirs == [pytest.approx(pair) for pair in expected]
    assert ours == [pytest.approx((92, 2))] * len(epsilons)


def test_dot_chart_dots_match_method_labels():
    methods = ["online", "fixed_threshold", "fixed_quantile", "adam_wosm", "auto_s"]
    values = pd.DataFrame({"method": methods, "mean": range(5), "std": 0.1, "source": "ours"})
    (axes,) = dot_chart(values, "accuracy", "", methods).draw().axes
    names = {
        round(place): label.get_text()
        for place, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
    }
    colours = chart.colours(methods)
    for mean, method in enumerate(methods):
        (line,) = [line for line in lines_in(axes, colours[method]) if line.get_marker() != "|"]
        assert line.get_xdata()[0] == mean
        assert names[round(line.get_ydata()[0])] == labels.method_label(method)


@pytest.mark.parametrize("make_chart", [curves_chart, adapted_chart], ids=["metric", "threshold"])
def test_training_curves_panel_mean_and_span(make_chart):
    """A panel shows the mean and the range of three seeds at its own epsilon."""
    rows = [
        {"run_id": f"{epsilon} {seed}", "method": "online", "epsilon": epsilon, "seed": seed}
        | {"status": "finished", "step": step, "value": value, "threshold": value}
        for epsilon in (3.0, 5.0, 9.0)
        for seed, off in enumerate((0.01, 0.02, 0.06))
        for step, value in ((50, epsilon / 20 + off), (100, epsilon / 10 + off))
    ]
    what, scale = ("accuracy", 100) if make_chart is curves_chart else ("threshold", 1)
    panels = make_chart(pd.DataFrame(rows), what, "", ["online"]).draw().axes
    for panel, epsilon in zip(panels, (3.0, 5.0, 9.0), strict=False):
        assert panel.get_title() == f"ε = {epsilon:g}"
        at = np.array([epsilon / 20, epsilon / 10])
        (line,) = lines_in(panel, chart.colours([])["online"])
        assert line.get_ydata() == pytest.approx(scale * (at + 0.03))
        (band,) = panel.collections
        heights = band.get_paths()[0].vertices[:, 1]
        for edge in (*(at + 0.01), *(at + 0.06)):
            assert np.isclose(heights, scale * edge).any()


def test_adapted_chart_constants_per_budget():
    rows = [
        {"run_id": f"{method} {epsilon}", "method": method, "epsilon": epsilon, "seed": 0}
        | {"status": "finished", "step": step, "threshold": constant if constant else step / 100}
        for epsilon, fixed in ((3.0, 0.5), (9.0, 4.0))
        for method, constant in (("online", None), ("fixed_threshold", fixed))
        for step in (50, 100)
    ]
    panels = (
        adapted_chart(pd.DataFrame(rows), "threshold", "", ["online", "fixed_threshold"])
        .draw()
        .axes
    )
    for panel, fixed in zip(panels, (0.5, 4.0), strict=False):
        dotted = lines_in(panel, chart.colours([])["fixed_threshold"])
        assert [set(line.get_ydata()) for line in dotted] == [{fixed}]
