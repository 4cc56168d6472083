"""Noisy votes: what is released is in the ledger and within the plan, and noise is fresh."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.errors import OsoError
from oso_dp.pate import aggregate
from oso_dp.privacy.rng_sources import Seeded
from oso_dp.privacy.votes import ARGMAX, THRESHOLD, NoisyVotes, VotePlan

CONFIDENT = {"threshold": 60.0, "selection_noise": 15.0, "answer_noise": 6.0}


def agreeing(queries: int = 200, teachers: int = 100, classes: int = 5) -> np.ndarray:
    rng = np.random.default_rng(0)
    share = rng.uniform(0.2, 1.0, queries)
    votes = np.zeros((queries, classes), dtype=np.int64)
    for row, of_first in zip(votes, share, strict=True):
        rest = (1 - of_first) / (classes - 1)
        row[:] = rng.multinomial(teachers, [of_first, *[rest] * (classes - 1)])
    return votes


def test_epsilon_is_that_of_the_plan_whatever_was_answered() -> None:
    votes = agreeing()
    result = aggregate(votes, delta=1e-5, answers=50, **CONFIDENT)
    plan = VotePlan(200, 50, 6.0, 60.0, 15.0)
    assert result.epsilon == compute_epsilon([plan.ledger], 1e-5)
    # A comparison moves by one vote, the counts by two.
    nus = [queries[0].noise_multiplier for queries, _ in plan.ledger.steps]
    assert nus == [15.0, pytest.approx(6.0 / math.sqrt(2))]
    assert (result.labels >= 0).sum() == 50
    released = {queries[0].name: count for queries, count in result.ledger.steps}
    assert released == {THRESHOLD: 200, ARGMAX: 50}
    few = aggregate(votes[:, ::-1], delta=1e-5, answers=50, **CONFIDENT | {"threshold": 1e6})
    assert few.epsilon == result.epsilon
    assert (few.labels == -1).all()


def test_every_query_is_answered_without_a_threshold() -> None:
    votes = agreeing()
    result = aggregate(votes, delta=1e-5, answer_noise=1.0)
    assert (result.labels >= 0).all()
    assert (result.labels == votes.argmax(axis=1)).mean() > 0.9
    assert "labels of 200 of 200 queries" in result.statement


def test_confident_answers_are_right_more_often() -> None:
    votes = agreeing(2000)
    truth = np.zeros(2000)
    all_of_them = aggregate(votes, delta=1e-5, answer_noise=20.0).labels
    confident = aggregate(votes, delta=1e-5, **CONFIDENT | {"answer_noise": 20.0}).labels
    answered = confident >= 0
    assert 200 < answered.sum() < 1800
    right = (all_of_them == truth).mean(), (confident[answered] == 0).mean()
    assert right[1] > right[0] + 0.05


def test_the_comparison_is_noisy() -> None:
    """At the threshold half are answered, and a deviation below it a sixth."""
    for largest, share in ((60, 0.5), (45, 0.159)):
        votes = np.tile([[largest, 100 - largest]] if largest > 50 else [[45, 40, 15]], (4000, 1))
        answered = aggregate(votes, delta=1e-5, **CONFIDENT).labels >= 0
        assert answered.mean() == pytest.approx(share, abs=0.04)


def test_the_data_dependent_epsilon_is_shown_for_public_data_only() -> None:
    votes = np.tile([[250, 0, 0]], (100, 1))
    options = {"delta": 1e-5, "answer_noise": 40.0}
    assert aggregate(votes, **options).data_dependent_epsilon is None
    result = aggregate(votes, **options, public=True)
    assert result.data_dependent_epsilon < result.epsilon / 2
    assert str(result.data_dependent_epsilon)[:5] not in result.statement


@settings(max_examples=50)
@given(st.integers(1, 30), st.integers(1, 30), st.booleans())
def test_the_ledger_never_exceeds_the_plan(queries, answers, has_threshold) -> None:
    answers = min(answers, queries) if has_threshold else queries
    limits = (5.0, 3.0) if has_threshold else (None, None)
    plan = VotePlan(queries, answers, 2.0, *limits)
    voting = NoisyVotes(10, plan, Seeded(), "a")
    planned = {query[0].name: count for query, count in plan.ledger.steps}
    for _ in range(queries):
        voting.answer(np.array([7, 3]))
        for query, count in voting.ledger.steps:
            assert count <= planned[query[0].name]
    with pytest.raises(ValueError, match="were asked, as planned"):
        voting.answer(np.array([7, 3]))


def test_noise_is_normal_and_fresh_for_each_query_and_run() -> None:
    plan = VotePlan(3000, 3000, 2.0, 0.0, 5.0)
    seen: dict[str, list[float]] = {THRESHOLD: [], ARGMAX: []}

    class Watched(NoisyVotes):
        def _with_noise(self, name, values, deviation):
            noisy = super()._with_noise(name, values, deviation)
            seen[name] += ((noisy - values) / deviation).tolist()
            return noisy

    for run in ("a", "b"):
        voting = Watched(10, plan, Seeded(), run)
        for _ in range(plan.queries):
            voting.answer(np.array([9, 1]))
    numbers = [*seen[THRESHOLD], *seen[ARGMAX]]
    assert len({round(one, 9) for one in numbers}) == len(numbers)
    for name, values in seen.items():
        assert kstest(values, "norm").pvalue > 1e-3, name


def test_seeded_labels_repeat_and_system_labels_do_not() -> None:
    votes = np.tile([[34, 33, 33]], (200, 1))
    options = {"delta": 1e-5, "answer_noise": 30.0}
    seeded = [aggregate(votes, **options, randomness="seeded", seed=seed) for seed in (1, 1, 2)]
    assert np.array_equal(seeded[0].labels, seeded[1].labels)
    assert not np.array_equal(seeded[0].labels, seeded[2].labels)
    system = [aggregate(votes, **options).labels for _ in range(2)]
    assert not np.array_equal(*system)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"votes": [[0.3, 0.7]]}, "must be whole numbers >= 0: counts of teachers, no prob"),
        ({"votes": [[5, 5], [5, 4]]}, "rows have different sums"),
        ({"votes": np.zeros((0, 3))}, "no queries; must be at least one"),
        ({"votes": [[1, 0]]}, "of 1 teachers; must be of at least two"),
        ({"delta": 1.0}, "delta: 1; must be > 0 and < 1"),
        ({"answer_noise": 0.0}, "answer_noise: 0.0; must be a number > 0"),
        ({"answer_noise": math.nan}, "answer_noise: nan; must be a number > 0"),
        ({"threshold": 3.0}, "threshold, selection_noise: must both be given, or neither"),
        ({"answers": 1}, "answers: 1; must be queries, 2, without a threshold"),
        ({"answers": 3, "threshold": 1.0, "selection_noise": 1.0}, "answers: 3; must be <= qu"),
        ({"answers": 1.5, "threshold": 1.0, "selection_noise": 1.0}, "answers: 1.5; must be an"),
        ({"threshold": math.inf, "selection_noise": 1.0}, "threshold: inf; must be a finite"),
        ({"seed": 3}, "seed: must be set if and only if randomness='seeded'"),
        ({"randomness": "none"}, "randomness: 'none'; must be one of"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message) -> None:
    options = {"votes": [[6, 4], [5, 5]], "delta": 1e-5, "answer_noise": 2.0} | changes
    with pytest.raises(OsoError, match=message) as error:
        aggregate(options.pop("votes"), **options)
    assert "\n" not in str(error.value)


def test_votes_of_other_teachers_are_refused() -> None:
    voting = NoisyVotes(10, VotePlan(2, 2, 1.0), Seeded(), "a")
    with pytest.raises(OsoError, match="must be counts >= 0 that add up to 10 teachers"):
        voting.answer(np.array([6, 5]))
    assert voting.ledger.steps == []
