"""Noisy votes: what is released is in the ledger and within the plan, and noise is fresh."""

import math
import sys
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.pate import calibrate_stable
from oso_dp.errors import OsoError
from oso_dp.pate import aggregate
from oso_dp.privacy.ledger import SumQuery
from oso_dp.privacy.rng_sources import SOURCES, Seeded
from oso_dp.privacy.votes import (
    ARGMAX,
    INSTABILITY,
    THRESHOLD,
    GaussianPlan,
    LaplacePlan,
    NoisyVotes,
    StablePlan,
    distance_to_instability,
)

CONFIDENT = {"threshold": 60.0, "selection_noise": 15.0, "answer_noise": 6.0}


def agreeing(queries: int = 200, teachers: int = 100, classes: int = 5) -> np.ndarray:
    rng = np.random.default_rng(0)
    share = rng.uniform(0.2, 1.0, queries)
    votes = np.zeros((queries, classes), dtype=np.int64)
    for row, of_first in zip(votes, share, strict=True):
        rest = (1 - of_first) / (classes - 1)
        row[:] = rng.multinomial(teachers, [of_first, *[rest] * (classes - 1)])
    return votes


def test_aggregate_epsilon_equals_plan() -> None:
    votes = agreeing()
    result = aggregate(votes, delta=1e-5, answers=50, **CONFIDENT)
    plan = GaussianPlan(200, 6.0, 50, 60.0, 15.0)
    assert result.epsilon == compute_epsilon([plan.ledger], 1e-5)
    # A comparison moves by one vote, the counts by two.
    nus = [queries[0].noise_multiplier for queries, _ in plan.ledger.steps]
    assert nus == [15.0, pytest.approx(6.0 / math.sqrt(2))]
    assert (result.labels >= 0).sum() == 50
    assert result.ledger == plan.ledger
    charged = {queries[0].name: count for queries, count in result.ledger.steps}
    assert charged == {THRESHOLD: 200, ARGMAX: 50}
    few = aggregate(votes[:, ::-1], delta=1e-5, answers=50, **CONFIDENT | {"threshold": 185.0})
    assert few.epsilon == result.epsilon
    assert (few.labels == -1).all()


def test_aggregate_without_threshold_answers_all() -> None:
    votes = agreeing()
    result = aggregate(votes, delta=1e-5, answer_noise=1.0)
    assert (result.labels >= 0).all()
    assert (result.labels == votes.argmax(axis=1)).mean() > 0.9
    assert "labels of 200 of 200 queries" in result.statement


def test_aggregate_confident_answers_more_accurate() -> None:
    votes = agreeing(2000)
    truth = np.zeros(2000)
    all_of_them = aggregate(votes, delta=1e-5, answer_noise=20.0).labels
    confident = aggregate(votes, delta=1e-5, **CONFIDENT | {"answer_noise": 20.0}).labels
    answered = confident >= 0
    assert 200 < answered.sum() < 1800
    right = (all_of_them == truth).mean(), (confident[answered] == 0).mean()
    assert right[1] > right[0] + 0.05


def test_aggregate_threshold_comparison_noisy() -> None:
    """At the threshold, half of the queries are answered; one deviation below, a sixth."""
    for largest, share in ((60, 0.5), (45, 0.159)):
        votes = np.tile([[largest, 100 - largest]] if largest > 50 else [[45, 40, 15]], (4000, 1))
        answered = aggregate(votes, delta=1e-5, **CONFIDENT).labels >= 0
        assert answered.mean() == pytest.approx(share, abs=0.04)


def test_aggregate_data_dependent_epsilon_public_only() -> None:
    votes = np.tile([[250, 0, 0]], (100, 1))
    options = {"delta": 1e-5, "answer_noise": 40.0}
    assert aggregate(votes, **options).data_dependent_epsilon is None
    result = aggregate(votes, **options, public=True)
    assert result.data_dependent_epsilon < result.epsilon / 2
    assert str(result.data_dependent_epsilon)[:5] not in result.statement


@pytest.mark.parametrize("plan", [GaussianPlan(30, 2.0, 4, 8.0, 3.0), LaplacePlan(30, 2.0)])
def test_noisy_votes_ledger_counts_answers(plan) -> None:
    voting = plan.start(10, Seeded(), "a")
    answered = sum(voting.answer(np.array([7, 3])) is not None for _ in range(30))
    assert answered == voting.answered
    recorded = {queries[0].name: count for queries, count in voting.ledger.steps}
    if isinstance(plan, LaplacePlan):
        assert voting.ledger == plan.ledger
    else:
        assert recorded == {THRESHOLD: 30, ARGMAX: answered}


