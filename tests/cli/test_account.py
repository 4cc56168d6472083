"""`oso account`: a store above its budget ends with one line that names the grid."""

import pandas as pd
import pytest

from oso.privacy.ledger import Ledger, SumQuery
from oso.results.write import write_table


@pytest.fixture
def store(study, oso, tmp_path):
    """The smallest study, trained and collected."""
    for shard in (0,):
        status, _, error = oso(
            "train", "--plan", "plan.json", "--cohort", "glyphs.online.k2.eps3",
            "--data", "glyphs.npz", "--output", f"part{shard}", "--shard", shard,
        )  # fmt: skip
        assert status == 0, error
    assert oso("collect", "part0", "--store", "store")[0] == 0
    return tmp_path / "store"


def test_the_stored_ledgers_are_within_the_budget(store, oso) -> None:
    status, output, error = oso(
        "account", store, "--plan", "plan.json", "--output", "accounting.csv"
    )
    assert status == 0, error
    assert "glyphs.online.k2.eps3" in output
    (row,) = pd.read_csv("accounting.csv").to_dict("records")
    assert (row["runs"], row["stored"], row["verdict"]) == (2, 2, "within")
    assert row["rdp"] == pytest.approx(3, rel=1e-3)
    assert row["pld"] == pytest.approx(row["prv"], rel=0.02)


def spoil(store, change) -> None:
    (path,) = (store / "runs.parquet").glob("*.parquet")
    runs = pd.read_parquet(path)
    ledgers = [change(Ledger.from_json(text)) for text in runs["ledger"]]
    runs["ledger"] = [ledger.to_json() for ledger in ledgers]
    runs["noise_multiplier"] = [ledger.releases()[0][0] for ledger in ledgers]
    write_table(path, "runs", runs)


def test_a_grid_above_its_budget_fails(store, oso) -> None:
    def less_noise(ledger: Ledger) -> Ledger:
        steps = [
            (tuple(SumQuery(q.name, 0.9 * q.noise_multiplier) for q in queries), count)
            for queries, count in ledger.steps
        ]
        return Ledger(ledger.sampling, steps)

    spoil(store, less_noise)
    status, output, error = oso("account", store, "--plan", "plan.json", "--output", "table.csv")
    assert status == 2
    assert "exceeded" in output
    assert "glyphs.online.k2.eps3: its ledgers cost epsilon" in error
    assert error.count("\n") == 1
    assert "exceeded" in (store.parent / "table.csv").read_text()  # to see which


def test_a_ledger_of_fewer_steps_than_the_run_is_refused(store, oso) -> None:
    def forget(ledger: Ledger) -> Ledger:
        (queries, count), *rest = ledger.steps
        return Ledger(ledger.sampling, [(queries, count - 1), *rest])

    spoil(store, forget)
    status, _, error = oso("account", store, "--plan", "plan.json")
    assert status == 2
    assert "its ledger has" in error


def test_a_folder_without_results_is_named(oso, tmp_path) -> None:
    status, _, error = oso("account", tmp_path / "nothing")
    assert status == 2
    assert "nothing/runs.parquet: no such results" in error
