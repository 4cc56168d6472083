"""The tolerance is a share of what was stored, and other draws are other draws either way."""

import pytest
from tests.rerun.test_compare import ROW, evaluated

from oso_dp.rerun.rerun import BEYOND, EQUAL, MAX_FRACTION, OTHER_RNG, compare_run, is_near


@pytest.mark.parametrize("stored", [0.001, 0.02, 0.5])
@pytest.mark.parametrize("sign", [-1, 1])
def test_an_error_may_differ_by_a_share_of_the_stored_one(stored: float, sign: int) -> None:
    assert MAX_FRACTION == 0.02
    for share, within in ((0.0199, True), (0.0201, False)):
        assert is_near("mse", stored, stored * (1 + sign * share)) == within
    # A share of the other one would end at 2.04 % above and at 1.96 % below.
    for share in (0.01965, 0.02035):
        assert is_near("mse", stored, stored * (1 + sign * share)) == (share < MAX_FRACTION)


@pytest.mark.parametrize(("stored", "now"), [(1, 2), (2, 1), (1, 3), (None, 2), (3, 2), (2, 2)])
@pytest.mark.parametrize("more", [0.0, 0.3])
def test_rows_of_older_and_of_newer_streams_are_not_judged(stored, now, more: float) -> None:
    elsewhere = {"device": "another", "rng_version": now}
    found = compare_run(
        ROW | {"rng_version": stored}, evaluated(), ROW | elsewhere, evaluated(more=more)
    )
    expected = EQUAL if more == 0 else BEYOND
    assert found.text == (expected if stored == now else OTHER_RNG)
