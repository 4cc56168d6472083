"""The ledger: small, readable again, and worth what the mechanism released."""

import math

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling

ONE = (SumQuery("clipped_gradient", 1.0),)
TWO = (SumQuery("clipped_gradient", 1.1), SumQuery("clipped_direction", 3.0))


def test_equal_steps_are_counted() -> None:
    ledger = Ledger(PoissonSampling(0.01))
    for queries in [ONE, ONE, TWO, ONE]:
        ledger.record(tuple(SumQuery(**vars(query)) for query in queries))  # equal, not the same
    assert ledger.steps == [(ONE, 3), (TWO, 1)]


@pytest.mark.parametrize("count", [1, 1023, 4095, 10_000, 65_535, 10**6, 10**8, 10**9 - 1])
def test_however_many_steps_there_were_one_more_is_one_more(count: int) -> None:
    ledger = Ledger(PoissonSampling(0.01), [(TWO, 5), (ONE, count)])
    ledger.record(ONE)
    assert ledger.steps == [(TWO, 5), (ONE, count + 1)]
    assert ledger.step_count == count + 6


def test_reading_gives_back_what_was_written() -> None:
    ledger = Ledger(PoissonSampling(512 / 60000), [(ONE, 1172), (TWO, 3)])
    assert Ledger.from_json(ledger.to_json()) == ledger
    assert len(ledger.to_json()) < 500


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"neighbouring": "x", "sampling": "shuffled"}'])
def test_a_broken_text_is_refused(text: str) -> None:
    with pytest.raises(OsoError, match="ledger"):
        Ledger.from_json(text)


def test_another_sampling_scheme_is_refused() -> None:
    """Its price would be computed as Poisson's, which is lower."""
    text = Ledger(PoissonSampling(0.01), [(ONE, 1)]).to_json().replace("poisson", "shuffled")
    with pytest.raises(OsoError, match="shuffled"):
        Ledger.from_json(text)


def test_each_query_of_a_step_costs() -> None:
    alone = compute_epsilon([Ledger(PoissonSampling(0.01), [(TWO[:1], 100)])], 1e-5)
    together = compute_epsilon([Ledger(PoissonSampling(0.01), [(TWO, 100)])], 1e-5)
    assert together > alone


def test_the_sums_of_a_step_cost_what_they_cost_as_separate_mechanisms() -> None:
    """Equation (1) of the ledger paper, held against dp_accounting's own composition."""
    gaussians = [dp_accounting.GaussianDpEvent(query.noise_multiplier) for query in TWO]
    step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.ComposedDpEvent(gaussians))
    expected = RdpAccountant().compose(step, 100).get_epsilon(1e-5)
    ledger = Ledger(PoissonSampling(0.01), [(TWO, 100)])
    assert compute_epsilon([ledger], 1e-5) == pytest.approx(expected, rel=1e-9)
    stored = RdpAccountant().compose(ledger.event()).get_epsilon(1e-5)
    assert stored == pytest.approx(expected, rel=1e-9)


def test_a_sum_without_noise_makes_the_run_not_private() -> None:
    exact = (*ONE, SumQuery("clipped_direction", 0.0))
    ledger = Ledger(PoissonSampling(0.01), [(ONE, 5), (exact, 1)])
    assert compute_epsilon([ledger], 1e-5) == float("inf")
    assert RdpAccountant().compose(ledger.event()).get_epsilon(1e-5) == float("inf")


def test_each_step_and_each_run_costs() -> None:
    one = Ledger(PoissonSampling(0.01), [(ONE, 100)])
    assert compute_epsilon([one, one], 1e-5) == compute_epsilon(
        [Ledger(PoissonSampling(0.01), [(ONE, 200)])], 1e-5
    )
    assert compute_epsilon([one, one], 1e-5) > compute_epsilon([one], 1e-5)


