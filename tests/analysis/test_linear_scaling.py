"""The linear scaling rule: which final run its line comes to, and what that gives."""

import math

import numpy as np
import pytest

from oso_dp.accounting.search import Search
from oso_dp.analysis.linear_scaling import extrapolate, list_searches, nearest, outcomes
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.reporting.figures import every_figure
from oso_dp.reporting.tables.budget_strategies import linear_scaling_table

RHO = [10.0**exponent for exponent in (-2, -1, 0, 1)]
NOISE = {"trial 1": 900.0, "trial 2": 500.0, "final": 30.0}


def own(part, noise=NOISE):
    """Epsilon of one run of this part: 600 steps over everybody."""
    return Search(PoissonSampling(1.0), 600, 1).epsilon(noise[part], 1e-5)


def fill(store, best, seed=0, noise=NOISE, leave_out=(), axis=None, **more):
    """A search of this seed: in each trial the rate `best[i]` is best, a final run has its rate's
    place in the grid, by a tenth: 0.1, 0.2, 0.3, 0.4."""
    parts = [*(part for part in noise if part != "final"), "final"]
    shares = [0.1, 0.2, 0.3][: len(parts) - 1]
    for part in parts:
        for place, rho in enumerate(RHO):
            for other in axis or [None]:
                value = 0.1 * (place + 1)
                if part != "final":
                    wanted = best[parts.index(part)]
                    at = wanted if isinstance(wanted, tuple) else (wanted, None)
                    value = 0.9 if (rho, other) == at else 0.5
                if (part, rho) in leave_out or part in leave_out:
                    continue
                size = len(RHO) * len(axis or [None])
                said = {
                    "stage": part,
                    "trial_fractions": ", ".join(map(str, shares)),
                    "grid_runs": size,
                }
                said |= more.get("variant", {})
                known = {
                    "search_accounting": "linear_scaling",
                    "k": 4,
                    "seed": seed,
                    "learning_rate": rho,
                    "noise_multiplier": noise[part],
                    **said,
                    "values": (value,),
                    **({} if other is None else {"threshold": other}),
                    **{name: more[name] for name in more if name != "variant"},
                }
                store.add(**known)
    return store


def test_list_searches_extrapolates_final_rate(store, study):
    """The final rate is on the line through the trials' (epsilon, rate), at the final epsilon."""
    (row,) = list_searches(study(fill(store, [0.01, 0.1]))).to_dict("records")
    e1, e2, at = (own(part) for part in NOISE)
    assert e1 < e2 < at
    slope = (0.1 * 600 - 0.01 * 600) / (e2 - e1)
    expected = (0.01 * 600 + slope * (at - e1)) / 600
    assert row["extrapolated"] == pytest.approx(expected)
    assert 10**0.5 < expected < 5  # nearest to 10 in the logarithm, in the numbers to 1
    assert row["learning_rate"] == 10.0
    assert row["value"] == pytest.approx(40)
    assert row["noise_multiplier"] == 30
    assert (row["trial_fractions"], row["lacks"], row["beyond"]) == ("0.1, 0.2", "", False)
    assert row["trial_learning_rates"] == "0.01, 0.1"
    assert row["trial_epsilons"] == f"{e1:.6g}, {e2:.6g}"
    assert row["final_epsilon"] == pytest.approx(at)


@pytest.mark.parametrize(
    ("best", "taken", "beyond"),
    [
        ([0.1, 0.1], 0.1, False),  # level
        ([10.0, 10.0], 10.0, False),  # on the edge is not beyond it
        ([0.1, 1.0], 10.0, True),  # steep
        ([1.0, 0.1], 0.01, True),  # falling, to below zero
        ([0.1, 0.01], 0.01, True),
    ],
)
def test_list_searches_clamps_to_grid(store, study, best, taken, beyond):
    (row,) = list_searches(study(fill(store, best))).to_dict("records")
    assert (row["learning_rate"], row["beyond"]) == (taken, beyond)


def test_nearest_compares_logarithms():
    assert nearest(0.0316, RHO) == 0.01
    assert nearest(0.0317, RHO) == 0.1
    assert nearest(0.05, RHO) == 0.1  # in the numbers themselves 0.01 is nearer
    assert nearest(0.2, RHO) == 0.1
    assert nearest(4.0, RHO) == 10.0  # in the numbers themselves 1 is nearer
    assert [nearest(rho, RHO) for rho in (-3.0, 0.0, 1e-9, 1e9)] == [0.01, 0.01, 0.01, 10.0]


