"""Which stored rows can be trained again at all, how many of them, and on how many threads."""

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from tests.planned_rows import rows_of

from oso_dp.rerun import rerun
from oso_dp.rerun.rerun import select_repeatable
from oso_dp.study.config import load_config, parse_config
from oso_dp.study.plan import Plan, make_plan


def planned(repo: Path, randomness: str) -> Plan:
    smoke = load_config(repo / "config/ci/smoke.yaml").model_dump()
    return make_plan(parse_config({**smoke, "randomness": randomness}, "x"))


@pytest.mark.parametrize("randomness", ["seeded", "system"])
def test_select_repeatable_unseeded_runs_omitted(randomness: str, repo: Path) -> None:
    plan = planned(repo, randomness)
    found = select_repeatable(pd.DataFrame(rows_of(plan)["runs"]))
    expected = plan.run_ids() if randomness == "seeded" else []
    assert [one.run.run_id for one in found] == expected


@pytest.mark.parametrize(
    ("device", "threads"),
    [("a CPU (1 thread)", 1), ("a CPU (3 threads)", 3), ("a CPU (12 threads)", 12), ("a GPU", 1)],
)
def test_rerun_uses_stored_thread_count(device, threads, monkeypatch) -> None:
    seen = []

    def train(one, arrays, columns, times=1.0):
        seen.append(torch.get_num_threads())
        raise KeyboardInterrupt

    monkeypatch.setattr(rerun, "_train_again", train)
    now = [1]
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda count: now.__setitem__(0, count))
    one = SimpleNamespace(row={"device": device})
    with pytest.raises(KeyboardInterrupt):
        rerun._rerun(one, pd.DataFrame(), None)
    assert (seen, now) == ([threads], [1])


@pytest.mark.parametrize("faster", [1.0, 2.0, 0.5])
def test_verify_time_limit_skips_long_runs(faster, monkeypatch) -> None:
    took = [40.0, 100.0, 10.0, 900.0, 30.0, 5.0, 60.0]
    order = [
        SimpleNamespace(run=SimpleNamespace(run_id=str(place)), seconds=seconds, cohort=None)
        for place, seconds in enumerate(took)
    ]
    now = [1000.0]

    def train(one, *rest):
        now[0] += one.seconds / faster

    monkeypatch.setattr(rerun, "_rerun", train)
    results = SimpleNamespace(evaluations=pd.DataFrame({"run_id": ["0"]}))
    limit = 160.0 / faster
    found = rerun.verify(results, order, lambda cohort: None, limit, lambda: now[0])
    assert [one.seconds for one, _ in found] == [40.0, 100.0, 10.0, 5.0]
    now[0] = 0.0
    alone = rerun.verify(results, order[3:], lambda cohort: None, 0.0, lambda: now[0])
    assert [one.seconds for one, _ in alone] == [900.0]
