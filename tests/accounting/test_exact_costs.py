"""Exact books: each step with its own noise, the rate as it is, no cost above the budget."""

import math
from collections import Counter

import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.helpers import Given
from tests.searches import make_search

from oso_dp.accounting.accountants import compute_epsilon, compute_epsilon_of_event
from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting.random_stopping import compute_random_stopping_epsilon
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient
from oso_dp.privacy.sampling import PoissonSampling

DELTA = 1e-5
# Multipliers that differ much, by little, in their last bits; alike under rounding.
NOISE = [1.0, math.nextafter(1.0, 2), 1.0000001, 1.001, 1.004, 2.0]
names = st.sampled_from(["clipped_gradient", "clipped_gradient/a"])
kinds = st.tuples(st.sampled_from(NOISE), st.sampled_from([None, *NOISE]), names)


def booked(kind: tuple) -> tuple[SumQuery, ...]:
    first, second, name = kind
    more = () if second is None else (SumQuery("clipped_direction", second),)
    return (SumQuery(name, first), *more)


@given(st.lists(kinds, max_size=30))
def test_ledger_record_counts_all_steps(steps: list[tuple]) -> None:
    ledger = Ledger(PoissonSampling(0.1))
    for kind in steps:
        ledger.record(booked(kind))
    assert ledger.steps == list(Counter(booked(kind) for kind in steps).items())
    assert Ledger.from_json(ledger.to_json()) == ledger


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([0.9, 1.0, 3.0]), min_size=1, max_size=8))
def test_compute_epsilon_counts_all_steps(noise: list[float]) -> None:
    sampling, accountant = PoissonSampling(1.0), RdpAccountant()  # quickly priced
    ledger = Ledger(sampling)
    for nu in noise:
        ledger.record((SumQuery("clipped_gradient", nu),))
        accountant.compose(PoissonSampledDpEvent(1.0, GaussianDpEvent(nu)))
    expected = accountant.get_epsilon(DELTA)
    assert compute_epsilon([ledger], DELTA) == pytest.approx(expected, rel=1e-9)
    event = compute_epsilon_of_event(sampling, ledger.event(), DELTA, "rdp")
    assert event == pytest.approx(expected, rel=1e-9)


def test_compute_random_stopping_epsilon_ignores_order() -> None:
    one, other = (SumQuery("g", 1.0),), (SumQuery("g", 2.0),)
    parted = Ledger(PoissonSampling(1.0), [(one, 40), (other, 1), (one, 40)])
    sorted_ = Ledger(PoissonSampling(1.0), [(one, 80), (other, 1)])
    costs = [compute_random_stopping_epsilon(ledger, 9, 1.0, DELTA) for ledger in (parted, sorted_)]
    assert costs[0] == pytest.approx(costs[1], rel=1e-12)


def test_mechanism_books_asked_noise() -> None:
    mechanism = Mechanism(["a", "b"], 100, 10)
    asked = [1.0, 1.0000001, 1.0, 1.004, 2.0, 2.0]
    for step, nu in enumerate(asked, 1):
        queries = [ClippedGradient(nu, torch.ones(2)), ClippedDirection(3 * nu, torch.ones(2))]
        mechanism.release(slice(1, 2), step, queries, lambda _, b: Given(torch.zeros(*b.shape, 2)))
    assert mechanism.ledgers[0].steps == []
    told = [queries for queries, count in mechanism.ledgers[1].steps for _ in range(count)]
    assert [[q.noise_multiplier for q in queries] for queries in told] == [
        [nu, 3 * nu] for nu in [1.0, 1.0, 1.0000001, 1.004, 2.0, 2.0]
    ]


@given(st.integers(1, 10**6), st.data())
def test_mechanism_rate_equals_batch_share(examples: int, data) -> None:
    batch_size = data.draw(st.integers(1, examples))
    mechanism = Mechanism(["a"], examples, batch_size)
    assert mechanism.sampling.rate == mechanism.ledgers[0].sampling.rate == batch_size / examples
    ledger = Ledger.from_json(mechanism.ledgers[0].to_json())
    assert ledger.sampling.rate == batch_size / examples


SHAPES = [0.0, 0.05, 0.3, 0.7, 0.999, 1.0, 1.5, 2.0, 4.0, 20.0]


@pytest.mark.parametrize("shape", SHAPES)
def test_random_stopping_search_shapes_match_reference(shape: float) -> None:
    sampling, nu, runs = PoissonSampling(1.0), 30.0, 9
    one = SelfComposedDpEvent(PoissonSampledDpEvent(1.0, GaussianDpEvent(nu)), 100)
    stopped = RepeatAndSelectDpEvent(one, runs, shape)
    expected = RdpAccountant().compose(stopped).get_epsilon(DELTA)

    def price(of: float) -> float:
        return make_search(sampling, 100, runs, "random_stopping", of).epsilon(nu, DELTA)

    assert price(shape) == pytest.approx(expected, rel=1e-9)
    ledger = Ledger(sampling, [((SumQuery("g", nu),), 100)])
    assert compute_random_stopping_epsilon(ledger, runs, shape, DELTA) == pytest.approx(
        expected, rel=1e-9
    )
    assert all(price(other) > price(shape) for other in SHAPES if other > shape)


@pytest.mark.parametrize("search_accounting", ["composition", "random_stopping"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0, 5.0, 7.0, 9.0, 40.0])
@pytest.mark.parametrize("runs", [2, 9, 45, 81])
def test_search_noise_multiplier_keeps_budget(
    epsilon: float, runs: int, search_accounting: str
) -> None:
    search = make_search(PoissonSampling(1.0), 10, runs, search_accounting, 0.5)
    spent = search.epsilon(search.noise_multiplier(epsilon, DELTA), DELTA)
    assert epsilon * (1 - 1e-5) < spent <= epsilon


@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-6, 1e-8, 1e-11, 1e-15])
def test_compute_epsilon_any_delta_matches_reference(delta: float) -> None:
    """Costs match at every delta, also far below 1 / n."""
    sampling, nu, steps = PoissonSampling(1.0), 3.0, 40
    one = SelfComposedDpEvent(PoissonSampledDpEvent(1.0, GaussianDpEvent(nu)), steps)
    expected = RdpAccountant().compose(one).get_epsilon(delta)
    ledger, search = Ledger(sampling, [((SumQuery("g", nu),), steps)]), Search(sampling, steps, 1)
    for price in (compute_epsilon([ledger], delta), search.epsilon(nu, delta)):
        assert price == pytest.approx(expected, rel=1e-9)
    assert search.noise_multiplier(expected, delta) == pytest.approx(nu, rel=1e-6)
    drawn = RdpAccountant().compose(RepeatAndSelectDpEvent(one, 9, 1.0)).get_epsilon(delta)
    assert compute_random_stopping_epsilon(ledger, 9, 1.0, delta) == pytest.approx(drawn, rel=1e-9)
