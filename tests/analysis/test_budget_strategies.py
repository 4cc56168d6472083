"""What one budget gives: which rows stand for a way to spend it, and how they compare."""

import math

import numpy as np
import pytest
from scipy import stats
from tests.analysis.claim_helpers import papers_point
from tests.analysis.test_linear_scaling import fill as scaled
from tests.analysis.test_random_stopping import three_searches, whole_grid
from tests.searches import make_search

from oso_dp.analysis.budget_strategies import budget_strategies
from oso_dp.paper.best_points import all_points
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.reporting.figures import budget_strategies as budget_strategies_figure
from oso_dp.reporting.figures import every_figure
from oso_dp.reporting.tables.budget_strategies import budget_strategies_table

RHO = 0.316228
FALLING = "linear"
ALONE = {"search_accounting": "single", "noise_multiplier": 500.0}


def searched(store, values, method="online", k=4, **more):
    """values[point][seed]: a grid whose runs share the budget."""
    for rho, seeds in zip((0.01, 0.1, 1.0, 10.0), values, strict=False):
        for seed, value in enumerate(seeds):
            known = {"noise_multiplier": 900.0, "k": k} | more
            store.add(method=method, learning_rate=rho, seed=seed, values=(value,), **known)


def default(store, values, method="auto_s", rho=RHO, k=1, **more):
    for seed, value in enumerate(values):
        point = {"learning_rate": rho, "threshold": 1.0, "seed": seed}
        store.add(method=method, k=k, values=(value,), **{**ALONE, **point, **more})


SEARCH = [[0.70, 0.71, 0.69], [0.84, 0.85, 0.86], [0.80, 0.81, 0.80], [0.30, 0.31, 0.30]]


def of(rows, way, method="auto_s", variant=""):
    (row,) = (
        row
        for row in rows.to_dict("records")
        if (row["strategy"], row["method"], row["variant"]) == (way, method, variant)
    )
    return row


def test_budget_strategies_default_gain_matches_welch(store, study):
    searched(store, SEARCH)
    default(store, [0.90, 0.91, 0.92], schedule=FALLING)
    rows = budget_strategies(study(store))
    ours = of(rows, "default", variant="rate falling")
    theirs = of(rows, "composition", "online")
    assert (ours["runs"], theirs["runs"]) == (1, 4)
    assert (ours["noise_multiplier"], theirs["noise_multiplier"]) == (500, 900)
    assert ours["mean"] == pytest.approx(91)
    assert theirs["mean"] == pytest.approx(85)
    assert ours["gain"] == pytest.approx(6)
    both = stats.ttest_ind([90, 91, 92], [84, 85, 86], equal_var=False).confidence_interval()
    assert ours["gain_half"] == pytest.approx((both.high - both.low) / 2)
    assert math.isnan(theirs["gain"])


def test_budget_strategies_other_points_excluded(store, study):
    """Only runs at a method's default point, without a schedule, count as its default."""
    searched(store, SEARCH)
    default(store, [0.90] * 3)
    default(store, [0.99] * 3, rho=1.0)
    default(store, [0.95] * 3, averaging=0.9)
    default(store, [0.97] * 3, method="psac")
    default(store, [0.60] * 3, method="online", rho=1.0, threshold=0.1)
    default(store, [0.98] * 3, method="online", rho=RHO, threshold=0.1)
    rows = budget_strategies(study(store))
    alone = rows[rows["strategy"] == "default"]
    assert dict(zip(alone["method"], alone["mean"], strict=True)) == {
        "online": pytest.approx(60),
        "auto_s": pytest.approx(90),
    }


def test_budget_strategies_default_prefers_most_seeds(store, study):
    searched(store, SEARCH)
    default(store, [0.90, 0.91], k=1)
    default(store, [0.70, 0.71, 0.72], k=5)
    default(store, [0.50, 0.51, 0.52], k=9)
    row = of(budget_strategies(study(store)), "default")
    assert (row["k"], row["seeds"], row["mean"]) == (5, 3, pytest.approx(71))


