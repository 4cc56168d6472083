"""Rows of the format's first version: read as what they were, and nothing invented."""

import json
import shutil

import pandas as pd
import pyarrow.parquet as pq
import pytest

from oso_dp.errors import OsoError
from oso_dp.results.checks import protected, records
from oso_dp.results.collect import collect
from oso_dp.results.migrations import migrate_runs
from oso_dp.results.read import read_results, read_table
from oso_dp.results.schema import ADDED, OLD_OPTIONS, RUNS, schema_of, stored_schema
from oso_dp.study.config import load_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.identity import (
    OPTIONS,
    STORED_NAMES,
    make_run_id,
    parse_method_options,
    parse_trial_fractions,
)


def as_version_1(folder) -> None:
    """Make a part what an older checkout would have written."""
    for kind in ("runs", "evaluations"):
        path = folder / f"{kind}.parquet"
        table = pq.read_table(path).select(schema_of(kind, "1").names)
        table = table.rename_columns(stored_schema(kind, "1").names)
        pq.write_table(table.replace_schema_metadata({"oso_schema_version": "1"}), path)


def test_collect_merges_old_and_new_parts(repo, write, tmp_path) -> None:
    """Rows of version 1 with the default options are stored with these."""
    old = shutil.copytree(repo / "results/ambiguities/as_chosen", tmp_path / "old")
    before = read_results(old).runs.set_index("run_id")
    as_version_1(old)
    store = tmp_path / "store"
    collect([write("new", "r2")], store)
    collect([old], store)
    runs = read_results(store).runs.set_index("run_id").loc[before.index]
    assert runs.drop(columns="commit").equals(before.drop(columns="commit"))
    assert runs["commit"].isna().all()


def test_migrate_runs_infers_options_from_identity(repo) -> None:
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
    expected = [cohort.columns for cohort in planned for _ in cohort.runs[::7]]
    for found, columns in zip(records(filled), expected, strict=True):
        assert {name: found[name] for name in columns} == columns
    assert {*filled["model"]} == {"cnn", "autoencoder", "bag_of_words"}


def as_version_4(runs: pd.DataFrame) -> pd.DataFrame:
    """The rows with their options in one text, as versions 2 to 4 had them."""
    texts = []
    for row in records(runs):
        absent = ("schedule", "averaging", "stage", "trial_fractions", "data_version", "vocabulary")
        stored = {
            STORED_NAMES.get(name, name): row[name]
            for name in OPTIONS
            if row[name] is not None or name not in (*absent, "oov_words", "budget_runs")
        }
        stored["settings"] = parse_method_options(row["method_options"])
        if row["data_version"] is not None:
            stored |= {"budget_runs": row["budget_runs"], "public": row["budget_runs"] is None}
        if row["trial_fractions"] is not None:
            stored["trial_shares"] = parse_trial_fractions(row["trial_fractions"])
        texts.append(json.dumps(stored))
    return runs.drop(columns=[*OPTIONS]).assign(settings=texts)


@pytest.mark.parametrize("name", ["extensions/linear_scaling", "extensions/random_stopping"])
@pytest.mark.parametrize("more", [{}, {"schedule": "linear"}, {"averaging": 0.999}])
def test_migrate_runs_json_options_become_columns(repo, name, more) -> None:
    config = load_config(repo / f"config/{name}.yaml").model_copy(update=more)
    rows = [
        {**dict.fromkeys(RUNS.names), **cohort.columns, **vars(run)}
        for cohort in make_cohorts(config)
        for run in cohort.runs[::31]
    ]
    runs = pd.DataFrame(rows)
    migrated = migrate_runs(as_version_4(runs), "4")
    for row, stored in zip(records(migrated), records(runs), strict=True):
        assert row == stored
        assert make_run_id(row) == row["run_id"]


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("text", ["hello", "[1]", "1", '{"model": "cnn", "settings": 3}'])
def test_migrate_runs_invalid_options_raise(version, text) -> None:
    runs = pd.DataFrame({"run_id": ["one"], "settings": [text]})
    known = '{"grid_runs": 1, "evaluate_every": 1, "final_activation": false, '
    runs["settings"] = text if text[0] != "{" else known + text[1:]
    with pytest.raises(OsoError, match=r"^run one: settings: .*; must be the options of a run"):
        migrate_runs(runs, version)


@pytest.mark.parametrize("text", [None, "{}", '{"schedule": "linear", "grid_runs": 3}'])
def test_migrate_runs_incomplete_options_rejected(text) -> None:
    with pytest.raises(OsoError, match=r"^run one: settings: .*; must be the options of a run"):
        migrate_runs(pd.DataFrame({"run_id": ["one"], "settings": [text]}), "2")


@pytest.mark.parametrize(
    ("column", "value"),
    [("run_id", "0" * 20), ("momentum", 0.5), ("seed", 99), ("delta", 1e-6), ("method", "none")],
)
def test_migrate_runs_unknown_options_rejected(repo, column, value) -> None:
    """Rows of version 1 whose identity the default options do not give."""
    runs = read_results(repo / "results/ambiguities/as_chosen").runs
    runs = runs.drop(columns=[*ADDED["2"]["runs"], *OPTIONS]).assign(**{column: value})
    with pytest.raises(OsoError, match=r"^run .*: its options are not stored and not the defaults"):
        migrate_runs(runs, "1")


def test_read_results_accepts_stored_results(repo) -> None:
    stores = [repo / "results", *sorted((repo / "results/ambiguities").iterdir())]
    assert len(stores) > 5
    assert all(len(read_results(store).runs) for store in stores)


KNOWN = {"grid_runs": 2, "evaluate_every": 50, "final_activation": False, "model": "own"}
DECLARED = {"settings": {}, "data_version": "1", "public": False, "budget_runs": 4, **KNOWN}


@pytest.mark.parametrize(
    "change",
    [
        {"public": True},
        {"public": None},
        {"budget_runs": None},
        {"budget_runs": 0},
        {"budget_runs": "4"},
        {"data_version": None},
        *({"without": name} for name in ("grid_runs", "settings", "public", "data_version")),
    ],
    ids=str,
)
def test_read_table_invalid_declaration_raises(change, write, tmp_path) -> None:
    folder = write("old", "r1")
    stored = DECLARED | change
    stored.pop(stored.pop("without", None), None)
    path = folder / "runs.parquet"
    for text, is_sound in ((json.dumps(DECLARED), True), (json.dumps(stored), False)):
        rows = pq.read_table(write("new", "r1") / "runs.parquet").drop_columns([*OPTIONS])
        place = rows.column_names.index("precision") + 1
        rows = rows.add_column(place, OLD_OPTIONS, [[text]])
        pq.write_table(rows.replace_schema_metadata({"oso_schema_version": "4"}), path)
        if is_sound:
            assert protected(read_table(path, "runs")).all()
        else:
            with pytest.raises(OsoError, match=r"runs\.parquet: "):
                read_table(path, "runs")
