"""Random stopping: exact expectations, against enumeration of every draw."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.accounting.draw_probabilities import probabilities

from oso_dp.accounting.search_accounting.random_stopping import STOPPING_ETA
from oso_dp.analysis.random_stopping import outcomes, primary_distribution, selection_probabilities
from oso_dp.reporting.figures.metric_over_epsilon import outcome_chart
from oso_dp.reporting.tables.search_cost import outcome_table

STOP = {"search_accounting": "random_stopping"}
SHAPED = (*STOPPING_ETA.values(), 0.5, 3.0)


@pytest.mark.parametrize("shape", SHAPED)
def test_selection_probabilities_matches_enumeration(shape):
    """The probabilities match an enumeration of all sequences of up to 7 draws from 3 points."""
    values, mean, most = np.array([0.3, 0.9, 0.5]), 1.2, 7
    weights = probabilities(mean, shape, most)
    counted = np.zeros(3)
    for k in range(1, most + 1):
        for draws in itertools.product(range(3), repeat=k):
            counted[max(draws, key=lambda i: values[i])] += weights[k] / 3**k
    assert sum(weights) > 0.998
    assert selection_probabilities(values, True, mean, shape) == pytest.approx(counted, abs=2.5e-3)
    turned = selection_probabilities(-values, False, mean, shape)
    assert turned == pytest.approx(counted, abs=2.5e-3)


@given(
    st.lists(st.one_of(st.floats(-1, 1), st.just(math.nan)), min_size=2, max_size=30),
    st.floats(1.1, 100),
    st.sampled_from(SHAPED),
)
def test_selection_probabilities_sums_and_increases(values, mean, shape):
    found = selection_probabilities(np.array(values), True, mean, shape)
    none = math.exp(-mean) if math.isinf(shape) else 0.0
    assert found.sum() == pytest.approx(1 - none, abs=1e-9)
    ranked = [-math.inf if math.isnan(v) else v for v in values]
    for (one, p), (other, q) in itertools.combinations(zip(ranked, found, strict=True), 2):
        if one == other:
            assert p == pytest.approx(q)
        elif shape == 1 or mean > 1.5:
            assert (p < q) == (one < other) or p == pytest.approx(q, abs=1e-12)


def whole_grid(store, values, k=3, **more):
    """Online's k points; values[point][seed] are what each run reached."""
    for point, seeds in enumerate(values):
        for seed, value in enumerate(seeds):
            store.add(
                k=k, learning_rate=10.0**point, seed=seed, values=(value,), **{**STOP, **more}
            )
    return store


def test_outcomes_matches_expectation_over_draws(store, study):
    """P(no draw is above the j-th worst of 3 points) is (j/3) / (3 - 2j/3) for geometric K."""
    grid = [[0.50, 0.54], [0.90, 0.86], [0.70, 0.70]]
    (row,) = outcomes(study(whole_grid(store, grid, shape="geometric"))).to_dict("records")
    at_most = [(j / 3) / (3 - 2 * j / 3) for j in range(4)]
    worst, middle, best = np.diff(at_most)
    by_seed = [
        100 * (worst * low + middle * mid + best * high)
        for low, mid, high in ((0.50, 0.70, 0.90), (0.54, 0.70, 0.86))
    ]
    assert row["value"] == pytest.approx(np.mean(by_seed))
    assert row["std"] == pytest.approx(np.std(by_seed, ddof=1))
    means = np.array([52, 70, 88])
    spread = np.array([worst, middle, best]) @ (means - row["value"]) ** 2
    assert row["luck"] == pytest.approx(math.sqrt(spread))
    assert (row["nothing"], row["points"], row["grid_size"]) == (pytest.approx(0), 3, 3)


