"""What one budget gives: how many runs a way is paid for, and what few seeds say of it."""

import itertools

import pytest
from tests.analysis.test_budget_strategies import ALONE, RHO, SEARCH, default, of, searched
from tests.analysis.test_linear_scaling import NOISE
from tests.analysis.test_linear_scaling import fill as scaled

from oso_dp.analysis.budget_strategies import budget_strategies
from oso_dp.analysis.linear_scaling import nearest


@pytest.mark.parametrize("trials", [2, 3])
def test_budget_strategies_charges_all_trials(trials, store, study) -> None:
    """Linear scaling is charged for four runs of each trial and for one final run."""
    default(store, [0.90, 0.91, 0.92])
    noise = {f"trial {place + 1}": 900.0 - 200 * place for place in range(trials)}
    noise |= {"final": NOISE["final"]}
    scaled(store, [0.1] * trials, noise=noise)
    row = of(budget_strategies(study(store)), "linear_scaling", "online")
    assert row["runs"] == trials * 4 + 1


@pytest.mark.parametrize("halves", [(0.70, 0.74), (0.70, 0.74, 0.78)])
def test_budget_strategies_uses_sample_std(halves, store, study) -> None:
    for seed, half in enumerate(halves):
        known = {"learning_rate": RHO, "threshold": 1.0, "seed": seed, "halves": ((half, half),)}
        store.add(method="auto_s", k=1, values=(half,), **ALONE, **known)
    row = of(budget_strategies(study(store)), "default")
    deviation = 4.0 if len(halves) == 3 else 4.0 / 2**0.5
    assert (row["std"], row["cross_std"]) == (pytest.approx(deviation), pytest.approx(deviation))


@pytest.mark.parametrize("k", [4, 9])
def test_budget_strategies_takes_declared_trial_size(k, store, study) -> None:
    """A trial has the eight runs that its rows declare, whatever the paper's grid of this k."""
    default(store, [0.90, 0.91, 0.92])
    more = {"axis": [0.3, 3.0], "method": "fixed_threshold", "k": k}
    scaled(store, [(0.1, 0.3), (0.1, 3.0)], **more)
    row = of(budget_strategies(study(store)), "linear_scaling", "fixed_threshold")
    assert row["runs"] == 2 * 8 + 1


@pytest.mark.parametrize("turned", [1, -1])
@pytest.mark.parametrize("most", [0, 1, 2])
def test_budget_strategies_fractions_prefer_most_seeds(
    most: int, turned: int, store, study
) -> None:
    """Of several trial fractions, those with the most seeds count, in any row order."""
    default(store, [0.90, 0.91, 0.92])
    shares = ["0.05, 0.1", "0.1, 0.2", "0.1, 0.3"]
    for place in (0, 1, 2)[::turned]:
        for seed in range(3 if place == most else 1):
            scaled(store, [0.1, 0.1], seed=seed, variant={"trial_fractions": shares[place]})
    row = of(budget_strategies(study(store)), "linear_scaling", "online")
    assert (row["seeds"], row["trial_fractions"]) == (3, shares[most])


@pytest.mark.parametrize("order", list(itertools.permutations((0.1, 1.0, 10.0))))
def test_nearest_ignores_grid_order(order) -> None:
    """A rate beyond the grid maps to its nearest end, in any order of the grid's values."""
    asked = (-1.0, 0.02, 0.2, 0.9, 5.0, 300.0)
    assert [nearest(rho, order) for rho in asked] == [0.1, 0.1, 0.1, 1.0, 10.0, 10.0]


@pytest.mark.parametrize("epsilon", [3.0, 9.0])
def test_budget_strategies_requires_own_default(epsilon: float, store, study) -> None:
    """A data set has strategies only at budgets at which its own default was run."""
    other = 12.0 - epsilon
    for dataset, at in (("mnist", epsilon), ("glyphs", other)):
        default(store, [0.90, 0.91, 0.92], dataset=dataset, epsilon=at)
        for of_search in (3.0, 9.0):
            searched(store, SEARCH, dataset=dataset, epsilon=of_search)
    rows = budget_strategies(study(store))
    pairs = set(zip(rows["dataset"], rows["epsilon"], strict=True))
    assert pairs == {("mnist", epsilon), ("glyphs", other)}
    assert len(rows) == 4
