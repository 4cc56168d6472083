"""What a legend calls something is what is drawn so: hollow, filled, dashed, grey, by colour."""

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from tests.reporting.drawing_helpers import LAID, hollow, marks

from oso_dp import labels
from oso_dp.analysis.budget_strategies import budget_strategies
from oso_dp.analysis.untuned_runs import with_alternatives
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.reporting.figures import chart
from oso_dp.reporting.figures.adaptation_signs import draw_signs
from oso_dp.reporting.figures.budget_strategies import strategies_chart
from oso_dp.reporting.figures.figure_01 import cosine_chart
from oso_dp.reporting.figures.heatmap import draw_grid
from oso_dp.reporting.figures.metric_over_epsilon import metric_chart
from oso_dp.reporting.figures.training_curves import adapted_chart, curves_chart
from oso_dp.reporting.figures.untuned_runs import untuned_chart


def named(figure):
    """The legend's entries by their names."""
    return {one.get_label(): one for one in figure.legends[0].legend_handles}


def look(line):
    """Without its colour: grey entries stand for all methods."""
    return hollow(line), line.get_marker() != "None", line.get_linestyle()


def at(axes, x=None, y=None):
    """The lines with a marker at this value."""
    return [
        line
        for line in marks(axes)
        for place in zip(*line.get_data(), strict=True)
        if all(b is None or np.isclose(a, b) for a, b in zip(place, (x, y), strict=True))
    ]


@pytest.mark.parametrize("epsilons", [(3.0, 5.0, 7.0, 9.0), (9.0,)])
def test_metric_chart_legend_matches_sources(epsilons, made) -> None:
    cells = judge_cells(made, "mnist", 9)
    cells = cells[cells["epsilon"].isin(epsilons)]
    figure = metric_chart(cells, "", made.methods).draw()
    entries = named(figure)
    assert hollow(entries["paper"]) != hollow(entries["ours"])
    for name, column in (("ours", "mean"), ("paper", "paper_mean")):
        values = cells[column].dropna()
        assert len(values) >= 4
        for value in values:
            found = at(figure.axes[0], **{"y" if len(epsilons) > 1 else "x": value})
            assert found
            assert look(entries[name]) in [look(line) for line in found]


def test_figures_legend_matches_method_style(made, drawn) -> None:
    """Legends that name methods show the methods' colours and markers."""
    titles = {labels.method_label(method): method for method in made.methods}
    seen = set()
    for plan, figure in drawn:
        for name, entry in named(figure).items() if figure.legends else ():
            method = titles.get(name.split(",")[0])
            if method is None or plan.kind in ("grid", "search_cost"):
                continue
            colour = entry.get_color() if hasattr(entry, "get_color") else entry.get_facecolor()
            assert to_hex(colour) == chart.colours(made.methods)[method].lower(), plan.name
            if getattr(entry, "get_marker", lambda: "")() not in ("", "None"):
                assert entry.get_marker() == chart.markers(made.methods)[method], plan.name
            seen.add((plan.kind, method))
    assert {kind for kind, _ in seen} >= {"metric", "other_methods", "training", "noise"}


def test_strategies_chart_legend_matches_markers(made) -> None:
    rows = budget_strategies(made)
    rows = rows[rows["dataset"] == "glyphs"]
    figure = strategies_chart(rows, "", made.methods).draw()
    entries = named(figure)
    names = {"best on the test set": "mean", "chosen on the other half": "cross_mean"}
    assert set(entries) == set(names)
    for axes, epsilon in zip(figure.axes, sorted(rows["epsilon"].unique()), strict=True):
        here = rows[rows["epsilon"] == epsilon]
        for name, column in names.items():
            drawn = [line for value in here[column].dropna() for line in at(axes, x=value)]
            assert drawn
            for line in drawn:
                assert hollow(line) == hollow(entries[name])


def test_untuned_chart_legend_matches_reference_lines(made) -> None:
    rows = with_alternatives(made)
    rows = rows[(rows["dataset"] == "glyphs") & (rows["k"] == 2)]
    figure = untuned_chart(rows, "", made.methods).draw()
    entries = named(figure)
    cells = itertools.product(sorted(rows["epsilon"].unique()), ("online", "auto_s"))
    for axes, (epsilon, method) in zip(figure.axes, cells, strict=True):
        mine = rows[(rows["epsilon"] == epsilon) & (rows["method"] == method)]
        flat = {line.get_linestyle(): line.get_ydata()[0] for line in axes.lines
                if line.get_transform() == axes.get_yaxis_transform()}  # fmt: skip
        own = entries["best of the method's own search"].get_linestyle()
        assert flat.pop(own) == pytest.approx(mine["own_mean"].iloc[0])
        if method != "online":
            online = entries["best of Online's search"].get_linestyle()
            assert flat.pop(online) == pytest.approx(mine["online_mean"].iloc[0])
        assert flat == {}


def test_untuned_chart_legend_matches_variants(made) -> None:
    rows = with_alternatives(made)
    rows = rows[(rows["dataset"] == "glyphs") & (rows["k"] == 2) & (rows["method"] == "online")]
    figure = untuned_chart(rows, "", made.methods).draw()
    entries = named(figure)
    names = {"": "one untuned run"} | {variant: f"the same, {variant}" for variant in LAID}
    for axes, epsilon in zip(figure.axes, sorted(rows["epsilon"].unique()), strict=True):
        for variant, name in names.items():
            mine = rows[(rows["epsilon"] == epsilon) & (rows["variant"] == variant)]
            for row in mine.itertuples():
                (line,) = at(axes, x=row.learning_rate, y=row.mean)
                assert look(line) == look(entries[name])


