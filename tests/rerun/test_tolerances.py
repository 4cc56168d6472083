"""The tolerance is a share of what was stored, and other draws are other draws either way."""

import pytest
from tests.rerun.test_compare import ROW, evaluated

from oso_dp.rerun.rerun import BEYOND, EQUAL, OTHER_RNG, compare_run


@pytest.mark.parametrize(("stored", "now"), [(1, 2), (2, 1), (1, 3), (None, 2), (3, 2), (2, 2)])
@pytest.mark.parametrize("more", [0.0, 0.3])
def test_rows_of_older_and_of_newer_streams_are_not_judged(stored, now, more: float) -> None:
    elsewhere = {"device": "another", "rng_version": now}
    found = compare_run(
        ROW | {"rng_version": stored}, evaluated(), ROW | elsewhere, evaluated(more=more)
    )
    expected = EQUAL if more == 0 else BEYOND
    assert found.text == (expected if stored == now else OTHER_RNG)
