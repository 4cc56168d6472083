"""The linear scaling rule over seeds: what is counted, and what it stands beside."""

import math
import statistics

import pytest
from tests.analysis.test_linear_scaling import RHO, fill

from oso_dp.analysis.linear_scaling import list_searches, outcomes


@pytest.mark.parametrize("lacking", [0, 1, 2])
@pytest.mark.parametrize(("best", "rate"), [([0.1, 1.0], 10.0), ([1.0, 0.1], 0.01)])
def test_outcomes_missing_final_runs_uncounted(best, rate, lacking, store, study) -> None:
    """A search without its final run counts neither as final nor as beyond the grid."""
    for seed in range(3):
        fill(store, best, seed=seed, leave_out=[("final", rate)] if seed < lacking else [])
    one = study(store)
    assert list_searches(one)["beyond"].tolist() == [True] * 3
    (row,) = outcomes(one).to_dict("records")
    made = 3 - lacking
    assert (row["searches"], row["finals"], row["beyond"], row["seeds"]) == (3, made, made, made)
    assert row["learning_rates"] == f"{rate:g} ({made})"


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_outcomes_reports_own_and_guess_stats(seeds, store, study) -> None:
    """`own` is the best searched point and `guess` the best guess, each with its std and seeds."""
    fill(store, [0.1, 0.1])
    apart = {"composition": 0.01, "single": 0.02}
    for search_accounting, step in apart.items():
        for rho in RHO:
            for seed in range(seeds + (search_accounting == "single")):
                value = 0.7 + step * seed - 0.1 * (rho != 1.0)
                noise = {"composition": 800.0, "single": 110.0}[search_accounting]
                known = {"k": 4, "learning_rate": rho, "seed": seed, "noise_multiplier": noise}
                store.add(values=(value,), search_accounting=search_accounting, **known)
    (row,) = outcomes(study(store)).to_dict("records")
    for side, search_accounting, count in (
        ("own", "composition", seeds),
        ("guess", "single", seeds + 1),
    ):
        values = [70 + 100 * apart[search_accounting] * seed for seed in range(count)]
        assert row[f"{side}_mean"] == pytest.approx(statistics.mean(values))
        assert row[f"{side}_std"] == pytest.approx(statistics.stdev(values))
        assert row[f"{side}_seeds"] == count
    assert (row["own_noise_multiplier"], row["guess_noise_multiplier"]) == (800, 110)
    assert math.isnan(row["std"])  # one search


@pytest.mark.parametrize(
    "other",
    [
        {"precision": "bfloat16"},
        {"epochs": 3},
        {"delta": 1e-6},
        {"schedule": "linear"},
    ],
    ids=lambda other: next(iter(other)),
)
@pytest.mark.parametrize("side", ["own", "guess"])
def test_outcomes_incomparable_references_give_nan(other, side, store, study) -> None:
    """A reference of other precision, length, delta or schedule is NaN; the other one stays."""
    fill(store, [0.1, 0.1])
    for search_accounting, name in (("composition", "own"), ("single", "guess")):
        for place, rho in enumerate(RHO):
            known = {"k": 4, "learning_rate": rho, "noise_multiplier": 800.0}
            more = other if name == side else {}
            store.add(
                values=(0.6 + 0.05 * place,), search_accounting=search_accounting, **known, **more
            )
    (row,) = outcomes(study(store)).to_dict("records")
    for name in ("own", "guess"):
        said = [row[f"{name}_{what}"] for what in ("mean", "seeds", "noise_multiplier")]
        assert [math.isnan(value) for value in said] == [name == side] * 3