def test_extrapolate_fits_least_squares(store, study):
    rng = np.random.default_rng(0)
    for _ in range(20):
        epsilons, radii = np.sort(rng.random(4)), rng.random(4)
        slope, level = np.polyfit(epsilons, radii, 1)
        assert extrapolate(epsilons, radii, 5.0) == pytest.approx(slope * 5 + level)
    assert extrapolate([1.0, 1.0], [2.0, 4.0], 9.0) == 3.0
    noise = {"trial 1": 900.0, "trial 2": 700.0, "trial 3": 500.0, "final": 30.0}
    (row,) = list_searches(study(fill(store, [0.01, 0.1, 0.1], noise=noise))).to_dict("records")
    at = [own(part, noise) for part in noise]
    expected = np.polyval(np.polyfit(at[:3], [0.01, 0.1, 0.1], 1), at[3])
    assert row["extrapolated"] == pytest.approx(expected)


def test_outcomes_counts_searches_beyond_grid(store, study):
    """Searches whose rate leaves the grid are counted, also where the final run diverged."""
    fill(store, [0.1, 1.0], seed=0)
    fill(store, [0.1, 1.0], seed=1, leave_out=[("final", 10.0)])
    said = {"stage": "final", "trial_fractions": "0.1, 0.2", "grid_runs": 4}
    store.add(
        learning_rate=10.0, **said, values=(), diverged_at=3,
        search_accounting="linear_scaling", k=4, noise_multiplier=30.0, seed=1,
    )  # fmt: skip
    fill(store, [0.1, 0.1], seed=2)
    one = study(store)
    (row,) = outcomes(one).to_dict("records")
    assert (row["seeds"], row["finals"], row["searches"], row["beyond"]) == (2, 3, 3, 2)
    assert "2 of 3" in set(linear_scaling_table(one).printed.iloc[0])


def test_list_searches_separates_seeds(store, study):
    fill(store, [0.1, 0.1], seed=0)
    fill(store, [1.0, 1.0], seed=1)
    fill(store, [1.0, 1.0], seed=2)
    one = study(store)
    assert list_searches(one)["learning_rate"].tolist() == [0.1, 1.0, 1.0]
    (row,) = outcomes(one).to_dict("records")
    assert row["mean"] == pytest.approx(np.mean([20, 30, 30]))
    assert row["std"] == pytest.approx(np.std([20, 30, 30], ddof=1))
    assert (row["seeds"], row["searches"], row["beyond"]) == (3, 3, 0)
    assert row["learning_rates"] == "0.1 (1), 1 (2)"


def test_list_searches_takes_last_trial_threshold(store, study):
    axis = [0.3, 3.0]
    fill(store, [(0.1, 0.3), (0.1, 3.0)], axis=axis, method="fixed_threshold")
    (row,) = list_searches(study(store)).to_dict("records")
    assert (row["learning_rate"], row["threshold"]) == (0.1, 3.0)


def test_list_searches_missing_momentum_kept(store, study):
    (row,) = list_searches(study(fill(store, [0.1, 0.1], momentum=None))).to_dict("records")
    assert (row["learning_rate"], row["lacks"]) == (0.1, "")


def test_list_searches_mse_prefers_lowest(store, study):
    fill(store, [0.1, 0.1], dataset="fashion_mnist", metric="mse")
    (row,) = list_searches(study(store)).to_dict("records")
    assert row["learning_rate"] == 0.01  # all others have 0.5 there: the first of them


MISSING = {
    "trial 1": ["trial 1"],
    "a point of trial 2": [("trial 2", 10.0)],
    "final": ["final"],
    "the final run": [("final", 0.1)],
}


@pytest.mark.parametrize("case", MISSING)
def test_list_searches_missing_rows_give_nan(store, study, case):
    fill(store, [0.1, 0.1], leave_out=MISSING[case])
    (row,) = list_searches(study(store)).to_dict("records")
    part = MISSING[case][0]
    assert row["lacks"] == (part if isinstance(part, str) else part[0])
    assert math.isnan(row["value"])
    (cell,) = outcomes(study(store)).to_dict("records")
    assert (cell["seeds"], cell["searches"]) == (0, 1)
    assert math.isnan(cell["mean"])
    shown = linear_scaling_table(study(store)).printed.to_numpy()[0].tolist()
    assert shown[:4] == ["MNIST", "4", "9", "Online"]
    assert set(shown[4:]) == {"–"}