def test_budget_strategies_prefers_smallest_grid(store, study):
    """Of two complete grids of a method, the one with the smaller k counts."""
    searched(store, SEARCH[:3], k=3)
    searched(store, [[0.99, 0.98, 0.99]] * 4, k=4, noise_multiplier=950.0)
    default(store, [0.90] * 3)
    rows = budget_strategies(study(store))
    assert (rows["method"] == "online").sum() == 1
    assert of(rows, "composition", "online")["mean"] == pytest.approx(85)


def test_budget_strategies_incomplete_grid_marked(store, study):
    searched(store, SEARCH[:2])
    default(store, [0.90] * 3)
    one = study(store)
    assert not of(budget_strategies(one), "composition", "online")["whole"]
    row = of(budget_strategies(one), "default")
    assert row["whole"]
    assert math.isnan(row["gain"])  # over a part of a grid nothing is said
    cells = budget_strategies_table(one).printed.set_index("method")["value"]
    assert cells["Online"].endswith("*")
    assert not cells["AUTO-S"].endswith("*")
    (plan,) = budget_strategies_figure.figures(one)
    drawn = plan.draw()
    names = [text.get_text() for text in drawn.axes[0].get_yticklabels()]
    assert names == ["Online*: incomplete grid, k = 4", "AUTO-S†: default"]


def test_budget_strategies_cross_mean_uses_halves(store, study):
    """Each test half selects a checkpoint that the other evaluates; both values are averaged."""
    searched(store, SEARCH)
    halves = ((0.80, 0.60), (0.70, 0.90))
    for seed, off in enumerate((-0.01, 0.0, 0.01)):
        shifted = [(even + off, odd + off) for even, odd in halves]
        known = {"learning_rate": RHO, "threshold": 1.0, "seed": seed, "halves": shifted}
        store.add(method="auto_s", k=1, values=(0.7, 0.8), **ALONE, **known)
    row = of(budget_strategies(study(store)), "default")
    # The even half likes the first checkpoint, where the odd one has 60; the odd half the second.
    assert row["cross_mean"] == pytest.approx((60 + 70) / 2)
    assert row["cross_std"] == pytest.approx(1.0)  # n - 1
    assert row["mean"] == pytest.approx(80)


def test_budget_strategies_seen_dataset_marked(store, study):
    for dataset, metric in (("mnist", "accuracy"), ("fashion_mnist", "mse")):
        searched(store, SEARCH, dataset=dataset, metric=metric)
        default(store, [0.2] * 3, dataset=dataset, metric=metric)
    one = study(store)
    rows = budget_strategies(one)
    alone = rows[rows["strategy"] == "default"].set_index("dataset")
    assert alone["seen"].to_dict() == {"mnist": True, "fashion_mnist": False}
    # Where lower is better, what is lower gains.
    assert alone.loc["fashion_mnist", "gain"] == pytest.approx(100 * (np.mean(SEARCH[3]) - 0.2))
    cells = budget_strategies_table(one).printed
    assert cells["chosen by"].str.endswith("†").sum() == 1


def test_budget_strategies_requires_default(store, study):
    searched(store, SEARCH, epsilon=3.0)
    searched(store, SEARCH, epsilon=9.0)
    assert budget_strategies(study(store)).empty
    default(store, [0.90] * 3, epsilon=3.0)
    rows = budget_strategies(study(store))
    assert set(rows["epsilon"]) == {3.0}


def test_budget_strategies_sorts_rows(store, study):
    for epsilon in (3.0, 9.0):
        searched(store, SEARCH, epsilon=epsilon)
        searched(store, SEARCH, method="fixed_threshold", k=2, epsilon=epsilon)
        default(store, [0.90, 0.91, 0.92], epsilon=epsilon)
        default(store, [0.11, 0.12, 0.11], method="online", rho=1.0, epsilon=epsilon)
    one = study(store)
    rows = budget_strategies(one)
    assert rows["epsilon"].tolist() == [3.0] * 4 + [9.0] * 4
    assert rows["strategy"].tolist() == 2 * ["composition", "composition", "default", "default"]
    drawn = {plan.name: plan for plan in every_figure(one)}["budget_strategies_mnist"].draw()
    texts = [text.get_text() for axes in drawn.axes for text in axes.texts]
    assert texts == ["11.3", "11.3"]  # too far off to be drawn
    assert len(drawn.axes) == 2