def test_outcomes_separates_search_accountings(store, study):
    whole_grid(store, [[0.5], [0.9], [0.7]])
    whole_grid(
        store, [[0.4], [0.8], [0.6]], noise_multiplier=300.0, search_accounting="composition"
    )
    s = study(store)
    rows = outcomes(s).set_index("search_accounting")
    assert rows.loc["composition", "value"] == pytest.approx(80)
    assert rows.loc["composition", "noise_multiplier"] == 300
    assert 70 < rows.loc["random_stopping", "value"] < 90
    assert rows.loc["random_stopping", "noise_multiplier"] < 300
    shown = outcome_table(s).printed
    assert shown[["all N", "ν, all N", "ν, random stopping"]].to_numpy().tolist() == [
        ["80.00", "300.000", f"{rows.loc['random_stopping', 'noise_multiplier']:.3f}"]
    ]


def test_outcomes_incomplete_grid_gives_nan(store, study):
    whole_grid(store, [[0.5], [0.9]])
    whole_grid(store, [[0.5], [0.9]], search_accounting="composition")
    s = study(store)
    assert sorted(outcomes(s)["search_accounting"]) == ["composition", "random_stopping"]
    assert outcomes(s)["value"].isna().all()
    assert outcome_table(s).printed["random stopping"].tolist() == ["–"]


@pytest.mark.parametrize("shape", STOPPING_ETA)
def test_outcomes_uses_stopping_distribution(store, study, shape):
    whole_grid(store, [[0.5], [0.9], [0.7]], shape=shape)
    (row,) = outcomes(study(store)).to_dict("records")
    chance = selection_probabilities(np.array([50.0, 90.0, 70.0]), True, 3, STOPPING_ETA[shape])
    assert row["distribution"] == shape
    assert row["value"] == pytest.approx(chance @ [50.0, 90.0, 70.0] / chance.sum())


def test_outcomes_diverged_points_yield_nothing(store, study):
    whole_grid(store, [[0.9], [0.7]], shape="geometric")
    store.add(k=3, learning_rate=100.0, values=(), diverged_at=3, shape="geometric", **STOP)
    (row,) = outcomes(study(store)).to_dict("records")
    at_most = [(j / 3) / (3 - 2 * j / 3) for j in range(4)]
    assert row["nothing"] == pytest.approx(at_most[1])
    middle, best = np.diff(at_most)[1:]
    assert row["value"] == pytest.approx(100 * (0.7 * middle + 0.9 * best) / (middle + best))


def test_outcomes_mse_prefers_lowest(store, study):
    whole_grid(store, [[0.5], [0.1], [0.2]], dataset="fashion_mnist", metric="mse")
    (row,) = outcomes(study(store)).to_dict("records")
    assert 10 < row["value"] < 20


def test_outcomes_seeds_common_to_points(store, study):
    whole_grid(store, [[0.5, 0.51, 0.52], [0.9, 0.91, 0.92], [0.7, 0.71]])
    (row,) = outcomes(study(store)).to_dict("records")
    assert row["seeds"] == 2


def three_searches(store, epsilons=(3.0,)):
    """One grid under composition and under each distribution, each with its own noise and values.

    Rows say which distribution they were planned for. The best is 90, 91, 92 and 93.
    """
    grid = np.array([[0.5, 0.52], [0.9, 0.9], [0.7, 0.7]])
    for epsilon in epsilons:
        whole_grid(
            store, grid, epsilon=epsilon, search_accounting="composition", noise_multiplier=300.0
        )
        for better, shape in enumerate(("poisson", "geometric", "logarithmic"), start=1):
            asked = {"shape": shape, "stopping_distribution": shape}
            whole_grid(store, grid + better / 100, epsilon=epsilon, **asked)
    return store


