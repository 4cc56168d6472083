"""Selection: decided when reading, the same whatever order the rows come in."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.analysis.value_helpers import run_values

from oso_dp.analysis.cells import average_over_seeds, count_variants, trajectories
from oso_dp.analysis.values import (
    POINT,
    add_keys,
    checkpoints_by_rule,
    cross_select_points,
    grid_points,
    select_best_points,
    select_checkpoints,
)
from oso_dp.errors import OsoError


def select_best(runs, evaluations, rule="best"):
    """The best grid point of every cell, and the runs that make it up."""
    values = run_values(runs, evaluations, rule)
    best = select_best_points(grid_points(values))
    return best, values[values["point"].isin(best["point"])].reset_index(drop=True)


def cross_selection(runs, evaluations):
    keyed = add_keys(runs, evaluations)
    table = checkpoints_by_rule(keyed, evaluations)
    return cross_select_points(
        select_checkpoints(keyed, table, "cross"),
        grid_points(select_checkpoints(keyed, table, "best")),
    )


def test_select_checkpoints_uses_whole_test_set(store):
    run = store.add(values=(0.5, 0.9, 0.9, 0.7))  # the halves' values are higher everywhere
    runs, evaluations = store.frames()
    evaluations = evaluations.iloc[::-1]
    best = run_values(runs, evaluations, "best").set_index("run_id").loc[run]
    last = run_values(runs, evaluations, "last").set_index("run_id").loc[run]
    assert (best["value"], best["selected_step"]) == (0.9, 100)  # the earliest of equals
    assert (last["value"], last["selected_step"]) == (0.7, 600)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_select_checkpoints_nonfinite_values_ignored(broken, store):
    """NaN and infinity count neither as the last value nor as the best."""
    halves = ((0.05, 0.03), (0.04, 0.06), (broken, broken))
    store.add(metric="mse", values=(0.05, 0.04, broken), halves=halves)
    values = {rule: run_values(*store.frames(), rule).iloc[0] for rule in ("best", "last", "cross")}
    assert (values["best"]["value"], values["last"]["value"]) == (0.04, 0.04)
    cross = values["cross"]
    assert (cross["chosen_even"], cross["value_even"]) == (0.04, 0.06)
    assert (cross["chosen_odd"], cross["value_odd"]) == (0.03, 0.05)


def test_select_best_points_averages_seeds(store):
    # Point A has the single best run, point B the better mean.
    for seed, (a, b) in enumerate([(0.99, 0.92), (0.70, 0.94), (0.80, 0.93)]):
        store.add(learning_rate=1.0, seed=seed, values=(a,))
        store.add(learning_rate=0.1, seed=seed, values=(b,))
    best, used = select_best(*store.frames())
    row = best.iloc[0]
    assert row["learning_rate"] == 0.1
    assert row["mean"] == pytest.approx(0.93)
    assert row["std"] == pytest.approx(0.01)
    assert (row["seeds"], row["points"], row["cell_runs"]) == (3, 2, 6)
    assert len(used) == 3


@pytest.mark.parametrize("metric", ["accuracy", "mse"])
@pytest.mark.parametrize("order", [1, -1])
def test_select_best_points_tie_takes_first(order, metric, store):
    """Of equal points, the one with the lowest learning rate is selected, in any row order."""
    for rate in (0.1, 1.0, 10.0)[::order]:
        store.add(learning_rate=rate, values=(0.5,), metric=metric)
    other = {"accuracy": 0.25, "mse": 0.75}[metric]
    store.add(learning_rate=0.01, values=(other,), metric=metric)
    best, _ = select_best(*store.frames())
    assert best["learning_rate"].tolist() == [0.1]


def test_add_keys_identical_runs_rejected(store):
    """Two runs of one seed whose points are equal up to rounding raise an error."""
    store.add(learning_rate=0.1, values=(0.9,))
    store.add(learning_rate=0.1 + 1e-15, values=(0.8,))
    with pytest.raises(OsoError, match="identical in every column"):
        select_best(*store.frames())


def test_select_best_points_counts_diverged_runs(store):
    store.add(seed=0, values=(0.9, 0.8))
    store.add(seed=1, values=(0.7, math.nan), diverged_at=80)
    store.add(seed=2, values=(), diverged_at=3)  # diverged before its first evaluation
    best, _ = select_best(*store.frames())
    row = best.iloc[0]
    assert row["mean"] == pytest.approx(0.8)
    assert (row["seeds"], row["runs"], row["diverged"], row["cell_diverged"]) == (2, 3, 2, 2)
    last, _ = select_best(*store.frames(), "last")
    assert last["mean"].item() == pytest.approx(0.75)  # of 0.8 and 0.7, its last finite value


def test_select_best_points_keeps_diverged_cell(store):
    store.add(method="online", values=(0.9,))
    store.add(method="fixed_quantile", quantile=0.5, values=(), diverged_at=3)
    best, _ = select_best(*store.frames())
    lost = best.set_index("method").loc["fixed_quantile"]
    assert np.isnan(lost["mean"])
    assert np.isnan(lost["quantile"])
    assert lost["cell_diverged"] == 1


def test_select_best_points_separates_no_dp(store):
    store.add(method="no_dp", values=(0.99,))
    store.add(method="online", values=(0.9,))
    best, _ = select_best(*store.frames())
    assert set(best["method"]) == {"no_dp", "online"}
    assert best.set_index("method").loc["no_dp", "mean"] == pytest.approx(0.99)


def test_add_keys_unknown_metric_rejected(store):
    store.add(metric="f1")
    with pytest.raises(OsoError, match=r"^evaluations: metric 'f1'.*accuracy, mse$"):
        run_values(*store.frames())


def test_add_keys_two_metrics_rejected(store):
    store.add(seed=0, metric="accuracy")
    store.add(seed=1, metric="mse")
    with pytest.raises(OsoError, match=r"^evaluations: data set mnist has metrics accuracy, mse"):
        run_values(*store.frames())


def test_cross_select_points_matches_hand_calculation(store):
    # On the even half point A's second checkpoint is best (0.9), which the odd half gives 0.6; on
    # the odd half it is B's first (0.8), which the even half gives 0.7.
    store.add(learning_rate=1.0, values=(0.5, 0.5), halves=((0.5, 0.5), (0.9, 0.6)))
    store.add(learning_rate=0.1, values=(0.5, 0.5), halves=((0.7, 0.8), (0.1, 0.1)))
    row = cross_selection(*store.frames()).iloc[0]
    assert row["mean"] == pytest.approx((0.6 + 0.7) / 2)
    assert (row["even_learning_rate"], row["odd_learning_rate"]) == (1.0, 0.1)
    assert (row["seeds"], row["points"]) == (1, 2)
    assert math.isnan(row["std"])


def test_cross_select_points_removes_selection_bias(store):
    """Cross-selection gives 0.5 where the selecting half has 0.9 and the other half 0.5."""
    for seed in range(3):
        store.add(seed=seed, values=(0.7, 0.7), halves=((0.9, 0.5), (0.5, 0.9)))
    assert cross_selection(*store.frames())["mean"].item() == pytest.approx(0.5)
    assert cross_selection(*store.frames())["std"].item() == pytest.approx(0)


def test_cross_select_points_diverged_gives_nan(store):
    store.add(values=(), diverged_at=3)
    store.add(method="adam_wosm", threshold=1.0, values=(0.9,), halves=((math.nan, 0.9),))
    cells = cross_selection(*store.frames()).set_index("method")
    assert cells["mean"].isna().all()
    assert cells["seeds"].tolist() == [0, 0]


number = st.one_of(st.just(math.nan), st.integers(0, 8).map(lambda v: v / 8))  # exact sums


@settings(max_examples=12, deadline=None)
@given(
    curves=st.lists(
        st.lists(st.tuples(number, number, number), max_size=3), min_size=1, max_size=6
    ),
    metric=st.sampled_from(["accuracy", "mse"]),
    order=st.integers(0, 99),
)
def test_select_checkpoints_matches_slow_reference(make_store, curves, metric, order):
    """All checkpoint rules match a direct implementation, in any row order."""
    store = make_store()
    better = max if metric == "accuracy" else min
    for i, curve in enumerate(curves):
        values, halves = tuple(c[0] for c in curve), tuple(c[1:] for c in curve)
        store.add(
            seed=i % 2, learning_rate=2.0 ** (i // 2), values=values, halves=halves, metric=metric
        )
    frames = [frame.sample(frac=1, random_state=order) for frame in store.frames()]

    def checkpoint(curve, rule, split):
        seen = [c for c in curve if math.isfinite(c[split])]
        if rule == "last" or not seen:
            return seen[-1] if seen else None
        return next(c for c in seen if c[split] == better(s[split] for s in seen))

    def grid(rule, by, reported):
        """Mean over seeds of the best point, chosen by one split and reported on another."""
        points = {}
        for i, curve in enumerate(curves):
            points.setdefault(i // 2, {})[i % 2] = checkpoint(curve, rule, by)
        means = {
            point: statistics.mean([c[by] for c in seeds.values() if c])
            for point, seeds in points.items()
            if any(seeds.values())
        }
        if not means:
            return {}
        target = better(means.values())
        best = min(p for p, mean in means.items() if mean == target)
        return {s: c[reported] for s, c in points[best].items() if c}

    for rule in ("best", "last"):
        expected = grid(rule, 0, 0)
        mean = select_best(*frames, rule)[0]["mean"].item()
        assert (
            np.isnan(mean)
            if not expected
            else mean == pytest.approx(statistics.mean(expected.values()))
        )
    ways = [grid("cross", 1, 2), grid("cross", 2, 1)]
    both = [(ways[0][s] + ways[1][s]) / 2 for s in set(ways[0]) & set(ways[1])]
    both = [value for value in both if math.isfinite(value)]
    mean = cross_selection(*frames)["mean"].item()
    assert np.isnan(mean) if not both else mean == pytest.approx(statistics.mean(both))


def test_grid_points_ignores_last_bit(store):
    store.add(seed=0, learning_rate=10**-2.5, values=(0.9,))
    store.add(seed=1, learning_rate=np.nextafter(10**-2.5, 1), values=(0.8,))
    best, _ = select_best(*store.frames())
    assert (best["points"].item(), best["seeds"].item()) == (1, 2)
    assert best["mean"].item() == pytest.approx(0.85)


def test_count_variants_counts_all_seeds(store, study):
    store.add(seed=0, learning_rate=0.1)
    store.add(seed=1, learning_rate=0.1)
    store.add(seed=2, learning_rate=1.0)
    assert count_variants(study(store))["seeds"].tolist() == [3]


def test_average_over_seeds_includes_diverged(store):
    store.add(seed=0, values=(0.4, 0.8))
    store.add(seed=1, values=(0.2, 0.6), diverged_at=70)
    drawn = average_over_seeds(trajectories(*store.frames()), "value")
    first = drawn[drawn["step"] == drawn["step"].min()]
    assert len(first) == 1
    assert first[["mean", "min", "max"]].iloc[0].tolist() == pytest.approx([0.3, 0.2, 0.4])


@pytest.mark.parametrize(
    ("method", "axis"), [("fixed_threshold", "threshold"), ("fixed_quantile", "quantile")]
)
def test_select_best_points_without_values_nan(method, axis, store) -> None:
    store.add(method=method, values=(), diverged_at=3, **{axis: 0.5})
    best = select_best_points(grid_points(run_values(*store.frames())))
    assert best[POINT].isna().to_numpy().tolist() == [[True] * len(POINT)]


@pytest.mark.parametrize("other", [0.0, 0.5, 0.99])
def test_select_best_points_prefers_default_momentum(other: float, store) -> None:
    """Momentum 0.9 is preferred to any other, whatever its values and number of runs."""
    for seed in range(3):
        store.add(seed=seed, values=(0.99,), momentum=other)
    store.add(values=(0.5,), momentum=0.9)
    (best,) = select_best_points(grid_points(run_values(*store.frames()))).to_dict("records")
    assert (best["momentum"], best["mean"]) == (0.9, pytest.approx(0.5))


@pytest.mark.parametrize("epochs", [(20, 10), (10, 20), (20, 20)])
def test_select_best_points_prefers_missing_momentum(epochs: tuple[int, int], store) -> None:
    """Runs without a momentum are preferred, whatever the length and the number of runs."""
    known = {"method": "adam_wosm", "threshold": 1.0}
    store.add(**known, values=(0.5,), momentum=None, epochs=epochs[0])
    for seed in range(3):
        store.add(**known, seed=seed, values=(0.99,), momentum=0.5, epochs=epochs[1])
    (best,) = select_best_points(grid_points(run_values(*store.frames()))).to_dict("records")
    assert (best["epochs"], best["mean"]) == (epochs[0], pytest.approx(0.5))