@pytest.mark.parametrize(
    "spoil",
    [
        ('"count": 3', '"count": -3'),
        ('"count": 3', '"count": 0'),
        ('"count": 3', '"count": 3.9'),
        ('"count": 3', '"count": "3"'),
        ('"count": 3', '"count": true'),
        ('"count": 3', '"count": 1e400'),
        ('"count": 3', '"count": 1000000001'),
        ('"count": 3', '"count": 3, "count": 1'),
        ('"sampling_rate": 0.01', '"sampling_rate": 0.0'),
        ('"sampling_rate": 0.01', '"sampling_rate": 1.5'),
        ('"sampling_rate": 0.01', '"sampling_rate": "0.01"'),
        ('"sampling_rate": 0.01', '"sampling_rate": NaN'),
        ('"sampling_rate": 0.01', '"sampling_rate": true'),
        ('"noise_multiplier": 1.0', '"noise_multiplier": -1.0'),
        ('"noise_multiplier": 1.0', '"noise_multiplier": NaN'),
        ('"noise_multiplier": 1.0', '"noise_multiplier": Infinity'),
        ('"noise_multiplier": 1.0', '"noise_multiplier": "1.0"'),
        ('"noise_multiplier": 1.0', '"noise_multiplier": true'),
        ('"noise_multiplier": 1.0', '"noise_multiplier": 1e-200'),
        ('"noise_multiplier": 1.0', '"noise_multiplier": 1e200'),
        ('"noise_multiplier": 1.0', '"noise_multiplier": 1' + "0" * 400),
        ('"noise_multiplier": 1.0', '"noise_multiplier": 1.0, "more": 1'),
    ],
)
def test_values_that_would_lower_the_price_are_refused(spoil: tuple[str, str]) -> None:
    text = Ledger(PoissonSampling(0.01), [(ONE, 3)]).to_json()
    assert spoil[0] in text
    with pytest.raises(OsoError):
        Ledger.from_json(text.replace(*spoil))


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, 1e-200, 1e200, True, "1.0", None])
def test_a_sum_that_would_lower_the_price_is_refused_wherever_it_stands(kind, place, bad) -> None:
    """Of three kinds of steps with three sums each; also where nothing was read from a text."""
    right = [((tuple(SumQuery(name, 1.0 + of) for name in "abc")), 3) for of in range(3)]
    ledger = Ledger(PoissonSampling(0.01), list(right))
    assert Ledger.from_json(ledger.to_json()) == ledger
    queries = list(right[kind][0])
    queries[place] = SumQuery(queries[place].name, bad)
    ledger.steps[kind] = (tuple(queries), 3)
    for refuse in (ledger.check, ledger.releases, lambda: Ledger.from_json(ledger.to_json())):
        with pytest.raises(OsoError, match="ledger: "):
            refuse()


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("bad", [-3, 0, 3.0, True, "3", None, 10**9 + 1])
def test_a_count_that_would_lower_the_price_is_refused_wherever_it_stands(kind, bad) -> None:
    ledger = Ledger(PoissonSampling(0.01), [((SumQuery(name, 1.0),), 3) for name in "abc"])
    ledger.steps[kind] = (ledger.steps[kind][0], bad)
    for refuse in (ledger.check, ledger.releases, lambda: Ledger.from_json(ledger.to_json())):
        with pytest.raises(OsoError, match="ledger: "):
            refuse()


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("sums", [(), "aa", "aba", "abb"])
def test_a_kind_of_step_without_sums_or_with_one_name_twice_is_refused(kind, sums) -> None:
    ledger = Ledger(PoissonSampling(0.01), [((SumQuery(name, 1.0),), 3) for name in "abc"])
    ledger.steps[kind] = (tuple(SumQuery(name, 1.0) for name in sums), 3)
    with pytest.raises(OsoError, match="ledger: a step must have queries with distinct names"):
        Ledger.from_json(ledger.to_json())


def test_two_sums_of_one_name_are_refused() -> None:
    text = Ledger(PoissonSampling(0.01), [((*ONE, *ONE), 3)]).to_json()
    with pytest.raises(OsoError, match="distinct names"):
        Ledger.from_json(text)


def test_a_text_without_end_is_refused() -> None:
    with pytest.raises(OsoError, match="not readable"):
        Ledger.from_json("[" * 100_000)