@settings(max_examples=50)
@given(st.integers(1, 30), st.integers(1, 30), st.booleans())
def test_noisy_votes_ledger_within_plan(queries, answers, has_threshold) -> None:
    answers = min(answers, queries) if has_threshold else queries
    limits = (5.0, 3.0) if has_threshold else (None, None)
    plan = GaussianPlan(queries, 2.0, answers, *limits)
    voting = plan.start(10, Seeded(), "a")
    planned = {query[0].name: count for query, count in plan.ledger.steps}
    for _ in range(queries):
        voting.answer(np.array([7, 3]))
        for query, count in voting.ledger.steps:
            assert count <= planned[query[0].name]
    with pytest.raises(ValueError, match="were asked; must be <= the plan"):
        voting.answer(np.array([7, 3]))


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("row", [[9, 1], [10, 0]])
def test_noisy_votes_noise_matches_distribution(name, row, monkeypatch) -> None:
    """The noise of each aggregator over its scale has its distribution, also at unanimous votes."""
    seen: dict[str, list[float]] = {}

    def watched(kind, original):
        def draw(self, purpose, values, scale):
            drawn = original(self, purpose, values, scale)
            exact = values if kind == "norm" else 0.0
            seen.setdefault(f"{kind}/{purpose}/{scale}", []).extend((drawn - exact) / scale)
            return drawn

        return draw

    monkeypatch.setattr(NoisyVotes, "_normal", watched("norm", NoisyVotes._normal))
    monkeypatch.setattr(NoisyVotes, "_laplace", watched("laplace", NoisyVotes._laplace))
    plans = [
        GaussianPlan(1000, 2.0, None, 0.0, 5.0),
        LaplacePlan(1000, 3.0),
        StablePlan(1000, 1000, 1.0, 4.0),
    ]
    for run, plan in product(("a", "b"), plans):
        voting = plan.start(10, SOURCES[name](), run)
        for _ in range(plan.queries):
            voting.answer(np.array(row))
    assert set(seen) == {
        *("norm/vote_threshold/5.0", "norm/noisy_votes/2.0", "laplace/noisy_votes/3.0"),
        *("laplace/threshold/1.0", "laplace/instability/2.0"),
    }
    assert len(seen["laplace/instability/2.0"]) == len(seen["norm/vote_threshold/5.0"]) == 2000
    # A threshold serves until a query is found unstable.
    assert len(seen["laplace/threshold/1.0"]) < 1700
    numbers = [one for values in seen.values() for one in values]
    if name == "seeded":  # others are rounded to a grid
        assert len({round(one, 12) for one in numbers}) == len(numbers)
    for kind, values in seen.items():
        assert len(values) > 100  # as good as sure; thresholds are 720 on average
        assert kstest(values, kind.partition("/")[0]).pvalue > 1e-4, kind


@given(st.lists(st.integers(0, 30), min_size=2, max_size=5), st.data())
def test_distance_to_instability_keeps_winner(row, data) -> None:
    votes = np.array(row)
    distance = distance_to_instability(votes)
    classes = st.integers(0, len(row) - 1)
    changed = votes.copy()
    for change in range(distance + 1):
        if change and changed.argmax() != votes.argmax():
            raise AssertionError(f"{votes} -> {changed} after {change} of {distance}")
        if not changed.any():
            return
        old = data.draw(st.sampled_from([*changed.nonzero()[0]]))
        neighbour = changed.copy()
        neighbour[old] -= 1
        neighbour[data.draw(classes)] += 1
        # One vote moves it by 1 at most.
        assert abs(distance_to_instability(neighbour) - distance_to_instability(changed)) <= 1
        changed = neighbour


@pytest.mark.parametrize("gap", range(1, 9))
def test_distance_to_instability_is_largest(gap) -> None:
    """The distance is the largest number of votes that can move without changing the winner."""
    votes = np.array([10, 10 + gap])
    kept = [k for k in range(gap + 1) if (votes + np.array([k, -k])).argmax() == 1]
    assert distance_to_instability(votes) == max(kept) - (gap == 0)


def test_stable_plan_ends_after_unstable_queries() -> None:
    clear, tie = np.array([100, 0, 0]), np.array([34, 33, 33])
    plan = StablePlan(100, 2, 0.5, 10.0)
    voting = plan.start(100, Seeded(), "a")
    assert [voting.answer(clear) for _ in range(40)] == [0] * 40
    steps = lambda: {query[0].name: count for query, count in voting.ledger.steps}  # noqa: E731
    assert steps() == {INSTABILITY: 1}
    assert voting.answer(tie) is None
    assert steps() == {INSTABILITY: 1}  # the next search has not begun
    assert voting.answer(clear) == 0
    assert voting.answer(tie) is None
    assert steps() == {INSTABILITY: 2}
    assert [voting.answer(clear) for _ in range(20)] == [None] * 20
    assert steps() == {INSTABILITY: 2}
    assert voting.ledger.failure == pytest.approx(43 * plan.failure_of_one)
    assert voting.ledger.failure <= plan.ledger.failure
    assert plan.ledger.steps == [((SumQuery(INSTABILITY, 0.25, "pure"),), 2)]