@pytest.fixture
def holed():
    """FixedThreshold's grid at two budgets; one point diverged at the first, one lacks there."""
    known = {"method": "fixed_threshold", "quantile": np.nan}
    every = [
        {**known, "epsilon": epsilon, "learning_rate": rate, "threshold": c}
        | {"mean": np.nan if (epsilon, rate, c) == (3.0, 1.0, 1.0) else 0.02 + 0.1 * rate + c / 50}
        for epsilon in (3.0, 9.0)
        for rate, c in itertools.product((0.1, 1.0, 10.0), (0.01, 1.0, 100.0))
    ]
    return pd.DataFrame([one for one in every if one["epsilon"] > 3 or one["threshold"] < 100])


def test_draw_grid_legend_matches_marks(holed) -> None:
    best = holed[(holed["epsilon"] == 9) & (holed["learning_rate"] == 0.1)].iloc[:1]
    figure = draw_grid(holed, best, "accuracy", "")
    entries = named(figure)
    first, second, _ = figure.axes
    top = holed[holed["epsilon"] == 9]["mean"].idxmax()
    place = [(0.1, 1.0, 10.0).index(holed.at[top, "learning_rate"]) + 0.5,
             (0.01, 1.0, 100.0).index(holed.at[top, "threshold"]) + 0.5]  # fmt: skip
    for name, (x, y) in (("our best", place), ("paper's best", (0.5, 0.5))):
        (line,) = at(second, x=x, y=y)
        for ask in ("get_marker", "get_markersize", "get_markerfacecolor"):
            assert getattr(line, ask)() == getattr(entries[name], ask)(), name
    (diverged,) = first.patches
    assert diverged.get_xy() == (1, 1)
    fields = {"diverged without a value": diverged, "not run": first.patch}
    for name, field in fields.items():
        assert to_hex(field.get_facecolor()) == to_hex(entries[name].get_facecolor()), name


@pytest.mark.parametrize("metric", ["accuracy", "mse"])
def test_training_curves_legend_matches_line_styles(metric: str) -> None:
    """Line styles in the legend match the curves: private or not, adapted or constant."""
    rows = pd.DataFrame(
        [
            {"run_id": method, "method": method, "epsilon": epsilon, "seed": 0, "step": step}
            | {"status": "finished", "value": 0.1 + step / 1000, "threshold": c * step**moves}
            for method, epsilon, c, moves in (
                ("online", 9.0, 1.0, 0.1),
                ("fixed_threshold", 9.0, 0.5, 0.0),
                ("no_dp", np.nan, np.nan, 0.0),
            )
            for step in (50, 100)
        ]
    )
    methods = ["online", "fixed_threshold", "no_dp"]
    for figure, name_of in (
        (
            curves_chart(rows, metric, "", methods).draw(),
            {m: labels.method_label(m) for m in methods},
        ),
        (
            adapted_chart(rows, "threshold", "", methods).draw(),
            {"online": "Online", "fixed_threshold": "FixedThreshold (constant)"},
        ),
    ):
        entries = named(figure)
        assert set(entries) == set(name_of.values())
        for method, name in name_of.items():
            colour = chart.colours(methods)[method].lower()
            drawn = [line for line in figure.axes[0].lines if to_hex(line.get_color()) == colour]
            assert {line.get_linestyle() for line in drawn} == {entries[name].get_linestyle()}
        assert len({entry.get_linestyle() for entry in entries.values()}) == 2


def test_cosine_chart_legend_matches_marks(made) -> None:
    figure = cosine_chart(made.cosine, "").draw()
    entries = named(figure)
    for axes, truth in zip(figure.axes, ("batch", "data"), strict=True):
        for step, rows in made.cosine.groupby("step"):
            colour = to_hex(entries[f"t = {step}"].get_color())
            mine = [line for line in axes.lines if to_hex(line.get_color()) == colour]
            (curve,) = [line for line in mine if len(line.get_xdata()) > 2]
            assert sorted(curve.get_ydata()) == sorted(rows[f"{truth}_mean"])
            top = rows[f"{truth}_mean"].idxmax()
            for name, x in (("best C of those tried", rows.at[top, "threshold"]),
                            ("Cₜ of the run", rows["run_threshold"].iloc[0])):  # fmt: skip
                (line,) = [line for line in mine if line.get_marker() not in ("None", "")
                           if np.isclose(line.get_xdata()[0], x)]  # fmt: skip
                assert line.get_marker() == entries[name].get_marker()
                assert hollow(line) == hollow(entries[name])


def test_draw_signs_legend_matches_fractions(made) -> None:
    rows = made.signs.assign(
        gradient=1.0, true_gradient=-1.0, gradient_z=0.0, direction=1.0, true_direction=-1.0,
        direction_z=0.0,
    )  # fmt: skip
    figure = draw_signs(rows)
    entries = named(figure)
    solid = {"solid": "-"}
    shares = {"as released": 1.0, "without noise": 0.0, "expected with noise": 0.5}
    for axes in figure.axes[:2]:
        for name, share in shares.items():
            said = entries[name].get_linestyle()
            (drawn,) = (one for one in axes.patches
                        if solid.get(one.get_linestyle(), one.get_linestyle()) == said)  # fmt: skip
            assert set(drawn.get_data().values) == {share}
