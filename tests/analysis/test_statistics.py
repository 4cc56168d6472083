"""What a report counts: seeds with a value, deviations over n - 1, the setting that it says."""

import math
import statistics

import numpy as np
import pandas as pd
import pytest
from tests.analysis.value_helpers import run_values

from oso_dp.analysis.claim_tests import ClaimData, compare_methods
from oso_dp.analysis.values import (
    add_keys,
    checkpoints_by_rule,
    cross_select_points,
    grid_points,
    main_variants,
    select_best_points,
    select_checkpoints,
)
from oso_dp.analysis.verdicts import (
    Comparison,
    Sample,
    average_over_grids,
    difference,
    judge,
    p_value,
)


def points_of(store):
    return grid_points(run_values(*store.frames()))


@pytest.mark.parametrize("lost", [0, 1, 2, 4])
@pytest.mark.parametrize("had", [1, 2, 3, 5])
def test_grid_points_seeds_require_value(lost: int, had: int, store) -> None:
    """Runs that diverged without a value count as runs and as diverged, but not as seeds."""
    values = [0.8 + 0.01 * seed**2 for seed in range(had)]
    for seed in range(had + lost):
        if seed < had:
            store.add(seed=seed, values=(values[seed],))
        else:
            store.add(seed=seed, values=(), diverged_at=3)
    (row,) = points_of(store).to_dict("records")
    assert (row["seeds"], row["runs"], row["diverged"]) == (had, had + lost, lost)
    assert row["mean"] == pytest.approx(statistics.mean(values))
    if had > 1:
        assert row["std"] == pytest.approx(statistics.stdev(values))
    else:
        assert math.isnan(row["std"])
    best = select_best_points(points_of(store)).iloc[0]
    assert (best["seeds"], best["cell_runs"], best["cell_diverged"]) == (had, had + lost, lost)


@pytest.mark.parametrize("had", [1, 2, 4])
@pytest.mark.parametrize("lost", [0, 1, 3])
def test_cross_select_points_requires_both_halves(lost: int, had: int, store) -> None:
    for seed in range(had + lost):
        halves = [(0.7 + 0.01 * seed, 0.8)] if seed < had else [(0.7, math.nan)]
        store.add(seed=seed, values=(0.75,), halves=halves)
    runs, evaluations = store.frames()
    keyed = add_keys(runs, evaluations)
    table = checkpoints_by_rule(keyed, evaluations)
    cross = cross_select_points(select_checkpoints(keyed, table, "cross"), points_of(store))
    assert cross["seeds"].tolist() == [had]


# Two settings of one cell each: momentum, epochs, number of runs; which is shown comes first.
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("many", "few"), [(2, 1), (7, 3)])
def test_main_variants_prefers_most_runs(many, few, turned, store) -> None:
    rows = [(50.0, many, 0.5), (60.0, few, 0.9)]
    for noise, runs, value in rows[:: -1 if turned else 1]:
        for seed in range(runs):
            store.add(seed=seed, values=(value,), noise_multiplier=noise, grid_runs=runs)
    main = main_variants(points_of(store))
    assert main["noise_multiplier"].tolist() == [50.0]
    assert main["runs"].tolist() == [many]


@pytest.mark.parametrize("points", [2, 3, 9])
def test_main_variants_sums_runs_over_points(points: int, store) -> None:
    """The variant with the most runs over all points is shown, not the one with most seeds."""
    for i in range(points):
        store.add(learning_rate=10.0**-i, values=(0.5,), noise_multiplier=60.0)
    for seed in range(points - 1):
        store.add(seed=seed, values=(0.9,), noise_multiplier=50.0, grid_runs=12)
    main = main_variants(points_of(store))
    assert set(main["noise_multiplier"]) == {60.0}
    assert len(main) == points


@pytest.mark.parametrize(("seeds", "others"), [(2, 9), (5, 2), (3, 4)])
def test_compare_methods_uses_own_seeds(seeds: int, others: int) -> None:
    shared = {"dataset": "mnist", "k": 9, "epsilon": 9.0, "metric": "accuracy", "status": "run"}
    ours, theirs = Sample(94.0, 0.5, seeds), Sample(93.0, 0.7, others)
    rows = [
        {**shared, "method": "online", **vars(ours)},
        {**shared, "method": "fixed_threshold", **vars(theirs)},
    ]
    judge = compare_methods("online", "better than", "fixed_threshold")
    found = judge(ClaimData(pd.DataFrame(rows)), "mnist").numbers
    expected = difference([(ours, theirs)])
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("alone", [0, 1])
@pytest.mark.parametrize("seeds", [2, 3, 5, 30])
def test_difference_one_seed_matches_student(seeds: int, alone: int) -> None:
    """One seed beside n seeds gives Student's interval with n - 1 degrees of freedom."""
    from scipy.stats import t

    pair = [Sample(1.0, 0.4, seeds), Sample(1.0, math.nan, 1)]
    found = difference([tuple(pair[:: -1 if alone else 1])])
    expected = t.ppf(0.975, seeds - 1) * 0.4 * math.sqrt(1 + 1 / seeds)
    assert found.half == pytest.approx(expected, rel=1e-6)


def cells_of(values: dict[str, np.ndarray]) -> pd.DataFrame:
    """One row per method and grid, from values [seeds, grids]; grids are budgets."""
    rows = []
    for method, table in values.items():
        for grid, of_seeds in enumerate(table.T):
            row = {"dataset": "mnist", "k": 9, "epsilon": 3.0 + 2 * grid, "method": method}
            ran = {"metric": "accuracy", "status": "run", "seeds": len(of_seeds)}
            rows.append({**row, **ran, "mean": of_seeds.mean(), "std": of_seeds.std(ddof=1)})
    return pd.DataFrame(rows)


