"""Files of older versions of the format: what they lack is null, or they are refused."""

import pandas as pd
import pyarrow.parquet as pq
import pytest

from oso_dp.results.collect import collect
from oso_dp.results.read import read_results
from oso_dp.results.schema import schema_of


def rewrite(path, version: str) -> None:
    table = pq.read_table(path).select(schema_of(path.stem, version).names)
    pq.write_table(table.replace_schema_metadata({"oso_schema_version": version}), path)


@pytest.mark.parametrize("old_first", [True, False])
def test_collect_merges_old_and_new_parts(old_first, write, tmp_path) -> None:
    old, new, store = write("old", "r1"), write("new", "r2"), tmp_path / "store"
    before = read_results(old).runs.set_index("run_id")
    rewrite(old / "runs.parquet", "5")
    rewrite(old / "evaluations.parquet", "2")
    assert "unit" not in pq.read_schema(old / "runs.parquet").names
    pd.testing.assert_frame_equal(read_results(old).runs.set_index("run_id"), before)
    for part in (old, new) if old_first else (new, old):
        collect([part], store)
    runs = read_results(store).runs.set_index("run_id")
    assert len(runs) == 2
    pd.testing.assert_frame_equal(runs.loc[before.index], before)


def test_read_results_accepts_stored_results(repo) -> None:
    stores = [repo / "results", *sorted((repo / "results/ambiguities").iterdir())]
    assert len(stores) > 5
    assert all(len(read_results(store).runs) for store in stores)
