"""Rows of the format's first version: read as what they were, and nothing invented."""

import json

import pyarrow.parquet as pq
import pytest

from oso_dp.results.collect import collect
from oso_dp.results.migrations import migrate_runs
from oso_dp.results.read import read_results
from oso_dp.results.schema import ADDED, RUNS, schema_of, stored_schema
from oso_dp.study.config import load_config
from oso_dp.study.expand import make_cohorts

STORES = ["results/ambiguities/as_chosen", "results/ambiguities/momentum_0"]


def as_version_1(folder) -> None:
    """Make a part what an older checkout would have written."""
    for kind in ("runs", "evaluations"):
        path = folder / f"{kind}.parquet"
        table = pq.read_table(path).select(schema_of(kind, "1").names)
        table = table.rename_columns(stored_schema(kind, "1").names)
        pq.write_table(table.replace_schema_metadata({"oso_schema_version": "1"}), path)


def test_the_first_version_lacks_what_the_second_added() -> None:
    assert schema_of("runs", "2") == RUNS
    assert set(RUNS.names) - set(schema_of("runs", "1").names) == set(ADDED["2"]["runs"])


def test_an_older_part_is_collected_beside_newer_ones(write, tmp_path) -> None:
    old, new = write("old", "r1"), write("new", "r2")
    as_version_1(old)
    store = tmp_path / "store"
    collect([new], store)
    collect([old], store)
    runs = read_results(store).runs.set_index("run_id")
    assert list(runs["precision"]) == ["float32"] * 2
    assert runs["rng_version"].tolist() == [1, 1]
    assert runs.loc["r1"].isna()[["commit", "settings"]].all()  # no settings give such an identity


def test_settings_are_the_defaults_where_these_give_the_rows_identity(repo) -> None:
    """The planned runs of a whole study, as rows without `settings`: all come back."""
    import pandas as pd

    planned = []
    for name in ("paper", "extensions/random_stopping"):
        config = load_config(repo / f"config/{name}.yaml")
        then = {
            key: section.model_copy(update={"precision": "float32"})
            for key, section in config.datasets.items()
        }
        planned += make_cohorts(config.model_copy(update={"datasets": then}))
    names = ["dataset", "method", "k", "epsilon", "delta", "search_accounting", "momentum"]
    names += ["examples", "batch_size", "epochs"]
    rows = [
        {name: getattr(cohort, name) for name in names}
        | {name: getattr(run, name) for name in ("run_id", "seed", "learning_rate")}
        | {name: getattr(run, name) for name in ("threshold", "quantile")}
        for cohort in planned
        for run in cohort.runs[::7]
    ]
    filled = migrate_runs(pd.DataFrame(rows), "1")
    expected = [cohort.run_options for cohort in planned for _ in cohort.runs[::7]]
    assert filled["settings"].tolist() == expected
    assert {json.loads(text)["model"] for text in expected} == {
        *("cnn", "autoencoder", "bag_of_words"),
    }


@pytest.mark.parametrize(
    ("column", "value"),
    [("run_id", "0" * 20), ("momentum", 0.5), ("seed", 99), ("delta", 1e-6), ("method", "none")],
)
def test_other_rows_have_no_settings(repo, column, value) -> None:
    """A row that the defaults do not explain keeps null, not a guess."""
    runs = read_results(repo / "results/ambiguities/as_chosen").runs
    runs = runs.drop(columns=list(ADDED["2"]["runs"])).assign(**{column: value})
    assert migrate_runs(runs, "1")["settings"].isna().all()


@pytest.mark.parametrize("store", STORES)
def test_stored_rows_keep_their_identity(repo, store) -> None:
    assert read_results(repo / store).runs["settings"].notna().all()


def test_everything_that_is_stored_keeps_the_rules_of_today(repo) -> None:
    """A rule that refuses what an older checkout measured is too strict, not the row too old."""
    stores = [repo / "results", *sorted((repo / "results/ambiguities").iterdir())]
    assert len(stores) > 5
    assert all(len(read_results(store).runs) for store in stores)
