"""What one budget gives: how many runs a way is paid for, and what few seeds say of it."""

import pytest
from tests.analysis.test_linear_scaling import NOISE
from tests.analysis.test_linear_scaling import fill as scaled
from tests.analysis.test_one_budget import ALONE, RHO, default, of

from oso_dp.analysis.one_budget import ways


@pytest.mark.parametrize("trials", [2, 3])
def test_every_trial_is_paid_for(trials, store, study) -> None:
    """Of four runs each, and one final run."""
    default(store, [0.90, 0.91, 0.92])
    noise = {f"trial {place + 1}": 900.0 - 200 * place for place in range(trials)}
    noise |= {"final": NOISE["final"]}
    scaled(store, [0.1] * trials, noise=noise)
    row = of(ways(study(store)), "linear_scaling", "online")
    assert row["runs"] == trials * 4 + 1


@pytest.mark.parametrize("halves", [(0.70, 0.74), (0.70, 0.74, 0.78)])
def test_a_deviation_is_over_one_less_than_the_seeds(halves, store, study) -> None:
    for seed, half in enumerate(halves):
        known = {"learning_rate": RHO, "threshold": 1.0, "seed": seed, "halves": ((half, half),)}
        store.add(method="auto_s", k=1, values=(half,), **ALONE, **known)
    row = of(ways(study(store)), "default")
    deviation = 4.0 if len(halves) == 3 else 4.0 / 2**0.5
    assert (row["std"], row["cross_std"]) == (pytest.approx(deviation), pytest.approx(deviation))


@pytest.mark.parametrize("k", [4, 9])
def test_a_trials_grid_has_as_many_runs_as_its_rows_say(k, store, study) -> None:
    """Of eight points here, whatever the paper's grid of this k has."""
    default(store, [0.90, 0.91, 0.92])
    more = {"axis": [0.3, 3.0], "method": "fixed_threshold", "k": k}
    scaled(store, [(0.1, 0.3), (0.1, 3.0)], **more)
    row = of(ways(study(store)), "linear_scaling", "fixed_threshold")
    assert row["runs"] == 2 * 8 + 1
