"""What commands are told of shards, plans and stores is what they do."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from tests.planned_rows import run_row

from oso_dp.results.write import write_table
from oso_dp.study.plan import Plan, read_plan, write_plan

NAME = "glyphs.online.k2.eps3"


@pytest.fixture
def portions(study, monkeypatch) -> tuple[Plan, list]:
    """A plan of a run per job, and what is asked to be trained; nothing is."""
    asked = []

    def train(cohort, runs, *rest):
        asked.append((cohort.name, [run.run_id for run in runs]))
        return SimpleNamespace(runs=[], evaluations=[])

    monkeypatch.setattr("oso_dp.training.job.run_job", train)
    monkeypatch.setattr("oso_dp.data.validation.load_prepared", lambda *_: None)
    plan = replace(read_plan(Path("plan.json")), runs_per_job=1)
    write_plan(plan, Path("plan.json"))
    return plan, asked


def train(oso, shard: int, cohort: str = NAME):
    where = ("--data", "glyphs.npz", "--output", f"part{shard}", "--shard", shard)
    return oso("train", "--plan", "plan.json", "--cohort", cohort, *where)


def test_each_shard_is_trained_by_its_number(oso, portions) -> None:
    plan, asked = portions
    for name in (NAME, "glyphs.no_dp.k2.nonprivate"):
        runs = plan.cohort(name).runs
        assert len(runs) == 2
        for shard, run in enumerate(runs):
            status, _, error = train(oso, shard, name)
            assert status == 0, error
            assert asked.pop() == (name, [run.run_id])
    status, _, error = train(oso, 2)
    assert status == 2
    assert "--shard: 2; must be 0 to 1 for glyphs.online.k2.eps3" in error


def test_a_planned_run_that_is_in_no_part_is_missed(oso, collected) -> None:
    """The part holds Online's runs; NoDP's were planned, too."""
    plan = ("--plan", "plan.json")
    status, _, error = oso("collect", "part", "--store", "new", *plan)
    assert status == 2
    assert "2 planned runs are neither there nor in the named shards" in error
    assert not (collected / "new/runs.parquet").exists()
    assert oso("collect", "part", "--store", "new")[0] == 0


def test_what_is_ahead_leaves_out_what_is_stored(oso, collected, repo) -> None:
    text = (repo / "config/ci/smoke.yaml").read_text()
    for folder, stored in (("empty", 0), ("store", 2)):
        Path("study.yaml").write_text(text.replace("build/smoke/results", folder))
        status, said, error = oso("plan", "--config", "study.yaml")
        assert status == 0, error
        assert f"2 private runs in 1 cohort and 2 NoDP runs in 1; {stored} of them stored" in said


def test_every_grid_is_checked_thrice_where_that_is_asked_for(oso, collected, monkeypatch) -> None:
    asked = []

    def table(grids, every=False):
        asked.append(every)
        return pd.DataFrame(
            {"grid": ["a"], "delta": [1e-5], "rdp": [1.0], "pld": [1.0], "prv": [1.0]}
        )

    monkeypatch.setattr("oso_dp.analysis.accounts.account_grids", lambda *_: [])
    monkeypatch.setattr("oso_dp.analysis.accounts.accounts_table", table)
    assert oso("account", "store")[0] == 0
    assert oso("account", "store", "--all-accountants")[0] == 0
    assert asked == [False, True]


def test_a_part_with_another_shards_runs_is_not_written_over(oso, portions) -> None:
    """They are in no store yet; those of the shard itself are made anew."""
    plan, asked = portions
    cohort = plan.cohort(NAME)
    for shard, run in enumerate(cohort.runs):
        write_table(Path(f"part{shard}/runs.parquet"), "runs", [run_row(cohort, run)])
        assert train(oso, shard)[0] == 0
        assert asked.pop() == (NAME, [run.run_id])
        other = cohort.runs[1 - shard]
        write_table(Path(f"part{shard}/runs.parquet"), "runs", [run_row(cohort, other)])
        status, _, error = train(oso, shard)
        assert (status, asked) == (2, [])
        assert f"has 1 runs that this job does not train (the first is {other.run_id})" in error


def test_a_store_whose_change_is_on_its_way_is_no_part(oso, portions) -> None:
    """Of one that was killed before its tables came into their places."""
    Path("part0/.pending").mkdir(parents=True)
    status, _, error = train(oso, 0)
    assert (status, portions[1]) == (2, [])
    assert "--output part0: is a results store" in error