def test_list_searches_unused_final_runs_optional(store, study):
    fill(store, [0.1, 0.1], leave_out=[("final", 10.0)])
    (row,) = list_searches(study(store)).to_dict("records")
    assert (row["lacks"], row["value"]) == ("", pytest.approx(20))


def test_list_searches_diverged_trial_reported_lacking(store, study):
    fill(store, [0.1, 0.1], leave_out=["trial 2"])
    for rho in RHO:
        said = {"stage": "trial 2", "trial_fractions": "0.1, 0.2", "grid_runs": 4}
        known = {"search_accounting": "linear_scaling", "k": 4, "noise_multiplier": 500.0}
        store.add(learning_rate=rho, values=(), diverged_at=3, **known, **said)
    (row,) = list_searches(study(store)).to_dict("records")
    assert row["lacks"] == "trial 2"


def searched_and_guessed(store):
    for place, rho in enumerate(RHO):
        known = {"k": 4, "learning_rate": rho}
        store.add(values=(0.6 + 0.05 * place,), noise_multiplier=800.0, **known)
        store.add(
            values=(0.7 + 0.05 * place,),
            noise_multiplier=110.0,
            search_accounting="single",
            **known,
        )
    return store


def test_outcomes_includes_search_and_guess(store, study):
    fill(searched_and_guessed(store), [0.1, 0.1])
    (row,) = outcomes(study(store)).to_dict("records")
    assert (row["own_mean"], row["guess_mean"]) == (pytest.approx(75), pytest.approx(85))
    shown = linear_scaling_table(study(store)).printed.to_numpy()[0].tolist()
    assert shown[4:] == [
        *("30.000", "0.1 (1)", "0 of 1", "20.00"),
        *("800.000", "75.00", "110.000", "85.00"),
    ]


def test_result_set_excludes_linear_scaling(store, study):
    """Runs of linear scaling are missing from the points and figures of composition."""
    fill(searched_and_guessed(store), [0.1, 0.1])
    plain, both = study(searched_and_guessed(type(store)())), study(store)
    for name in ("best", "last", "points"):
        assert getattr(both, name)["mean"].tolist() == getattr(plain, name)["mean"].tolist()
    assert (both.main_runs["search_accounting"] == "composition").all()
    drawn = {plan.name: plan for plan in every_figure(both)}
    assert set(drawn["metric_over_noise_mnist"].data["search_accounting"]) == {"composition"}


def test_outcomes_separates_variants(store, study):
    fill(store, [0.1, 0.1])
    fill(store, [1.0, 1.0], variant={"schedule": "linear"})
    rows = outcomes(study(store)).set_index("variant")
    assert rows["learning_rates"].to_dict() == {"": "0.1 (1)", "rate falling": "1 (1)"}


def test_outcomes_prefers_default_momentum(store, study):
    fill(store, [1.0, 1.0], momentum=0.5)
    fill(store, [0.1, 0.1])
    (row,) = outcomes(study(store)).to_dict("records")
    assert row["learning_rates"] == "0.1 (1)"


@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_list_searches_epsilons_use_delta(store, study, delta):
    (row,) = list_searches(study(fill(store, [0.01, 0.1], delta=delta))).to_dict("records")
    expected = [Search(PoissonSampling(1.0), 600, 1).epsilon(nu, delta) for nu in NOISE.values()]
    assert row["final_epsilon"] == pytest.approx(expected[-1])
    assert row["trial_epsilons"] == ", ".join(f"{epsilon:.6g}" for epsilon in expected[:-1])


@pytest.mark.parametrize("least", [0, 1])
def test_outcomes_reports_least_final_noise(store, study, least):
    for seed in range(2):
        noise = NOISE | {"final": 25.0 if seed == least else 30.0}
        fill(store, [0.1, 0.1], seed=seed, noise=noise)
    (row,) = outcomes(study(store)).to_dict("records")
    assert (row["finals"], row["noise_multiplier"]) == (2, 25.0)


@pytest.mark.parametrize(
    "other",
    [{"precision": "bfloat16"}, {"epochs": 3}, {"delta": 1e-6}, {"batch_size": 30_000}],
    ids=lambda other: next(iter(other)),
)
def test_list_searches_incomparable_final_runs_ignored(other, store, study):
    fill(store, [0.1, 0.1], leave_out=["final"])
    fill(store, [0.1, 0.1], leave_out=["trial 1", "trial 2"], **other)
    assert list_searches(study(store))["lacks"].tolist() == ["final"]
