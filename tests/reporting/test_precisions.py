"""What was computed in another way stands beside, never in one mean with the rest."""

import pytest
from tests.reporting.conftest import comparison_tables

from oso_dp.analysis.verdicts import judge_cells
from oso_dp.reporting.tables.study import runs_table


@pytest.mark.parametrize(
    ("column", "one", "other"),
    [("precision", "float32", "bfloat16"), ("model", "a", "b")],
)
def test_no_mean_holds_two_of_them(store, study, column, one, other) -> None:
    for seed in range(3):
        store.add(seed=seed, values=(0.9,), **{column: one})
    for seed in range(4):
        store.add(seed=seed, values=(0.5,), **{column: other})
    points = study(store).points
    assert sorted(zip(points["seeds"], points["mean"].round(6), strict=True)) == [
        (3, 0.9),
        (4, 0.5),
    ]
    table = runs_table(study(store))
    assert table.data[column].tolist() == sorted((one, other))
    cell = (
        judge_cells(study(store), "mnist", 9).set_index(["epsilon", "method"]).loc[(9.0, "online")]
    )
    assert (cell["seeds"], cell["mean"]) == (4, pytest.approx(50.0))  # the one with more runs


def test_a_table_says_which_cells_were_computed_in_which_precision(store, study) -> None:
    store.add(values=(0.9,), precision="bfloat16")
    store.add(values=(0.9,), epsilon=3.0, precision="bfloat16")
    store.add(method="adam_wosm", threshold=1.0, values=(0.9,), precision="float32")
    tables = {table.name: table for table in comparison_tables(study(store))}
    notes = " ".join(tables["table_08"].notes)
    assert "in bfloat16: Online at ε = 3, 9; in float32: AdamWOSM at ε = 9." in notes
    assert "Products" not in " ".join(tables["table_11"].notes)


def test_rows_of_another_scheme_of_streams_share_a_mean(store, study) -> None:
    """They follow the same law."""
    for seed, rng_version in ((0, 1), (1, 2), (2, None)):
        store.add(seed=seed, values=(0.9 + seed / 100,), rng_version=rng_version)
    points = study(store).points
    assert points["seeds"].tolist() == [3]
