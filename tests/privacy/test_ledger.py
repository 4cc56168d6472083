"""The ledger: small, readable again, and worth what the mechanism released."""

import pytest

from oso.errors import OsoError
from oso.privacy.accounting import epsilon_of
from oso.privacy.ledger import Ledger, SumQuery

ONE = (SumQuery("clipped_gradient", 1.0),)
TWO = (SumQuery("clipped_gradient", 1.1), SumQuery("clipped_direction", 3.0))


def test_equal_steps_are_counted() -> None:
    ledger = Ledger(0.01)
    for queries in [ONE, ONE, TWO, ONE]:
        ledger.record(queries)
    assert ledger.steps == [(ONE, 2), (TWO, 1), (ONE, 1)]


def test_reading_gives_back_what_was_written() -> None:
    ledger = Ledger(512 / 60000, [(ONE, 1172), (TWO, 3)])
    assert Ledger.from_json(ledger.to_json()) == ledger
    assert len(ledger.to_json()) < 500


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"neighbouring": "x", "sampling": "shuffled"}'])
def test_a_broken_text_is_refused(text: str) -> None:
    with pytest.raises(OsoError, match="ledger"):
        Ledger.from_json(text)


def test_another_sampling_scheme_is_refused() -> None:
    """Its price would be computed as Poisson's, which is lower."""
    text = Ledger(0.01, [(ONE, 1)]).to_json().replace("poisson", "shuffled")
    with pytest.raises(OsoError, match="shuffled"):
        Ledger.from_json(text)


def test_each_query_of_a_step_costs() -> None:
    alone = epsilon_of([Ledger(0.01, [(TWO[:1], 100)])], 1e-5)
    together = epsilon_of([Ledger(0.01, [(TWO, 100)])], 1e-5)
    assert together > alone


def test_each_step_and_each_run_costs() -> None:
    one = Ledger(0.01, [(ONE, 100)])
    assert epsilon_of([one, one], 1e-5) == epsilon_of([Ledger(0.01, [(ONE, 200)])], 1e-5)
    assert epsilon_of([one, one], 1e-5) > epsilon_of([one], 1e-5)


@pytest.mark.parametrize(
    "spoil",
    [
        ('"count": 3', '"count": -3'),
        ('"count": 3', '"count": 0'),
        ('"sampling_rate": 0.01', '"sampling_rate": 0.0'),
        ('"sampling_rate": 0.01', '"sampling_rate": 1.5'),
        ('"noise_multiplier": 1.0', '"noise_multiplier": -1.0'),
        ('"noise_multiplier": 1.0', '"noise_multiplier": NaN'),
        ('"noise_multiplier": 1.0', '"noise_multiplier": Infinity'),
    ],
)
def test_values_that_would_lower_the_price_are_refused(spoil: tuple[str, str]) -> None:
    text = Ledger(0.01, [(ONE, 3)]).to_json()
    assert spoil[0] in text
    with pytest.raises(OsoError, match="out of range"):
        Ledger.from_json(text.replace(*spoil))
