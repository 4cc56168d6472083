"""Figures: drawn from whatever is there, one colour per method."""

import io
import itertools
import math

import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from oso_dp.analysis.cell_verdicts import judged_cells
from oso_dp.analysis.trajectories import trajectories
from oso_dp.reporting.figures import every_plan, looks
from oso_dp.reporting.figures.beyond import beyond_plan
from oso_dp.reporting.figures.figures_03_to_11 import draw_metric
from oso_dp.reporting.figures.noise_multipliers import draw_noise
from oso_dp.reporting.figures.over_steps import draw_adapted, draw_curves
from oso_dp.reporting.tables.noise_multipliers import noise_table


def steps_of(s):
    return trajectories(s.best_runs, s.evaluations)


def lines_in(axes, colour):
    return [line for line in axes.lines if to_hex(line.get_color()) == colour.lower()]


def drawn_points(axes, colour, filled):
    """The (x, y) of the markers of one method, ours (filled) or the paper's (hollow)."""
    found = []
    for line in lines_in(axes, colour):
        hollow = line.get_markerfacecolor() == "white"
        if line.get_marker() not in ("None", "", None, "_", "|") and hollow != filled:
            found += list(zip(line.get_xdata(), line.get_ydata(), strict=True))
    return found


def test_ours_and_the_papers_values_are_both_drawn(paper_store, study):
    cells = judged_cells(study(paper_store), "mnist", 9)
    axes = draw_metric(cells, "", ["online"]).axes[0]
    online = looks.colours([])["online"]
    ours, theirs = (drawn_points(axes, online, filled) for filled in (True, False))
    assert [y for _, y in theirs] == [90.69, 91.62, 92.94, 93.62]
    assert [y for _, y in ours] == [cells[cells["status"] == "run"]["mean"].iloc[0]]
    assert round(ours[0][0]) == 3  # at the place of epsilon = 9, the fourth
    assert [t.get_text() for t in axes.get_xticklabels()] == ["3", "5", "7", "9"]


@pytest.mark.parametrize(
    ("epsilons", "axis"), [((9.0,), 0), ((3.0, 9.0), 1)], ids=["dots", "lines"]
)
def test_error_bars_need_two_seeds(make_store, study, epsilons, axis):
    """And are deviations, not errors of the mean."""

    def bars(seeds):
        store = make_store()
        for epsilon, seed in itertools.product(epsilons, range(seeds)):
            value = 0.9 + 0.01 * seed
            store.add(dataset="glyphs", epsilon=epsilon, seed=seed, values=(value,))
        axes = draw_metric(judged_cells(study(store), "glyphs", 9), "", ["online"]).axes[0]
        return [c for container in axes.containers for c in container.lines[2]]

    assert bars(1) == []
    segments = [segment for bar in bars(2) for segment in bar.get_segments()]
    assert len(segments) == len(epsilons)
    half = 100 * 0.01 / 2 * math.sqrt(2)
    for segment in segments:
        assert segment[:, axis] == pytest.approx([90.5 - half, 90.5 + half])


def test_mse_has_a_logarithmic_axis(store, study):
    store.add(dataset="fashion_mnist", metric="mse", values=(0.1, 0.01))
    s = study(store)
    assert (
        draw_metric(judged_cells(s, "fashion_mnist", 9), "", s.methods).axes[0].get_yscale()
        == "log"
    )
    figure = draw_curves(steps_of(s), "mse", "", s.methods)
    assert figure.axes[0].get_yscale() == "log"
    assert lines_in(figure.axes[0], looks.colours([])["online"])[0].get_ydata() == pytest.approx(
        [10, 1]
    )


def test_only_methods_that_adapt_are_solid_in_the_threshold(paper_store, study):
    s = study(paper_store)
    axes = draw_adapted(steps_of(s), "threshold", "", s.methods).axes[0]
    colour = looks.colours([])
    for method in ("online", "fixed_quantile"):
        (line,) = lines_in(axes, colour[method])
        assert len(set(line.get_ydata())) > 5
    for method, value in (("fixed_threshold", 10.0), ("adam_wosm", 10**1.5)):
        (line,) = lines_in(axes, colour[method])
        assert set(line.get_ydata()) == {value}
        assert line.get_linestyle() == ":"
    rates = draw_adapted(steps_of(s), "learning_rate", "", s.methods).axes[0]
    assert {to_hex(line.get_color()) for line in rates.lines} == {colour["online"].lower()}


