"""`oso account` says how many grids it accounted for; a total of one data set is none of them."""

import pytest
from tests.analysis.test_noise import own_data
from tests.stores import Store


@pytest.mark.parametrize("grids", [1, 3])
def test_grids_are_counted_and_totals_are_not(grids: int, tmp_path, oso) -> None:
    """Of data that are not public all runs have one account."""
    store = Store()
    for place in range(grids):
        store.add(dataset="glyphs", k=2, epsilon=3.0 + place)
        store.add(dataset="glyphs", k=2, epsilon=3.0 + place, seed=1)
    alone = store.write(tmp_path / "alone")
    own_data(store, 12)  # and two more grids of glyphs
    both = store.write(tmp_path / "both")
    for folder, count in ((alone, grids), (both, grids + 2)):
        status, output, error = oso("account", folder)
        assert status == 0, error
        assert f"{folder}: {count} private grids." in output
        assert ("patients" in output) == (folder == both)
