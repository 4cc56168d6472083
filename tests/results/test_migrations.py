"""Rows of older versions of the format: read as what they were."""

import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oso_dp.errors import OsoError
from oso_dp.results.checks import protected, records
from oso_dp.results.collect import collect
from oso_dp.results.migrations import migrate_runs
from oso_dp.results.read import read_results, read_table
from oso_dp.results.schema import OLD_OPTIONS, RUNS, schema_of
from oso_dp.study.config import load_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.identity import (
    OPTIONS,
    STORED_NAMES,
    make_run_id,
    parse_method_options,
    parse_trial_fractions,
)


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


def test_collect_merges_old_and_new_parts(write, tmp_path) -> None:
    old = write("old", "r1")
    before = read_results(old).runs.set_index("run_id")
    path = old / "runs.parquet"
    table = pa.Table.from_pandas(
        as_version_4(pq.read_table(path).to_pandas()),
        schema_of("runs", "4").with_metadata({"oso_schema_version": "4"}),
        preserve_index=False,
    )
    pq.write_table(table, path)
    store = tmp_path / "store"
    collect([write("new", "r2")], store)
    collect([old], store)
    runs = read_results(store).runs.set_index("run_id").loc[before.index]
    pd.testing.assert_frame_equal(runs, before)


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
