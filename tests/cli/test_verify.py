"""`oso verify`: what was trained here comes out again; what was changed does not."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oso_dp.rerun.rerun import (
    order_by_random_sample,
    select_repeatable,
)
from oso_dp.results.read import read_results
from oso_dp.training import job

ALL = ["--data", ".", "--minutes", "1"]


def change(store: Path, kind: str, column: str, value) -> None:
    """Of each row, by a function of the column's values."""
    (path,) = (store / f"{kind}.parquet").iterdir()
    table = pq.read_table(path)
    at = table.schema.get_field_index(column)
    values = pa.array(value(table[column].to_numpy(zero_copy_only=False)), table.schema.types[at])
    pq.write_table(table.set_column(at, table.schema.field(at), values), path)


def held(store: str) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path(store).rglob("*") if path.is_file()}


def test_verify_unchanged_store_bit_identical(oso, collected) -> None:
    status, said, error = oso("verify", "store", *ALL)
    assert (status, error) == (0, "")
    assert said.count("glyphs.online.k2.eps3 seed 0: bit-identical") == 2
    assert said.endswith("2 of 2 rows, sampled with seed 0:\n  2 bit-identical\n")


def test_verify_changed_number_fails(oso, collected) -> None:
    change(collected / "store", "evaluations", "loss", lambda loss: np.nextafter(loss, 9))
    before = held("store")
    status, said, error = oso("verify", "--results", "store", *ALL)
    assert status == 2
    assert "2 NOT EQUAL, though code and conditions are the same" in said
    assert error == "oso: error: 2 of 2 rows: results differ from the stored ones\n"
    assert held("store") == before


def test_verify_other_code_within_tolerance_passes(oso, collected, monkeypatch) -> None:
    monkeypatch.setattr(job, "code_hash", lambda: "0" * 12)
    change(collected / "store", "evaluations", "loss", lambda loss: loss * (1 + 1e-6))
    status, said, _ = oso("verify", "store", *ALL)
    assert status == 0
    assert "2 within the tolerance, but should be bit-identical: the code changed" in said
    change(collected / "store", "evaluations", "value", lambda value: value * 0.5)
    status, said, _ = oso("verify", "store", *ALL)
    assert status == 2
    assert "2 BEYOND the tolerance" in said


def test_verify_unusable_argument_rejected(oso, collected) -> None:
    for arguments, part in [
        (["store", "--data", "nowhere"], "--data: nowhere; no data files of these runs"),
        (["store", *ALL, "--dataset", "mnist"], "--dataset: mnist; has no run that can be"),
        (["nothing", *ALL], "nothing"),
    ]:
        status, _, error = oso("verify", *arguments)
        assert (status, error.count("\n")) == (2, 1)
        assert part in error


@pytest.fixture(scope="module")
def stored(repo):
    return select_repeatable(read_results(repo / "results").runs)


def test_order_by_random_sample_follows_seed(stored) -> None:
    assert len(stored) > 1900
    first = [one.run.run_id for one in order_by_random_sample(stored, 1)]
    assert first == [one.run.run_id for one in order_by_random_sample(stored[::-1], 1)]
    assert sorted(first) == sorted(one.run.run_id for one in stored)
    beginnings = {order_by_random_sample(stored, seed)[0].run.run_id for seed in range(40)}
    assert len(beginnings) > 35


@pytest.mark.nightly
def test_verify_ag_news_row_reproduced(oso, repo, shared, tmp_path):
    seed = int(job.code_hash(), 16)
    where = ["--data", tmp_path, "--data-dir", shared / "data", "--minutes", "0"]
    status, said, error = oso(
        "verify", repo / "results", *where, "--dataset", "ag_news_partial", "--seed", seed
    )
    assert (status, error) == (0, "")
    assert "\n1 of " in said
