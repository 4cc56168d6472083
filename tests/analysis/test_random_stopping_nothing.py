"""A search that stops at random may come to nothing: how probable that is, is said."""

import math

import pytest
from tests.analysis.test_random_stopping import STOP, whole_grid

from oso_dp.accounting.search_accounting.random_stopping import STOPPING_ETA, generating_function
from oso_dp.analysis.random_stopping import outcomes


@pytest.mark.parametrize("shape", STOPPING_ETA)
@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_outcomes_nothing_matches_generating_function(lost, shape, store, study) -> None:
    """The probability of no value is E[(lost / M)^K], which for Poisson includes K = 0."""
    for point in range(3):
        ended = {"values": (), "diverged_at": 3} if point < lost else {"values": (0.8,)}
        store.add(k=3, learning_rate=10.0**point, shape=shape, **STOP, **ended)
    (row,) = outcomes(study(store)).to_dict("records")
    assert row["distribution"] == shape
    expected = float(generating_function(3, STOPPING_ETA[shape])(lost / 3))
    assert row["nothing"] == pytest.approx(expected, abs=1e-9)
    if shape == "poisson":
        assert row["nothing"] == pytest.approx(math.exp(lost - 3))
    assert math.isnan(row["value"]) if lost == 3 else row["value"] == pytest.approx(80)


@pytest.mark.parametrize("shape", STOPPING_ETA)
@pytest.mark.parametrize("apart", [0.0, 0.1])
def test_outcomes_luck_excludes_empty_searches(apart: float, shape, store, study) -> None:
    """Equal points have no luck, although a Poisson search may draw no point."""
    whole_grid(store, [[0.7 - apart], [0.7], [0.7 + apart]], shape=shape)
    (row,) = outcomes(study(store)).to_dict("records")
    assert (row["luck"] > 1) == (apart > 0)
    assert (row["nothing"] > 0.01) == (shape == "poisson")