def test_outcomes_separates_distributions(store, study):
    s = study(three_searches(store))
    rows = outcomes(s).set_index("distribution", drop=False)
    assert rows.index[:3].tolist() == ["logarithmic", "geometric", "poisson"]
    assert rows["search_accounting"].tolist() == ["random_stopping"] * 3 + ["composition"]
    for better, shape in enumerate(("poisson", "geometric", "logarithmic"), start=1):
        means = np.array([51.0, 90.0, 70.0]) + better
        chance = selection_probabilities(means, True, 3, STOPPING_ETA[shape])
        assert rows.loc[shape, "value"] == pytest.approx(chance @ means / chance.sum())
    assert rows["value"].iloc[3] == pytest.approx(90)
    assert rows["noise_multiplier"].nunique() == 4
    printed = outcome_table(s).printed
    assert printed["K"].tolist() == ["logarithmic", "geometric", "poisson"]
    assert printed["all N"].tolist() == ["90.00 ± 0.00"] * 3
    assert printed["random stopping"].str[:5].astype(float).to_numpy() == pytest.approx(
        rows.loc[["logarithmic", "geometric", "poisson"], "value"].to_numpy(), abs=0.005
    )


def test_primary_distribution_prefers_complete_grid(store, study):
    rows = primary_distribution(outcomes(study(three_searches(store, (3.0, 9.0)))))
    assert rows["epsilon"].tolist() == [3, 9]
    assert set(rows["distribution"]) == {"logarithmic"}
    store = type(store)()
    whole_grid(
        store,
        [[0.5], [0.9]],
        shape="logarithmic",
        stopping_distribution="logarithmic",
    )
    whole_grid(
        store,
        [[0.5], [0.9], [0.7]],
        shape="poisson",
        stopping_distribution="poisson",
    )
    (row,) = primary_distribution(outcomes(study(store))).to_dict("records")
    assert row["distribution"] == "poisson"


@pytest.mark.parametrize("epsilons", [(3.0,), (3.0, 9.0)])
def test_outcome_chart_separates_distributions(store, study, epsilons):
    s = study(three_searches(store, epsilons))
    data = outcomes(s)
    figure = outcome_chart(data, "accuracy", "", s.methods).draw()
    names = [
        "all N runs are paid for",
        *(f"random stopping, K {shape}" for shape in ("logarithmic", "geometric", "poisson")),
    ]
    values = data.set_index("distribution").loc[["logarithmic", "geometric", "poisson"], "value"]
    expected = [90, *values.iloc[:: len(epsilons)]]
    if len(epsilons) == 1:
        (axes,) = figure.axes
        assert [text.get_text() for text in figure.legends[0].get_texts()] == names
        dots = [line for line in axes.lines if line.get_marker() != "|"]
        assert [line.get_xdata()[0] for line in dots] == pytest.approx(expected)
        assert len({str(line.get_markerfacecolor()) for line in dots}) == 4
    else:
        assert [axes.get_title() for axes in figure.axes] == names
        drawn = [axes.lines[0].get_ydata()[0] for axes in figure.axes]
        assert drawn == pytest.approx(expected)


@pytest.mark.parametrize("epsilons", [(3.0,), (3.0, 9.0)])
def test_outcome_chart_bars_match_std(store, study, epsilons):
    """Bars show the std over seeds, not the larger deviation over random draws."""
    s = study(three_searches(store, epsilons))
    data = outcomes(s)
    axis = 0 if len(epsilons) == 1 else 1
    drawn = [
        np.ptp(segment[:, axis]) / 2
        for axes in outcome_chart(data, "accuracy", "", s.methods).draw().axes
        for container in axes.containers
        for bar in container.lines[2]
        for segment in bar.get_segments()
    ]
    assert sorted(drawn) == pytest.approx(sorted(data["std"]))
    assert (data["luck"].dropna() > 2 * data["std"].max()).all()


def test_outcomes_without_random_stopping_omitted(store, study):
    """A budget whose complete grid ran under composition alone has no outcome."""
    whole_grid(store, [[0.5], [0.9], [0.7]], epsilon=3.0)
    for epsilon in (3.0, 9.0):
        more = {"search_accounting": "composition", "epsilon": epsilon, "noise_multiplier": 300.0}
        whole_grid(store, [[0.4], [0.8], [0.6]], **more)
    rows = outcomes(study(store))
    assert set(rows["epsilon"]) == {3.0}
    assert sorted(rows["search_accounting"]) == ["composition", "random_stopping"]