@pytest.mark.parametrize("clear_before", [0, 30])
def test_stable_plan_ties_within_failure(clear_before) -> None:
    """The bound on answered ties also holds after many stable queries at one threshold."""
    plan = StablePlan(clear_before + 1, 3, 2.0, 8.0)
    answered, runs = 0, 20_000
    distant = np.array([60, 40])  # of distance 9: some exceed the threshold, others do not
    for run in range(runs if not clear_before else runs // 10):
        voting = plan.start(100, Seeded(), f"run {run}")
        for _ in range(clear_before):
            voting.answer(distant)
        answered += voting.answer(np.array([50, 50])) is not None
    share = answered / (runs if not clear_before else runs // 10)
    if not clear_before:  # of one threshold, of which the bound allows three
        assert share == pytest.approx(plan.failure_of_one / 3, rel=0.1)
    assert share <= plan.failure_of_one


@pytest.mark.parametrize(("epsilon", "unstable"), [(2.0, 1), (8.0, 1), (8.0, 5)])
def test_calibrate_stable_meets_epsilon(epsilon, unstable) -> None:
    plan = calibrate_stable(100, unstable, epsilon, 1e-5)
    assert compute_epsilon([plan.ledger], 1e-5) == pytest.approx(epsilon, rel=1e-6)
    assert compute_epsilon([plan.ledger], 1e-5) <= epsilon
    assert plan.ledger.failure * math.exp(epsilon) <= 1e-5 / 2


def test_calibrate_stable_margin_grows_with_unstable() -> None:
    margins = {
        (queries, unstable): calibrate_stable(queries, unstable, 8.0, 1e-5).margin
        for queries in (10, 1000)
        for unstable in (1, 5)
    }
    assert margins[1000, 1] < 1.5 * margins[10, 1]
    assert margins[10, 5] > 4 * margins[10, 1]


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({"answer_noise": 0.15}, 0.2),
        ({"threshold": 5, "selection_noise": 0.15, "answer_noise": 6.0}, 0.3),
        ({"aggregator": "laplace", "scale": 0.02}, 0.1),
        ({"aggregator": "stable", "epsilon": 200.0, "unstable": 1}, None),
    ],
)
def test_aggregate_bounded_noise_rejected(options, least) -> None:
    """The system's noise is bounded, so a small scale may reveal one of ten votes."""
    votes = np.array([[10, 0]])
    with pytest.raises(OsoError, match="noise is bounded"):
        aggregate(votes, delta=1e-5, **options)
    seeded = aggregate(votes, delta=1e-5, randomness="seeded", seed=1, **options)
    assert seeded.labels.shape == (1,)  # public data have nothing to hide
    if least is not None:
        name = next(name for name in options if name != "aggregator" and options[name] < 1)
        assert aggregate(votes, delta=1e-5, **options | {name: 3 * least}).labels.shape == (1,)


@pytest.mark.parametrize("unstable", [1, 3])
def test_aggregate_stable_epsilon_includes_failure(unstable) -> None:
    votes = np.tile([[1000, 0]], (50, 1))
    options = {"delta": 1e-5, "aggregator": "stable", "epsilon": 8.0, "unstable": unstable}
    result = aggregate(votes, **options)
    assert (result.labels == 0).mean() > 0.9
    assert result.epsilon == pytest.approx(8.0, rel=1e-6)
    assert result.epsilon == compute_epsilon([result.ledger], 1e-5)
    without = compute_epsilon([replace(result.ledger, failure=0.0)], 1e-5)
    assert without < result.epsilon


@pytest.mark.parametrize(
    "options",
    [
        {"answer_noise": 6.0},
        CONFIDENT,
        {"aggregator": "laplace", "scale": 6.0},
        {"aggregator": "stable", "epsilon": 12.0, "unstable": 1},
    ],
)
def test_aggregate_ledger_ignores_query_order(options) -> None:
    votes = agreeing()
    results = [aggregate(each, delta=1e-5, **options) for each in (votes, votes[::-1] * 1)]
    assert results[0].ledger == results[1].ledger
    assert results[0].epsilon == compute_epsilon([results[0].ledger], 1e-5)
    assert [one.data_dependent_epsilon for one in results] == [None, None]


@pytest.mark.parametrize(
    "options", [{"answer_noise": 30.0}, {"aggregator": "laplace", "scale": 20.0}]
)
def test_aggregate_system_noise_ignores_run_id(options, monkeypatch) -> None:
    module = sys.modules["oso_dp.pate.aggregate"]
    monkeypatch.setattr(module, "uuid4", lambda: SimpleNamespace(hex="same"))
    votes = np.tile([[34, 33, 33]], (200, 1))
    first, second = (aggregate(votes, delta=1e-5, **options).labels for _ in range(2))
    assert not np.array_equal(first, second)