def test_nothing_to_draw_gives_no_figure(store, study):
    store.add(method="no_dp")
    s = study(store)
    assert draw_adapted(steps_of(s), "threshold", "", s.methods) is None  # all null
    assert draw_adapted(steps_of(s), "learning_rate", "", s.methods) is None  # constant
    assert draw_noise(noise_table(s).data, "", s.methods) is None
    empty = judged_cells(s, "mnist", 7)  # no rows of ours, and the paper prints no value
    assert draw_metric(empty, "", s.methods) is None


def test_nodp_alone_is_drawn(store, study):
    store.add(method="no_dp", dataset="glyphs", values=(0.9, 0.99))
    s = study(store)
    curves = draw_curves(steps_of(s), "accuracy", "", s.methods)
    assert lines_in(curves.axes[0], looks.colours([])["no_dp"])
    metric = draw_metric(judged_cells(s, "glyphs", 9), "", s.methods)
    assert metric.axes[0].lines[0].get_ydata() == pytest.approx([99, 99])


def test_a_diverged_run_ends_in_a_cross(store, study):
    store.add(seed=0, values=(0.5, 0.9, 0.95))
    store.add(seed=1, values=(0.5, math.inf), diverged_at=80)
    s = study(store)
    axes = draw_curves(steps_of(s), "accuracy", "", s.methods).axes[0]
    (cross,) = [line for line in axes.lines if line.get_marker() == "X"]
    assert (list(cross.get_xdata()), list(cross.get_ydata())) == ([50], [50.0])
    mean = next(line for line in axes.lines if line.get_marker() != "X")
    assert np.isfinite(mean.get_ydata()).all()


def test_noise_bars_carry_n(paper_store, study):
    s = study(paper_store)
    axes = draw_noise(noise_table(s).data, "", s.methods).axes[0]
    heights = [bar.get_height() for bar in axes.patches]
    stored = {run["noise_multiplier"] for run in paper_store.runs} - {None}
    assert set(heights) == stored
    assert [t.get_text() for t in axes.texts] == ["9", "81", "45", "9"]


def test_each_method_keeps_its_colour_and_marker_whatever_else_is_there():
    few, many = looks.colours(["online"]), looks.colours(["zeta", "alpha", "online"])
    assert all(many[m] == few[m] for m in few)
    assert len(set(many.values())) == len(many)
    marks = looks.markers(["zeta", "alpha"])
    assert len(set(marks.values())) == len(marks)


def test_figures_of_the_demo(glyphs_report):
    names = {
        "metric_over_epsilon_glyphs_k3",
        "learning_curves_glyphs_k3",
        "threshold_glyphs_k3",
        "learning_rate_glyphs_k3",
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


def test_figures_of_the_paper_are_numbered_like_its_own(paper_report):
    numbered = {p.stem for p in (paper_report / "figures").glob("figure_*.png")}
    # k = 7 has values of ours or none; the other six also where only the paper has values.
    assert numbered == {f"figure_{n:02d}" for n in (2, 6, 7, 8, 9, 10, 11)}


def test_noise_is_drawn_of_the_papers_grids(store, study):
    """Other methods and k would leave no room for the bars that the paper is about."""
    store.add(values=(0.9,))
    store.add(method="auto_s", values=(0.9,))
    store.add(k=1, values=(0.9,))
    (plan,) = [p for p in every_plan(study(store)) if p.name == "noise_multipliers_mnist"]
    figure = plan.draw()
    assert [axes.get_title() for axes in figure.axes] == ["k = 9"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Online"]


def test_a_grid_that_ran_in_part_is_named_below_its_figure(store, study):
    store.add(dataset="glyphs", k=1)
    store.add(dataset="glyphs", k=1, method="auto_s")
    store.add(dataset="glyphs", k=2, method="online")
    store.add(dataset="glyphs", k=2, method="fixed_quantile_linear", quantile=0.5)
    whole, part = (beyond_plan(study(store), "glyphs", k).caption for k in (1, 2))
    assert "Only a part" not in whole
    assert part.endswith(
        "Only a part of these grids ran: FixedQuantile, linear (ε = 9), Online (ε = 9)."
    )