@pytest.mark.parametrize("first", [[0.5, 0.6], [0.5]])
def test_outcomes_incomplete_grid_reports_most_seeds(store, study, first):
    whole_grid(store, [first, [0.9] * (3 - len(first))])
    (row,) = outcomes(study(store)).to_dict("records")
    assert (row["seeds"], row["points"]) == (2, 2)


def test_outcomes_oversized_grid_gives_nan(store, study):
    """Four points of a grid of three have no value, by composition or random stopping."""
    values = [[0.5], [0.9], [0.7], [0.6]]
    whole_grid(store, values)
    whole_grid(store, values, search_accounting="composition", noise_multiplier=300.0)
    rows = outcomes(study(store))
    assert rows["points"].tolist() == [4, 4]
    assert rows["grid_size"].tolist() == [3, 3]
    assert rows["value"].isna().all()


@pytest.mark.parametrize("momentum", [0.99])
def test_outcomes_other_momentum_excluded(momentum, store, study):
    whole_grid(store, [[0.5], [0.9], [0.7]])
    (alone,) = outcomes(study(store)).to_dict("records")
    whole_grid(store, [[0.95], [0.96], [0.97]], momentum=momentum)
    (row,) = outcomes(study(store)).to_dict("records")
    assert (row["points"], row["value"]) == (3, pytest.approx(alone["value"]))


def test_primary_distribution_chosen_per_budget(store, study) -> None:
    """Each budget has the distribution that most methods ran at this budget."""
    ran = {
        3.0: {"online": ("logarithmic", "geometric"), "auto_s": ("geometric",)},
        9.0: {name: ("logarithmic",) for name in ("online", "auto_s", "adam_wosm")},
    }
    for epsilon, methods in ran.items():
        for method, shapes in methods.items():
            for shape in shapes:
                more = {"shape": shape, "stopping_distribution": shape}
                grid = [[0.5], [0.6], [0.7]]
                whole_grid(store, grid, method=method, epsilon=epsilon, **more)
    rows = primary_distribution(outcomes(study(store))).set_index(["epsilon", "method"])[
        "distribution"
    ]
    assert set(rows[3.0]) == {"geometric"}
    assert set(rows[9.0]) == {"logarithmic"}


@pytest.mark.parametrize(
    "other",
    [
        {"precision": "bfloat16"},
        {"epochs": 20},
        {"delta": 1e-6},
        {"schedule": "linear"},
    ],
)
def test_outcomes_incomparable_search_omitted(other, store, study) -> None:
    """A composition search of other precision, length, delta or schedule is omitted."""
    grid = [[0.5], [0.9], [0.7]]
    for more in ({}, other):
        store = type(store)()
        whole_grid(store, grid)
        whole_grid(store, grid, search_accounting="composition", noise_multiplier=300.0, **more)
        rows = outcomes(study(store))
        assert (rows["search_accounting"] == "composition").sum() == (not more)
        shown = outcome_table(study(store)).printed["all N"].tolist()
        assert shown == (["–"] if more else ["90.00"])


def test_outcome_table_pairs_comparable_searches(store, study) -> None:
    grid = [[0.5], [0.9], [0.7]]
    whole_grid(store, grid, search_accounting="composition", noise_multiplier=300.0)
    for shape, precision in (("geometric", "bfloat16"), ("poisson", "float32")):
        more = {"shape": shape, "stopping_distribution": shape}
        whole_grid(store, grid, precision=precision, **more)
    table = outcome_table(study(store)).printed.set_index("K")["all N"]
    assert table.to_dict() == {"geometric": "–", "poisson": "90.00"}


@pytest.mark.parametrize("ran", [1, 2, 3])
def test_outcome_table_reports_grid_points(ran: int, store, study) -> None:
    whole_grid(store, [[0.5], [0.9], [0.7]][:ran])
    (row,) = outcome_table(study(store)).printed.to_dict("records")
    assert (row["N"], row["grid points"]) == ("3", str(ran))
