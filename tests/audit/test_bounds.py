"""The statistics: scores that see faults, and bounds that guesses in the dark leave at zero."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

from oso_dp.audit import bounds
from oso_dp.audit.bounds import many_runs_bound, one_run_bounds
from oso_dp.audit.scores import Score, scores
from oso_dp.errors import OsoError

DELTA = 1e-5
SHIFT = 0.5  # of a Gaussian mechanism; its epsilon at DELTA is 1.99


def normal(seed: int, shift: float, count: int, cuts: tuple[float, ...] = (1.0,)) -> Score:
    return Score("made up", np.random.default_rng(seed).normal(shift, 1, count), cuts)


@pytest.mark.usefixtures("library")
def test_bounds_separated_scores_exceed_three() -> None:
    inside, outside = [normal(1, 20, 2000, (10.0,))], [normal(2, 0, 2000, (10.0,))]
    plain, gaussian = one_run_bounds(inside, outside, DELTA)
    assert 3.3 < plain < gaussian
    assert many_runs_bound(inside, outside, DELTA) > 6


@pytest.mark.usefixtures("library")
def test_bounds_equal_scores_stay_small() -> None:
    """At 95 % confidence, at most 3 of 20 bounds exceed zero; constant scores give zero."""
    bounds = np.array(
        [
            [
                *one_run_bounds([normal(i, 0, 2000)], [normal(1000 + i, 0, 2000)], DELTA),
                many_runs_bound([normal(i, 0, 500)], [normal(1000 + i, 0, 500)], DELTA),
            ]
            for i in range(20)
        ]
    )
    assert ((bounds > 0).sum(axis=0) <= 3).all()
    assert bounds.max() < 0.5
    flat = [Score("flat", np.ones(500), (1.0,))]
    assert one_run_bounds(flat, flat, DELTA) == (0, 0)
    assert many_runs_bound(flat, flat, DELTA) == 0


@pytest.mark.usefixtures("library")
def test_bounds_gaussian_scores_stay_below_epsilon() -> None:
    """A Gaussian mechanism of epsilon 1.99 is audited 20 times by its likelihood ratio."""
    bounds = np.array(
        [
            [
                *one_run_bounds([normal(i, SHIFT, 2000)], [normal(1000 + i, 0, 2000)], DELTA),
                many_runs_bound([normal(i, SHIFT, 2000)], [normal(1000 + i, 0, 2000)], DELTA),
            ]
            for i in range(20)
        ]
    )
    assert (bounds < 1.99).all()
    assert (bounds.mean(axis=0) > 0.4).all()


def test_bounds_without_jax_privacy_raises(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "jax_privacy", None)
    monkeypatch.setitem(sys.modules, "jax_privacy.auditing", None)
    with pytest.raises(OsoError, match=r'needs the extra "audit": pip install "oso-dp\[audit\]"'):
        one_run_bounds([normal(1, 0, 9)], [normal(2, 0, 9)], DELTA)


def test_bounds_cut_ignores_presence(monkeypatch) -> None:
    cuts: list[float] = []

    class Auditor:
        def __init__(self, present: np.ndarray, absent: np.ndarray) -> None:
            pass

        def epsilon_one_run(self, share: float, delta: float, threshold_strategy: float) -> float:
            cuts.append(threshold_strategy)
            return 0.0

        epsilon_one_run_fdp = epsilon_one_run

    library = SimpleNamespace(Explicit=float, CanaryScoreAuditor=Auditor)
    monkeypatch.setattr(bounds, "auditing", lambda: library)
    few, many = [normal(1, 2, 100)], [normal(2, 0, 900)]
    one_run_bounds(few, many, DELTA)
    one_run_bounds(many, few, DELTA)
    assert len(set(cuts)) == 1
    every = np.concatenate([few[0].values, many[0].values])
    assert (every >= cuts[0]).sum() == 30


@pytest.mark.parametrize("cuts", [(1.0,), (0.5, 1.5), (0.0, 1.0, 2.0)])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_bounds_significance_split_across_cuts(cuts, count, monkeypatch) -> None:
    shares: dict[str, list[float]] = {"plain": [], "gaussian": [], "many runs": []}

    class Auditor:
        def __init__(self, present: np.ndarray, absent: np.ndarray) -> None:
            pass

        def epsilon_one_run(self, share: float, delta: float, **how: float) -> float:
            shares["plain"].append(share)
            return 0.0

        def epsilon_one_run_fdp(self, share: float, delta: float, **how: float) -> float:
            shares["gaussian"].append(share)
            return 0.0

        def epsilon_clopper_pearson(self, share: float, delta: float, **how: float) -> float:
            shares["many runs"].append(share)
            return 0.0

    library = SimpleNamespace(Explicit=float, CanaryScoreAuditor=Auditor)
    monkeypatch.setattr(bounds, "auditing", lambda: library)
    inside, outside = ([normal(seed, 0, 50, cuts)] * count for seed in (1, 2))
    one_run_bounds(inside, outside, DELTA)
    many_runs_bound(inside, outside, DELTA)
    assert {name: sum(each) for name, each in shares.items()} == pytest.approx(
        dict.fromkeys(shares, 0.05)
    )


RATE = 0.25
TWO = {"gradient": 1.5, "direction": 4.0}


def found(seen: dict[str, np.ndarray], noise: dict[str, float]) -> dict[str, Score]:
    return {score.name: score for score in scores(seen, noise, RATE)}


def test_scores_likelihood_matches_sampled_gaussian() -> None:
    rng = np.random.default_rng(0)
    seen = {name: rng.normal(0.5, nu, (3, 50)) for name, nu in TWO.items()}
    absent = np.prod([norm.pdf(x, 0, TWO[name]) for name, x in seen.items()], axis=0)
    in_batch = np.prod([norm.pdf(x, 1, TWO[name]) for name, x in seen.items()], axis=0)
    expected = np.log((1 - RATE) * absent + RATE * in_batch) - np.log(absent)
    np.testing.assert_allclose(found(seen, TWO)["likelihood"].values, expected.sum(axis=0))


def test_scores_likelihood_outliers_stay_finite() -> None:
    far = {"gradient": np.array([[1e5, -1e5, 0.0]])}
    assert np.isfinite(found(far, {"gradient": 0.5})["likelihood"].values).all()


@pytest.mark.parametrize("fault", ["gradient", "direction", "between steps", "between queries"])
def test_scores_noise_faults_separate_canaries(fault: str) -> None:
    rng = np.random.default_rng(0)
    steps, canaries = 6, 400
    noise = {name: rng.normal(0, 1, (steps, canaries)) for name in TWO}
    if fault in TWO:
        noise[fault][:] = 0
    elif fault == "between steps":
        noise["gradient"][:] = noise["gradient"][0]
    else:
        noise["direction"] = noise["gradient"]
    for present in (True, False):
        batches = rng.random((steps, canaries)) < RATE * present
        seen = {name: batches + nu * noise[name] for name, nu in TWO.items()}
        score = found(seen, TWO)[fault]
        above = score.values >= score.cuts[0]
        taken = batches.any(axis=0)
        assert (above == taken).all()
