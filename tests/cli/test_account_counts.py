"""`oso account` says how many grids it accounted for; a total of one data set is none of them."""

import pytest
from tests.analysis.test_noise_tables import own_data
from tests.stores import Store

from oso_dp.accounting.tuning_cost import Search
from oso_dp.privacy.sampling import PoissonSampling


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


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("command", ["account", "summary"])
def test_whichever_grid_is_above_its_budget_is_named(command, at, tmp_path, oso) -> None:
    store = Store()
    for place in range(3):
        less = {"noise_multiplier": 5.0} if place == at else {}
        store.add(dataset="glyphs", k=2, epsilon=3.0 + place, **less)
    status, _, error = oso(command, store.write(tmp_path))
    assert status == 2
    assert f"glyphs.online.k2.eps{3 + at}: its ledgers cost epsilon" in error


@pytest.mark.parametrize("at", [0, 1, 2])
def test_whichever_grid_is_unclear_is_named(at: int, tmp_path, oso) -> None:
    """It has the noise of two runs, and nine would exceed its budget."""
    store = Store()
    for place in range(3):
        two = Search(PoissonSampling(1.0), 600, 2).noise_multiplier(3.0 + place, 1e-5)
        less = {"noise_multiplier": two, "query_noise_multiplier": None} if place == at else {}
        store.add(dataset="glyphs", k=9, epsilon=3.0 + place, **less)
    status, _, error = oso("account", store.write(tmp_path))
    assert status == 2
    assert f"glyphs.online.k9.eps{3 + at}: its rows do not say how many runs" in error


def test_every_data_set_that_is_not_public_has_its_statement(tmp_path, oso) -> None:
    store = Store()
    own_data(store, 5, "visits")
    store.runs = [row for row in store.runs if row["dataset"] == "visits"]
    mine = {row["run_id"] for row in store.runs}
    store.evaluations = [row for row in store.evaluations if row["run_id"] in mine]
    own_data(store, 12)
    status, output, error = oso("account", store.write(tmp_path))
    assert status == 0, error
    for dataset, runs in (("patients", 12), ("visits", 5)):
        assert f"{dataset}, version 1: (" in output
        assert f"Composed: {runs} runs, of which" in output


@pytest.mark.parametrize("spoiled", [0.5, 0.9])
def test_whichever_of_two_searches_of_a_name_is_above_its_budget_is_not_collected(
    spoiled, tmp_path, oso
) -> None:
    """They differ in their momentum."""
    parts = []
    for momentum in (0.5, 0.9):
        store = Store()
        less = {"noise_multiplier": 5.0} if momentum == spoiled else {}
        store.add(dataset="glyphs", k=2, epsilon=3.0, momentum=momentum, **less)
        parts.append(store.write(tmp_path / f"{momentum}"))
    status, _, error = oso("collect", *parts, "--store", tmp_path / "store")
    assert status == 2
    assert "glyphs.online.k2.eps3: its ledgers cost epsilon" in error
    assert not (tmp_path / "store/runs.parquet").exists()
