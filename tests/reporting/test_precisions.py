"""What was computed in another way stands beside, never in one mean with the rest."""

from tests.reporting.conftest import comparison_tables


def test_paper_table_precision_note_lists_cells(store, study) -> None:
    store.add(values=(0.9,), precision="bfloat16")
    store.add(values=(0.9,), epsilon=3.0, precision="bfloat16")
    store.add(method="adam_wosm", threshold=1.0, values=(0.9,), precision="float32")
    tables = {table.name: table for table in comparison_tables(study(store))}
    notes = " ".join(tables["table_08"].notes)
    assert "in bfloat16: Online at ε = 3, 9; in float32: AdamWOSM at ε = 9." in notes
    assert "Products" not in " ".join(tables["table_11"].notes)


def test_points_rng_versions_share_mean(store, study) -> None:
    """Runs of different `rng_version` share a mean: their noise has the same distribution."""
    for seed, rng_version in ((0, 1), (1, 2), (2, None)):
        store.add(seed=seed, values=(0.9 + seed / 100,), rng_version=rng_version)
    points = study(store).points
    assert points["seeds"].tolist() == [3]