def test_budget_strategies_diverged_default_gives_nan(store, study):
    searched(store, SEARCH)
    for seed in range(2):
        known = {"learning_rate": RHO, "threshold": 1.0, "seed": seed}
        store.add(method="auto_s", k=1, values=(), diverged_at=3, **ALONE, **known)
    row = of(budget_strategies(study(store)), "default")
    assert math.isnan(row["mean"])
    assert math.isnan(row["gain"])
    assert budget_strategies_table(study(store)).printed["value"].iloc[-1] == "–"


def test_budget_strategies_gain_within_own_budget(store, study):
    for epsilon, better in ((3.0, 0.0), (9.0, 0.1)):
        for_all = [[value + better for value in seeds] for seeds in SEARCH]
        searched(store, for_all, epsilon=epsilon)
        default(store, [0.90, 0.91, 0.92], epsilon=epsilon)
    rows = budget_strategies(study(store))
    alone = rows[rows["strategy"] == "default"].set_index("epsilon")
    assert alone["gain"].to_dict() == {3.0: pytest.approx(6), 9.0: pytest.approx(-4)}


def test_budget_strategies_separates_distributions(store, study):
    three_searches(store)
    default(store, [0.90, 0.91, 0.92], epsilon=3.0)
    one = study(store)
    rows = budget_strategies(one)
    stopped = rows[rows["strategy"] == "random_stopping"].set_index("distribution")
    assert stopped.index.tolist() == ["logarithmic", "geometric", "poisson"]
    assert stopped["mean"].nunique() == stopped["noise_multiplier"].nunique() == 3
    assert rows.loc[rows["strategy"] != "random_stopping", "distribution"].isna().all()
    printed = budget_strategies_table(one).printed["method"].tolist()
    names = [f"Online, K {shape}" for shape in stopped.index]
    assert [name for name in printed if "K" in name] == names
    drawn = {plan.name: plan for plan in every_figure(one)}["budget_strategies_mnist"].draw()
    (axes,) = drawn.axes
    written = [text.get_text() for text in axes.get_yticklabels()]
    assert {f"{name}: random stopping" for name in names} <= set(written)


def test_budget_strategies_includes_linear_scaling(store, study):
    """Linear scaling has two trials of four runs and a final run, whose value it reports."""
    searched(store, SEARCH)
    default(store, [0.90, 0.91, 0.92])
    for seed in range(2):
        scaled(store, [0.1, 0.1], seed=seed)  # no slope: the final run is at 0.1, too
    row = of(budget_strategies(study(store)), "linear_scaling", "online")
    assert (row["runs"], row["seeds"], row["noise_multiplier"]) == (9, 2, 30)
    assert row["mean"] == pytest.approx(20)
    assert row["gain"] == pytest.approx(20 - 85)


def test_budget_strategies_keeps_one_per_strategy(store, study):
    """Each strategy has one row: that of the smallest grid, or of the most seeds."""
    searched(store, SEARCH)
    default(store, [0.90, 0.91, 0.92])
    whole_grid(store, [[0.7], [0.8]], k=2, shape="geometric")
    whole_grid(store, [[0.5], [0.6], [0.6]], k=3, shape="geometric")
    scaled(store, [0.1, 0.1])
    for seed in range(2):
        scaled(store, [0.01, 0.01], seed=seed, variant={"trial_fractions": "0.1, 0.3"})
    rows = budget_strategies(study(store))
    assert of(rows, "random_stopping", "online")["k"] == 2
    row = of(rows, "linear_scaling", "online")
    assert (row["seeds"], row["trial_fractions"], row["mean"]) == (2, "0.1, 0.3", pytest.approx(10))


def test_budget_strategies_short_runs_excluded(store, study):
    """Runs of fewer epochs and grids of a single point are excluded."""
    searched(store, [[0.50]], k=1, epochs=1, noise_multiplier=700.0)
    searched(store, [[0.60, 0.61, 0.62]], k=1, noise_multiplier=750.0)
    searched(store, SEARCH)
    default(store, [0.90, 0.91, 0.92])
    default(store, [0.10] * 5, k=7, epochs=1, steps=1)
    whole_grid(store, [[0.5], [0.6], [0.6]], k=3, shape="geometric", epochs=1)
    for seed in range(2):
        scaled(store, [0.1, 0.1], seed=seed, epochs=1)
    rows = budget_strategies(study(store))
    assert set(rows["strategy"]) == {"composition", "default"}
    assert of(rows, "composition", "online")["mean"] == pytest.approx(85)
    assert of(rows, "default")["gain"] == pytest.approx(6)


