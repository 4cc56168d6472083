"""Scores: the likelihood ratio is one; the others see what they are there for."""

import numpy as np
import pytest
from scipy.stats import norm

from oso_dp.audit.scores import Score, scores

RATE = 0.25
TWO = {"gradient": 1.5, "direction": 4.0}


def found(seen: dict[str, np.ndarray], noise: dict[str, float]) -> dict[str, Score]:
    return {score.name: score for score in scores(seen, noise, RATE)}


def test_the_likelihood_is_that_of_the_sampled_gaussian() -> None:
    rng = np.random.default_rng(0)
    seen = {name: rng.normal(0.5, nu, (3, 50)) for name, nu in TWO.items()}
    absent = np.prod([norm.pdf(x, 0, TWO[name]) for name, x in seen.items()], axis=0)
    in_batch = np.prod([norm.pdf(x, 1, TWO[name]) for name, x in seen.items()], axis=0)
    expected = np.log((1 - RATE) * absent + RATE * in_batch) - np.log(absent)
    np.testing.assert_allclose(found(seen, TWO)["likelihood"].values, expected.sum(axis=0))


def test_the_likelihood_stays_finite_for_answers_far_out() -> None:
    far = {"gradient": np.array([[1e5, -1e5, 0.0]])}
    assert np.isfinite(found(far, {"gradient": 0.5})["likelihood"].values).all()


@pytest.mark.parametrize("fault", ["gradient", "direction", "between steps", "between queries"])
def test_each_fault_of_the_noise_has_a_score_that_separates(fault: str) -> None:
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