def test_aggregate_laplace_noise_differs_by_scale() -> None:
    votes = np.tile([[34, 33, 33]], (200, 1))
    options = {"delta": 1e-5, "aggregator": "laplace", "randomness": "seeded", "seed": 1}
    first, second = (aggregate(votes, **options, scale=scale).labels for scale in (1e6, 2e6))
    assert (first == second).mean() < 0.6


def test_noisy_votes_laplace_reaches_53_bits(monkeypatch) -> None:
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(Seeded, "words", lambda self, *stream: lambda count: ends[:count])
    voting = LaplacePlan(1, 3.0).start(10, Seeded(), "a")
    assert voting._laplace(ARGMAX, 1, 3.0)[0] == pytest.approx(3 * 54 * math.log(2))


def test_aggregate_large_delta_stated() -> None:
    votes = agreeing()
    for delta, warned in ((1e-3, False), (0.02, True)):
        statement = aggregate(votes, delta=delta, answer_noise=20.0).statement
        said = "Delta is not below 1 / 100: publishing one of 100 parts of the data" in statement
        assert said == warned
        assert "\n\n" not in statement


def test_aggregate_laplace_accuracy_matches_noise() -> None:
    votes = np.tile([[60, 40]], (4000, 1))
    result = aggregate(votes, delta=1e-5, aggregator="laplace", scale=20.0)
    # P(the second of two wins) of two Laplace counts that are 20 apart.
    wrong = math.exp(-1) * (1 + 0.5) / 2
    assert (result.labels == 1).mean() == pytest.approx(wrong, abs=0.03)
    names = [query.name for queries, _ in result.ledger.steps for query in queries]
    assert names == ["noisy_votes_lost", "noisy_votes_gained"]
    assert {count for _, count in result.ledger.steps} == {4000}


def test_aggregate_only_seeded_labels_repeat() -> None:
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
        ({"answer_noise": math.nan}, "answer_noise: nan; must be a finite number > 0"),
        ({"threshold": 3.0}, "selection_noise: missing; aggregator 'confident' needs threshold"),
        ({"answers": 1}, "answers: not an option of aggregator 'gaussian', which has answer_noise"),
        ({"aggregator": "gnmax"}, "aggregator: 'gnmax'; must be one of gaussian, confident, lap"),
        ({"aggregator": "laplace"}, "scale: missing; aggregator 'laplace' needs scale"),
        ({"aggregator": "laplace", "scale": 1.0}, "answer_noise: not an option of aggregator"),
        (
            {"threshold": 17.0, "selection_noise": 1.0},
            "threshold: 17; must be <= 10 teachers \\+ 6",
        ),
        (
            {"aggregator": "stable", "epsilon": 1.0, "unstable": 2, "answer_noise": None},
            "unstable: 2; a query's winner would need a lead of .* votes of 10; use more teachers",
        ),
        (
            {"aggregator": "stable", "epsilon": 1.0, "unstable": 0, "answer_noise": None},
            "unstable: 0; must be an integer >= 1",
        ),
        ({"answers": 3, "threshold": 1.0, "selection_noise": 1.0}, "answers: 3; must be <= qu"),
        ({"answers": 1.5, "threshold": 1.0, "selection_noise": 1.0}, "answers: 1.5; must be an"),
        ({"threshold": math.inf, "selection_noise": 1.0}, "threshold: inf; must be a finite"),
        (
            {"aggregator": "laplace", "scale": 1.0, "answer_noise": None, "delta": 1e-11},
            "delta: 1e-11; must be >= 1e-10 for aggregator 'laplace'",
        ),
        ({"seed": 3}, "seed: must be set if and only if randomness='seeded'"),
        ({"randomness": "none"}, "randomness: 'none'; must be one of"),
    ],
)
def test_aggregate_invalid_options_rejected(changes, message) -> None:
    options = {"votes": [[6, 4], [5, 5]], "delta": 1e-5, "answer_noise": 2.0} | changes
    with pytest.raises(OsoError, match=message) as error:
        aggregate(options.pop("votes"), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "plan", [GaussianPlan(2, 1.0), LaplacePlan(2, 1.0), StablePlan(2, 1, 0.1, 1)]
)
def test_noisy_votes_other_teachers_rejected(plan) -> None:
    voting = plan.start(10, Seeded(), "a")
    with pytest.raises(OsoError, match="must be counts >= 0 that add up to 10 teachers"):
        voting.answer(np.array([6, 5]))
    assert voting.ledger.steps == []