def test_budget_strategies_prefers_complete_grid(store, study):
    searched(store, SEARCH[:2], k=3, noise_multiplier=800.0)
    searched(store, SEARCH, k=4)
    default(store, [0.90] * 3)
    row = of(budget_strategies(study(store)), "composition", "online")
    assert (row["k"], row["whole"]) == (4, True)


def test_budget_strategies_incomplete_grid_without_gain(store, study):
    """An incomplete grid has no gain, because a missing point may be its best."""
    searched(store, SEARCH)
    searched(store, [[0.9, 0.8, 0.85]], method="adam_wosm", threshold=1.0)
    default(store, [0.90] * 3)
    rows = budget_strategies(study(store))
    part = of(rows, "composition", "adam_wosm")
    assert not part["whole"]
    assert math.isnan(part["gain"])
    assert not math.isnan(of(rows, "default")["gain"])


@pytest.mark.parametrize("turned", [False, True])
def test_budget_strategies_prefers_paper_point(turned, store, study):
    """Of two incomplete grids, the one that has the paper's best point counts."""

    def lacking():
        for seed in range(3):
            more = {"k": 5, "epsilon": 9.0, "noise_multiplier": 800.0, "learning_rate": 0.316228}
            store.add(method="online", seed=seed, values=(0.99,), **more)

    def having():
        rho = next(
            point.learning_rate
            for point in all_points()
            if (point.table, point.epsilon, point.method) == (8, 9.0, "online")
        )
        for seed in range(3):
            more = {"k": 9, "epsilon": 9.0, "noise_multiplier": 900.0, "learning_rate": rho}
            store.add(method="online", seed=seed, values=(0.85,), **more)

    for add in [lacking, having][:: -1 if turned else 1]:
        add()
    # Another method's part of the same k = 5 has that method's own point.
    store.add(**papers_point("adam_wosm", 5, 9.0), values=(0.5,))
    default(store, [0.90] * 3, epsilon=9.0)
    made = study(store)
    row = of(budget_strategies(made), "composition", "online")
    assert (row["k"], row["whole"], row["mean"]) == (9, False, pytest.approx(85))
    printed = budget_strategies_table(made).printed
    assert "incomplete grid, k = 9" in set(printed["strategy"])


@pytest.mark.parametrize(("small", "large", "shown"), [(1, 5, 9), (2, 3, 9), (3, 5, 5), (1, 2, 5)])
def test_budget_strategies_prefers_enough_seeds(small, large, shown, store, study):
    """Of two incomplete grids, the smaller k counts unless only the larger has three seeds."""
    for k, seeds in ((5, small), (9, large)):
        for seed in range(seeds):
            store.add(**papers_point("online", k, 9.0), seed=seed, values=(0.9 + 0.001 * k,))
    default(store, [0.90] * 3, epsilon=9.0)
    row = of(budget_strategies(study(store)), "composition", "online")
    assert (row["k"], row["seeds"]) == (shown, {5: small, 9: large}[shown])


def test_budget_strategies_other_precision_excluded(store, study):
    searched(store, SEARCH)
    default(store, [0.90, 0.91, 0.92], halves=((0.80, 0.80),))
    default(store, [0.10, 0.11, 0.12, 0.13][:2], precision="bfloat16", halves=((0.1, 0.1),))
    row = of(budget_strategies(study(store)), "default")
    assert (row["mean"], row["cross_mean"]) == (pytest.approx(91), pytest.approx(80))
    assert row["precision"] == "float32"


