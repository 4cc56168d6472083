"""`oso train` trains the portion of a cohort that it is told to, and no other."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

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
    monkeypatch.setattr("oso_dp.data.prepared.load_prepared", lambda *_: None)
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
    assert "has shards 0 to 1" in error