def interval(values: dict[str, np.ndarray]) -> tuple[float, float]:
    judge = compare_methods("online", "better than", "fixed_threshold", ks=(9,))
    numbers = judge(ClaimData(cells_of(values)), "mnist").numbers
    return numbers["low"], numbers["high"]


def across_grids(values: dict[str, np.ndarray]) -> tuple[float, float]:
    """The interval that a claim has, from the statistics alone: thirty times as fast."""
    sides = [
        average_over_grids([Sample(of.mean(), of.std(ddof=1), len(of)) for of in values[method].T])
        for method in ("online", "fixed_threshold")
    ]
    found = difference([(sides[0], sides[1])])
    assert found is not None
    return found.low, found.high


@pytest.mark.parametrize("seeds", [(2, 5), (3, 5), (4, 4)])
@pytest.mark.parametrize("grids", [1, 2, 3, 4])
def test_compare_methods_interval_matches_difference(grids: int, seeds) -> None:
    random = np.random.default_rng(2)
    one, other = (random.normal(size=(count, grids)) for count in seeds)
    values = {"online": one, "fixed_threshold": other}
    assert interval(values) == pytest.approx(across_grids(values))


@pytest.mark.parametrize("seeds", [(3, 3), (3, 5), (2, 4)])
@pytest.mark.parametrize("grids", [1, 2, 4])
def test_compare_methods_identical_grids_keep_interval(grids: int, seeds) -> None:
    """Grids with identical values give the interval of one grid."""
    random = np.random.default_rng(0)
    one, other = (random.normal(size=(count, 1)) for count in seeds)
    alone = interval({"online": one, "fixed_threshold": other})
    repeated = {"online": one.repeat(grids, axis=1), "fixed_threshold": other.repeat(grids, axis=1)}
    assert interval(repeated) == pytest.approx(alone)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])  # of the variance that the seeds' weights make
@pytest.mark.parametrize("fewest", [2, 3])
def test_average_over_grids_interval_covers_truth(share, fewest) -> None:
    random, missed, times = np.random.default_rng(1), 0, 300
    for _ in range(times):
        values = {}
        for method, seeds in (("online", fewest), ("fixed_threshold", 5)):
            of_seed, own = random.normal(size=(seeds, 1)), random.normal(size=(seeds, 4))
            values[method] = share**0.5 * of_seed + (1 - share) ** 0.5 * own
        low, high = across_grids(values)
        missed += not low <= 0.0 <= high
    # 5 % and three standard deviations; 2 seeds on one side make Welch's interval a little short.
    assert missed / times <= 0.05 + 3 * (0.05 * 0.95 / times) ** 0.5


def test_average_over_grids_takes_fewest_seeds() -> None:
    samples = [Sample(90.0, 0.2, 5), Sample(92.0, 0.6, 3)]
    assert average_over_grids(samples) == Sample(91.0, pytest.approx(0.4), 3)


@pytest.mark.parametrize("shift", [0.0, 0.5, -0.5, 3.0, -3.0])
@pytest.mark.parametrize("seeds", [3, 5])
def test_p_value_zero_std_decides(shift: float, seeds: int) -> None:
    """Without variance, the p-value is 1 for equal means and 0 for others."""
    ours, theirs = Sample(90.0 + shift, 0.0, seeds), Sample(90.0, 0.0, 5)
    assert p_value(ours, theirs) == float(shift == 0)
    far = "better" if shift > 0 else "worse"
    expected = "consistent" if abs(shift) < 1.3 else far
    assert judge([Comparison(ours, theirs, 1.3, higher_is_better=True)]) == [expected]


def apart(shift: float, std: float = 1.0) -> tuple[Sample, Sample]:
    """Two samples of five seeds."""
    return Sample(90.0 + shift, std, 5), Sample(90.0, std, 5)


@pytest.mark.parametrize("shift", [0.0, 0.3, -0.3, 1.7, -1.7, 4.0])
@pytest.mark.parametrize(("std", "seeds"), [(1.0, 5), (0.2, 3), (2.5, 12)])
def test_p_value_matches_scipy_welch(shift: float, std: float, seeds: int) -> None:
    from scipy.stats import ttest_ind_from_stats

    ours, theirs = Sample(90.0 + shift, std, seeds), Sample(90.0, 0.7, 5)
    test = ttest_ind_from_stats(ours.mean, std, seeds, 90.0, 0.7, 5, equal_var=False)
    assert p_value(ours, theirs) == pytest.approx(test.pvalue)


@pytest.mark.parametrize("chance", [0.02, 0.049, 0.051, 0.055, 0.08, 0.2])
@pytest.mark.parametrize("alike", [1, 7])
def test_judge_better_below_five_percent(chance: float, alike: int) -> None:
    """A value is better below a p-value of 5 %, alone or among equal comparisons."""
    from scipy.stats import t

    shift = t.isf(chance / 2, 8) * math.sqrt(2 / 5)
    comparison = Comparison(*apart(shift), 0.01, higher_is_better=True)
    expected = "better" if chance < 0.05 else "undecided"
    assert judge([comparison] * alike) == [expected] * alike


@pytest.mark.parametrize("std", [0.01, 0.3, 1.0])
def test_judge_opposite_shifts_equally_consistent(std: float) -> None:
    for shift in np.linspace(0.0, 2.6, 53):
        both = [
            judge([Comparison(*apart(sign * shift, std), 1.3, higher_is_better=True)])[0]
            for sign in (1, -1)
        ]
        assert (both[0] == "consistent") == (both[1] == "consistent"), shift