def test_budget_strategies_figure_matches_rows(store, study):
    """Filled markers are `mean`, hollow ones `cross_mean`; the dashed line is Online's search."""
    searched(store, SEARCH)
    for seed, (value, half) in enumerate(((0.90, 0.80), (0.91, 0.86), (0.92, 0.83))):
        known = {"learning_rate": RHO, "threshold": 1.0, "seed": seed, "halves": ((half, half),)}
        store.add(method="auto_s", k=1, values=(value,), **ALONE, **known)
    one = study(store)
    rows = budget_strategies(one)
    (plan,) = budget_strategies_figure.figures(one)
    (axes,) = plan.draw().axes
    drawn = set()
    for container in axes.containers:
        line, _, bars = container.lines
        ((first, _), (last, _)) = bars[0].get_segments()[0]
        middle, half = line.get_xdata()[0], (last - first) / 2
        drawn.add((line.get_markerfacecolor() == "white", round(middle, 6), round(half, 6)))
    assert drawn == {
        (hollow, round(row[mean], 6), round(row[std], 6))
        for row in rows.to_dict("records")
        for hollow, mean, std in ((False, "mean", "std"), (True, "cross_mean", "cross_std"))
    }
    dashed = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed == [pytest.approx(of(rows, "composition", "online")["mean"])]


FALLING_IN = "rate falling"  # words


def test_budget_strategies_separates_schedules(store, study):
    searched(store, SEARCH)
    default(store, [0.90, 0.91, 0.92])
    scaled(store, [0.1, 0.1])
    scaled(store, [1.0, 1.0], variant={"schedule": "linear"})
    rows = budget_strategies(study(store))
    means = {
        variant: of(rows, "linear_scaling", "online", variant)["mean"]
        for variant in ("", FALLING_IN)
    }
    assert means == {"": pytest.approx(20), FALLING_IN: pytest.approx(30)}


OTHER_RUNS = [{"precision": "bfloat16"}, {"epochs": 20}, {"delta": 1e-6}]


@pytest.mark.parametrize("other", OTHER_RUNS, ids=lambda other: next(iter(other)))
@pytest.mark.parametrize("of_the_search", [True, False])
def test_budget_strategies_incomparable_search_without_gain(of_the_search, other, store, study):
    """No strategy has a gain over a search of another precision, length or delta."""
    one, rest = (other, {}) if of_the_search else ({}, other)
    searched(store, SEARCH, **one)
    default(store, [0.90] * 3, **rest)
    stops = make_search(PoissonSampling(1.0), rest.get("epochs", 600), 3, "random_stopping", 1.0)
    noise = 1.00001 * stops.noise_multiplier(9.0, rest.get("delta", 1e-5))
    grid = [[0.5, 0.52], [0.9, 0.9], [0.7, 0.7]]
    whole_grid(store, grid, noise_multiplier=noise, **rest)
    for seed in range(2):
        scaled(store, [0.1, 0.1], seed=seed, **rest)
    rows = budget_strategies(study(store))
    assert set(rows["strategy"]) == {"composition", "default", "random_stopping", "linear_scaling"}
    assert rows["gain"].isna().all()


def test_budget_strategies_scheduled_search_not_reference(store, study):
    """A search with a schedule is a strategy, but no reference for the gain of others."""
    searched(store, [[0.99] * 3] * 4, schedule=FALLING)
    default(store, [0.90, 0.91, 0.92])
    rows = budget_strategies(study(store))
    assert of(rows, "composition", "online", FALLING_IN)["mean"] == pytest.approx(99)
    assert rows["gain"].isna().all()
    printed = budget_strategies_table(study(store)).printed
    assert "Online, rate falling" in printed["method"].tolist()
    assert "itself" not in printed["above Online's search"].tolist()
    searched(store, SEARCH[:3], k=3, noise_multiplier=950.0)
    one = study(store)
    assert of(budget_strategies(one), "composition", "online", FALLING_IN)["gain"] == pytest.approx(
        14
    )
    assert of(budget_strategies(one), "composition", "online")["mean"] == pytest.approx(85)
    (plan,) = budget_strategies_figure.figures(one)
    dashed = [line for line in plan.draw().axes[0].lines if line.get_linestyle() == "--"]
    assert [line.get_xdata()[0] for line in dashed] == [pytest.approx(85)]


@pytest.mark.parametrize("seeds", [1, 3])
def test_budget_strategies_table_omits_interval(seeds, store, study):
    searched(store, [values[:seeds] for values in SEARCH])
    default(store, [0.90, 0.91, 0.92][:seeds])
    (said,) = budget_strategies_table(study(store)).printed["above Online's search"].iloc[1:]
    assert "nan" not in said
    assert ("[" in said) == (seeds > 1)
    assert said.startswith("+6.00 [" if seeds > 1 else "+6.00")
