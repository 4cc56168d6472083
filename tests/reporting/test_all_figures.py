"""Of every figure: what is drawn stands within its axes, in their order, and numbers rise."""

from collections import defaultdict

from tests.reporting.drawing_helpers import falling, outside

KINDS = {"adaptation", "budget_strategies", "grid", "metric", "noise", "other_methods"}
KINDS |= {"overview", "search_cost", "training", "untuned_runs"}


def test_figures_all_kinds_drawn(drawn) -> None:
    assert {plan.kind for plan, _ in drawn} >= KINDS


def test_figures_content_within_axes(drawn) -> None:
    """Nothing lies outside the axes, except values that the caption says are cut off."""
    for plan, figure in drawn:
        for axes in figure.axes:
            cut = "values far below are cut off" in plan.caption
            assert outside(axes, cut) == [], plan.name


def test_figures_line_x_nondecreasing(drawn) -> None:
    for plan, figure in drawn:
        for axes in figure.axes:
            assert falling(axes) == [], plan.name


def test_figures_tick_numbers_increase(drawn) -> None:
    """Numeric tick labels increase along each axis."""
    for plan, figure in drawn:
        for axes in figure.axes:
            for side, axis in enumerate((axes.xaxis, axes.yaxis)):
                shown = []
                for label in axis.get_ticklabels():
                    text = label.get_text().replace("−", "-")
                    if text.replace(".", "").removeprefix("-").isdigit():
                        place = [axes.get_xlim()[0], axes.get_ylim()[0]]
                        place[side] = label.get_position()[side]
                        shown.append((axes.transData.transform(place)[side], float(text)))
                assert sorted(shown) == sorted(shown, key=lambda pair: pair[1]), plan.name


def test_figures_training_steps_start_at_zero(drawn) -> None:
    plans = [(plan, figure) for plan, figure in drawn if plan.kind == "training"]
    assert plans
    for plan, figure in plans:
        assert all(axes.get_xlim()[0] == 0 for axes in figure.axes), plan.name


def test_figures_row_panels_share_scale(drawn) -> None:
    for plan, figure in drawn:
        rows = defaultdict(set)
        for axes in figure.axes:
            if (place := axes.get_subplotspec()) is not None and axes.get_label() != "<colorbar>":
                rows[place.rowspan.start].add(axes.get_ylim())
        assert all(len(scales) == 1 for scales in rows.values()), plan.name


def test_figures_mse_axis_names_unit(drawn) -> None:
    """Axes of errors name the mean squared error, and never the accuracy."""
    kinds = {"metric", "other_methods", "grid", "noise", "untuned_runs", "budget_strategies"}
    seen = set()
    for plan, figure in drawn:
        if plan.kind not in kinds or plan.dataset != "fashion_mnist" or not plan.measured:
            continue
        if plan.name.startswith("noise_multipliers"):
            continue
        named = {text for axes in figure.axes for text in (axes.get_xlabel(), axes.get_ylabel())}
        assert not any("accuracy" in text for text in named), plan.name
        assert any("test mean squared error × 100" in text for text in named), plan.name
        seen.add(plan.kind)
    assert seen == kinds


def test_figures_numeric_axes_have_labels(drawn) -> None:
    """An axis with numeric ticks has a label in at least one panel of the figure."""
    for plan, figure in drawn:
        for side in ("xaxis", "yaxis"):
            every = [getattr(axes, side) for axes in figure.axes if axes.get_visible()]
            ticks = {label.get_text() for axis in every for label in axis.get_ticklabels()}
            if any(text[:1].isdigit() for text in ticks):
                assert any(axis.get_label_text() for axis in every), (plan.name, side)
