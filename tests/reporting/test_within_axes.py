"""Of every figure: what is drawn stands within its axes, in their order, and numbers rise."""

import pkgutil
from collections import defaultdict
from importlib import import_module

import pytest
from tests.reporting.conftest import quick_prices
from tests.reporting.drawing_helpers import every_kind, falling, outside

from oso_dp.reporting import figures as room

FILES = [
    name
    for _, name, _ in pkgutil.iter_modules(room.__path__)
    if hasattr(import_module(f"{room.__name__}.{name}"), "plans")
]


@pytest.fixture(scope="module")
def drawn():
    """Of a file of the room its plans, with the figures that they draw."""
    study, known = every_kind(), {}

    def draw(name: str):
        if name not in known:
            with quick_prices():
                plans = import_module(f"{room.__name__}.{name}").figures(study)
                pairs = [(plan, plan.draw()) for plan in plans]
            known[name] = [pair for pair in pairs if pair[1] is not None]
        return known[name]

    return draw


@pytest.mark.parametrize("name", FILES)
def test_all_that_is_drawn_stands_within_its_axes(name: str, drawn) -> None:
    """But what is far below the best, where the caption says that it is cut off."""
    assert drawn(name)
    for plan, figure in drawn(name):
        for axes in figure.axes:
            cut = "values far below are cut off" in plan.caption
            assert outside(axes, cut) == [], plan.name


@pytest.mark.parametrize("name", FILES)
def test_no_line_goes_back_to_the_left(name: str, drawn) -> None:
    for plan, figure in drawn(name):
        for axes in figure.axes:
            assert falling(axes) == [], plan.name


@pytest.mark.parametrize("name", FILES)
def test_numbers_at_an_axis_rise_to_the_right_and_upward(name: str, drawn) -> None:
    """Wherever a tick is called by a number."""
    for plan, figure in drawn(name):
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


@pytest.mark.parametrize("name", ["training_curves", "adaptation_signs"])
def test_an_axis_of_all_steps_begins_at_none(name: str, drawn) -> None:
    for plan, figure in drawn(name):
        for axes in figure.axes if plan.name != "signs" else ():
            assert axes.get_xlim()[0] == 0, plan.name


@pytest.mark.parametrize("name", FILES)
def test_panels_beside_each_other_have_one_scale(name: str, drawn) -> None:
    for plan, figure in drawn(name):
        rows = defaultdict(set)
        for axes in figure.axes:
            if (place := axes.get_subplotspec()) is not None and axes.get_label() != "<colorbar>":
                rows[place.rowspan.start].add(axes.get_ylim())
        assert all(len(scales) == 1 for scales in rows.values()), plan.name
