"""Figures of what privacy costs: every point is a price, every mark a grid."""

import numpy as np
import pytest

from oso_dp.analysis.noise_tables import online_grids
from oso_dp.analysis.search_costs import RULES, grids_at_largest_k, search_costs
from oso_dp.privacy.noise_composition import combined_noise_multiplier
from oso_dp.reporting.figures import accounting, noise
from oso_dp.reporting.figures.accounting import accountants, accountants_chart, split_chart
from oso_dp.reporting.figures.noise import cost_chart, space_labels


def price_plans(s):
    """The figures about what privacy costs."""
    return [*noise.figures(s), *accounting.figures(s)]


@pytest.fixture
def price_axes(paper_store, study):
    s = study(paper_store)
    figure = cost_chart(search_costs(s), grids_at_largest_k(s, "mnist"), "").draw()
    return figure.axes[0]


def test_cost_chart_lines_match_costs(price_axes, paper_store, study):
    lines = {line.get_label(): line for line in price_axes.lines}
    prices = search_costs(study(paper_store))
    drawn = {(x, y) for rule in RULES for x, y in zip(*lines[rule.label].get_data(), strict=True)}
    assert drawn == set(zip(prices["runs"], prices["noise_multiplier"], strict=True))
    assert (price_axes.get_xscale(), price_axes.get_yscale()) == ("log", "log")


def test_cost_chart_names_grid_sizes(price_axes):
    dotted = [line.get_xdata()[0] for line in price_axes.lines if line.get_linestyle() == ":"]
    assert dotted == [9, 45, 81]
    (above,) = price_axes.child_axes
    names = [label.get_text() for label in above.get_xticklabels()]
    assert [name.strip() for name in names] == [
        *("Online, AdamWOSM", "FixedQuantile", "FixedThreshold")
    ]
    assert [name.count("\n") for name in names] == [0, 1, 0]  # neighbours at two heights


def test_space_labels_close_ticks_dropped():
    assert space_labels([1, 5, 7, 9, 25, 35, 45, 49, 81], first=[9, 45, 81]) == [
        *(1, 5, 7, 9, 25, 35, 45, 81)
    ]
    assert space_labels([48, 50], first=[50]) == [50]


def test_cost_figure_caption_states_ratio(paper_store, study):
    s = study(paper_store)
    prices = search_costs(s)
    caption = next(p.caption for p in price_plans(s) if p.name == "search_cost_mnist")
    line = prices[(prices["accountant"] == "pld")].set_index("runs")["noise_multiplier"]
    assert f"{line[81] / line[9]:.2f} (all N runs, PLD)" in caption
    assert "From Online's grid of 9 to the grid of 81 (FixedThreshold)" in caption


def test_split_chart_points_compose_to_nu(store, study):
    """Both noise multipliers of each drawn point compose to nu (Proposition 1)."""
    for epsilon, nu in ((3.0, 2.0), (9.0, 1.0)):
        store.add(epsilon=epsilon, noise_multiplier=nu, query_noise_multiplier=5 * nu)
    axes = split_chart(online_grids(study(store)), "").draw().axes[0]
    curves = [line for line in axes.lines if len(line.get_xdata()) > 2]
    chosen = [line for line in axes.lines if line.get_marker() == "o"]
    level = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert [len(lines) for lines in (curves, chosen, level)] == [2, 2, 2]
    for nu, curve, point, line in zip((2.0, 1.0), curves, chosen, level, strict=True):
        for x, y in zip(*curve.get_data(), strict=True):
            assert combined_noise_multiplier([x, y]) == pytest.approx(nu)
        (x,), (y,) = point.get_data()
        assert x == pytest.approx(5 * nu)
        assert combined_noise_multiplier([x, y]) == pytest.approx(nu)
        assert set(line.get_ydata()) == {nu}


def test_online_grids_prefers_mnist_largest_k(store, study):
    store.add(dataset="glyphs", k=11)
    assert online_grids(study(store))["dataset"].unique().tolist() == ["glyphs"]
    store.add(k=7, epsilon=3.0, noise_multiplier=3.0)
    store.add(k=9, epsilon=9.0, noise_multiplier=1.0)
    store.add(k=9, method="fixed_threshold", query_noise_multiplier=1e4)
    shown = online_grids(study(store))
    assert shown.to_numpy().tolist() == [["mnist", 9, 9.0, 1.0, pytest.approx(7.124)]]
    entry = {"dataset": "mnist", "k": 9, "runs": 9, "method": "online"}
    grids = [
        entry | {"epsilon": 3, "noise_multiplier": 2.0, "query_noise_multiplier": 8.0},
        entry | {"epsilon": 5, "noise_multiplier": 1.5},
    ]
    shown = online_grids(study(store, grids))[["epsilon", "noise_multiplier", "ratio"]]
    assert shown.to_numpy().tolist() == [[3, 2, 4], [9, 1, pytest.approx(7.124)]]


@pytest.mark.parametrize("ratios", [(7.124,), (7.124, 5.0), (4.0, 8.0, 2.5), (3.0, 3.0)])
def test_split_chart_names_ratios_once(ratios, store, study):
    for epsilon, ratio in zip((3.0, 5.0, 9.0), ratios, strict=False):
        store.add(epsilon=epsilon, noise_multiplier=200.0, query_noise_multiplier=200.0 * ratio)
    figure = split_chart(online_grids(study(store)), "").draw()
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    (chosen,) = [text for text in said if text.startswith("chosen")]
    assert chosen.endswith(f" = {', '.join(f'{ratio:g}' for ratio in sorted(set(ratios)))} ν")


def test_split_chart_without_online_omitted(store, study):
    store.add(method="fixed_threshold")
    assert split_chart(online_grids(study(store)), "").draw() is None
    assert "figure_02" not in [plan.name for plan in price_plans(study(store))]


def test_figures_nonprivate_study_accountants_only(store, study):
    store.add(method="no_dp")
    assert [plan.name for plan in price_plans(study(store))] == ["moments_accountant"]


def test_accountants_pld_below_rdp_below_advanced():
    data = accountants()
    assert (np.diff(data.drop(columns="epochs"), axis=0) > 0).all()
    assert (data["pld"] < data["rdp"]).all()
    assert (data["rdp"] * 5 < data["advanced"]).all()
    axes = accountants_chart("").draw().axes[0]
    assert {text.get_text() for text in axes.texts} == {
        f"{data[name].iloc[-1]:.3g}" for name in ("advanced", "rdp", "pld")
    }
    names = {"advanced composition": "advanced", "RDP (successor": "rdp", "PLD": "pld"}
    lines = {line.get_label(): line for line in axes.lines}
    assert len(lines) == 3
    for start, column in names.items():
        (line,) = (line for label, line in lines.items() if label.startswith(start))
        assert list(line.get_xdata()) == data["epochs"].tolist()
        assert list(line.get_ydata()) == data[column].tolist()


def test_cost_chart_many_methods_abbreviated(store, study):
    """The names of many methods with one grid size are abbreviated."""
    alike = ["online", "adam_wosm", "auto_s", "psac", "online_additive", "online_scale_invariant"]
    for method in alike:
        store.add(method=method, k=5)
    store.add(method="fixed_threshold", k=5)
    s = study(store)
    figure = cost_chart(search_costs(s), grids_at_largest_k(s, "mnist"), "").draw()
    above = figure.axes[0].child_axes[0]
    figure.canvas.draw()
    texts = [label.get_text().strip() for label in above.get_xticklabels()]
    assert "Online, AdamWOSM and 4 more" in texts
    assert figure.axes[0].get_position().width > 0.6  # not squeezed by them
