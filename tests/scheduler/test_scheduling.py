"""What trains, in which order, until when, and what survives kills and spoiled files."""

import json
import os
from dataclasses import replace

import pytest
from tests.planned_rows import run_row, score_rows
from tests.scheduler.conftest import RUNS, KilledError, list_runs, make_plan

from oso_dp.checkpoint import FINISHED_RUNS, save_checkpoint
from oso_dp.errors import InterruptedByUser, OsoError
from oso_dp.scheduler.priorities import list_jobs, rank_runs
from oso_dp.scheduler.scheduling import HELD, Scheduler, task_of
from oso_dp.scheduler.shard_store import ShardStore, list_stores, remove_unless_spent
from oso_dp.training.job import ResultRows
from oso_dp.training.provenance import device_name


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def test_scheduler_first_level_trains_first(make, machine, plan) -> None:
    (job,) = (job for job in list_jobs([plan]) if job.cohort.method == "fixed_threshold")
    paper = {run.run_id for run in job.cohort.runs[2:4]}
    make(levels=rank_runs(list_jobs([plan]), [], paper), parallel=64).run()
    assert {*machine.trained[:2]} == paper
    assert machine.sizes == [2, 4, 4, 6]
    assert len({*machine.trained}) == RUNS


@pytest.mark.parametrize("seconds", [0.5, 97.5, 1000.0])
@pytest.mark.parametrize("parallel", [1, 5])
def test_scheduler_deadline_stores_complete_runs(seconds, parallel, make, machine, out) -> None:
    machine.per_step = lambda size: 0.5 + 0.25 * size
    made = make(seconds, parallel=parallel)
    made.run()
    assert machine.now <= seconds + machine.per_step(parallel)
    assert sorted(list_runs(out)) == sorted(machine.trained)
    assert len(made.list_left()) == RUNS - len(machine.trained)
    assert len(machine.trained) == RUNS or seconds < 1000.0


@pytest.mark.parametrize(("began", "hours"), [(0, 1.0), (20, 0.5)])
def test_scheduler_temporary_overload_finishes_runs(began, hours, make, machine, out) -> None:
    end = began + 3600 * hours
    machine.load = lambda now: 100.0 if began <= now < end else 1.0
    make(end + 400).run()
    assert sorted(list_runs(out)) == sorted(machine.trained)
    assert len(machine.trained) == RUNS


def test_scheduler_overloaded_end_keeps_checkpoint(make, machine, out, said) -> None:
    machine.load = lambda now: 1.0 if now < 34 else 50.0
    make(80.0).run()
    assert len(list_runs(out)) == 3
    assert any("stopped at step" in line and "checkpoint is kept" in line for line in said)
    machine.load = lambda now: 1.0
    make().run()
    assert machine.asked[4][2] == machine.asked[3][2] + 5  # not from step 0
    assert len(machine.trained) == len({*machine.trained}) == RUNS


def test_scheduler_short_time_shrinks_groups(make, machine) -> None:
    """A group of four takes 40 s; the 31 s left suffice for a group of two and one run."""
    machine.per_step = lambda size: size
    make(71.0, "fixed_threshold", 4).run()
    assert machine.sizes == [4, 2, 1]
    assert machine.now == 70.0


@pytest.mark.parametrize(("memory", "largest"), [(3, 2), (7, 4)])
def test_scheduler_out_of_memory_halves_groups(memory, largest, make, machine, out) -> None:
    machine.memory = memory
    make(parallel=8).run()
    assert max(size for size in machine.sizes if size <= memory) == largest
    assert sorted(list_runs(out)) == sorted(machine.trained)
    assert len(machine.trained) == RUNS


def test_scheduler_insufficient_memory_raises(make, machine) -> None:
    machine.memory = 0
    with pytest.raises(OsoError, match=r"glyphs\..*: the device has too little memory"):
        make().run()


def test_scheduler_second_call_trains_rest(make, machine, out) -> None:
    make(35.0, parallel=3).run()
    assert 0 < len(machine.trained) < RUNS
    make(parallel=5).run()
    make().run()
    assert len(machine.trained) == len({*machine.trained}) == RUNS
    assert sorted(list_runs(out)) == sorted(machine.trained)


@pytest.mark.parametrize("order", [1, -1])
def test_scheduler_existing_runs_not_repeated(order, make, machine, tmp_path) -> None:
    for name in ("a", "b"):
        store = ShardStore(tmp_path / name, [tmp_path / "a"] if name == "b" else [])
        make(25.0, store=store, deadline=machine.now + 25).run()
    existing = [tmp_path / name for name in "ab"][::order]
    make(store=ShardStore(tmp_path / "c", existing)).run()
    assert len(machine.trained) == len({*machine.trained}) == RUNS


def test_scheduler_uses_fastest_stored_time(plan, tmp_path) -> None:
    (cohort,) = (one for one in plan.cohorts if one.method == "fixed_threshold")
    changes = [{"wall_seconds": 60.0}, {"wall_seconds": 20.0}]
    changes += [{"device": "GPU", "wall_seconds": 0.1}, {"wall_seconds": None}]
    changes += [{"model": "smaller", "wall_seconds": 0.1}]
    changes += [{"status": "diverged", "diverged_at": 1, "wall_seconds": 0.2}]
    group = cohort.runs[: len(changes)]
    store = ShardStore(tmp_path)
    here = {"device": device_name("cpu")}
    rows = [run_row(cohort, run) | here | more for run, more in zip(group, changes, strict=True)]
    store.finish(store.start(cohort, group), ResultRows(rows, []))
    levels, planned = rank_runs(list_jobs([plan])), {task_of(cohort): 7.0}
    made = Scheduler(levels, planned, {}, store, lambda _: None, 0.0)
    assert made._run_seconds(cohort) == 70.0
    made._refresh()
    assert made._run_seconds(cohort) == 20.0
    assert made._run_seconds(plan.cohorts[0]) == 20.0  # another method, on the same data


def test_scheduler_runs_without_time_ignored(plan, tmp_path) -> None:
    """Rows of protected data have no time, because it depends on the batch sizes."""
    cohort, store = plan.cohorts[0], ShardStore(tmp_path)
    made = Scheduler(rank_runs(list_jobs([plan])), {task_of(cohort): 7.0}, {}, store, str, 0.0)
    for run, seconds in zip(cohort.runs[:3], (None, None, 20.0), strict=True):
        row = run_row(cohort, run) | {"device": device_name("cpu"), "wall_seconds": seconds}
        store.finish(store.start(cohort, (run,)), ResultRows([row], []))
        made._refresh()
    assert made._run_seconds(cohort) == 20.0


def test_scheduler_two_processes_share_runs(make, machine, out) -> None:
    def second() -> None:
        machine.meanwhile = lambda: None
        make(200.0).run()

    first = make(parallel=2)
    machine.meanwhile = second
    first.run()
    assert len(machine.trained) == len({*machine.trained}) == RUNS
    assert sorted(list_runs(out)) == sorted(machine.trained)


def test_scheduler_held_cohort_awaited(make, machine, said, plan, out) -> None:
    held = ShardStore(out).claim(plan.cohorts[0].name)
    held.__enter__()
    made = make(only=plan.cohorts[0].name)

    def release(seconds: float) -> None:
        machine.sleep(seconds)
        if machine.now > 60:
            held.__exit__(None, None, None)

    made.sleep = release
    made.run()
    assert len(machine.trained) == len(plan.cohorts[0].runs)
    assert said[0] == f"{plan.cohorts[0].name}: waits: {HELD}"
    assert said.count(said[0]) == 1


def test_scheduler_interrupt_ends_at_step(make, machine, out) -> None:
    def check() -> None:
        if machine.now >= 15:
            raise InterruptedByUser

    with pytest.raises(InterruptedByUser):
        make(check=check).run()
    assert machine.now == 15
    make().run()
    assert machine.asked[2][2] == 5
    assert len(machine.trained) == len({*machine.trained}) == RUNS


@pytest.mark.parametrize("step", [1, 5, 10])
def test_scheduler_killed_training_resumes_from_checkpoint(step, make, machine, out) -> None:
    machine.kill_at = step
    with pytest.raises(KilledError):
        make(parallel=3).run()
    make(parallel=5).run()
    assert [(len(runs), first) for _, runs, first in machine.asked[:2]] == [
        (3, 0),
        (3, step // 2 * 2),
    ]
    assert sorted(list_runs(out)) == sorted(machine.trained)
    assert len(machine.trained) == len({*machine.trained}) == RUNS


@pytest.mark.parametrize("moment", ["evaluations", "runs", "rename", "remove"])
def test_scheduler_killed_writing_loses_no_shard(moment, make, machine, out, monkeypatch) -> None:
    from oso_dp.scheduler import shard_store as module

    write_table, rmtree = module.write_table, module.shutil.rmtree

    def write(path, kind, rows) -> None:
        write_table(path, kind, rows)
        if kind == moment:
            raise KilledError

    def remove(path, **options) -> None:
        if path.parent.name == ".progress" and moment == "rename":
            raise KilledError
        rmtree(path, **options)
        if path.parent.name == ".progress" and moment == "remove":
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_table", write)
        patch.setattr(module.shutil, "rmtree", remove)
        with pytest.raises(KilledError):
            make(parallel=3).run()
    written = list_runs(out)
    assert len(written) == (3 if moment in ("rename", "remove") else 0)
    machine.trained = list(written)
    make(parallel=3).run()
    assert sorted(list_runs(out)) == sorted(machine.trained)
    assert len(machine.trained) == len({*machine.trained}) == RUNS
    assert not [*out.glob(".glyphs*"), *out.glob(".progress/*/state.pt")]


@pytest.mark.parametrize("there", [1, 3])
def test_shard_store_finished_group_dropped(there, plan, tmp_path) -> None:
    cohort = plan.cohorts[0]
    store = ShardStore(tmp_path)
    folder = store.start(cohort, cohort.runs[:3])
    assert store.list_started(cohort) == [cohort.runs[:3]]
    others = (*cohort.runs[:there], cohort.runs[3])
    rows = [row for run in others for row in score_rows(run, [cohort.steps])]
    store.finish(
        store.start(cohort, others), ResultRows([run_row(cohort, run) for run in others], rows)
    )
    assert store.list_started(cohort) == []
    assert not folder.exists()


@pytest.mark.parametrize("finished", [0, 1])
@pytest.mark.parametrize("public", [True, False])
def test_remove_unless_spent_keeps_finished_runs(public: bool, finished: int, plan, tmp_path):
    """Finished runs on private data are spent, also of a group that never ends."""
    cohort = plan.cohorts[0]
    folder = ShardStore(tmp_path).start(cohort, cohort.runs[:3])
    rows = [run_row(cohort, run) for run in cohort.runs[:finished]]
    save_checkpoint(folder / FINISHED_RUNS, "group", {"runs": rows, "evaluations": []})
    if not public:
        cohort = replace(cohort, budget_runs=2)
    kept = finished and not public
    assert remove_unless_spent(folder, cohort) != kept
    assert folder.exists() == kept


@pytest.mark.parametrize("public", [True, False])
def test_list_groups_leaves_out_set_aside(public: bool, make, plan) -> None:
    """Runs of a group that was set aside may be finished; on private data none is trained again."""
    cohort = plan.cohorts[0] if public else replace(plan.cohorts[0], budget_runs=2)
    made = make(parallel=3)
    made.set_aside.add(cohort.runs[:3])
    groups = [*made._list_groups(cohort, cohort.runs)]
    assert groups
    trained = {run for group in groups for run in group}
    assert trained.isdisjoint(cohort.runs[:3]) == (not public)


@pytest.mark.parametrize("method", ["online", "fixed_threshold"])
def test_scheduler_insufficient_noise_rejected(method, make, machine, plan) -> None:
    cohorts = [c if c.method != method else replace(c, noise_multiplier=0.3) for c in plan.cohorts]
    made = make(plan=replace(plan, cohorts=tuple(cohorts)))
    with pytest.raises(OsoError, match=rf"glyphs\.{method}.*: noise_multiplier: 0.3"):
        made.run()
    assert all(cohort.method != method for cohort, _, _ in machine.asked)


def test_scheduler_same_named_plans_separated(make, machine) -> None:
    plans = [make_plan(), make_plan(momentum=0.25), make_plan(batch_size=300, seeds=[5])]
    jobs = list_jobs(plans)
    make(levels=rank_runs(jobs), parallel=3).run()
    wanted = {run.run_id: job.cohort for job in jobs for run in job.cohort.runs}
    for cohort, run_ids, _ in machine.asked:
        assert all(wanted[run_id].columns == cohort.columns for run_id in run_ids)
        assert all(wanted[run_id].momentum == cohort.momentum for run_id in run_ids)
    assert sorted(machine.trained) == sorted(wanted)


SPOILED = {
    "empty": b"",
    "cut off": b'["a", "b',
    "no runs": b"[]",
    "nested without end": b"[" * 100_000,
    "longer than any": b"[" + b" " * (2 << 20) + b"]",
    "a path": b'["../../outside"]',
}


@pytest.fixture
def started(make, machine, tmp_path):
    """The runs.json of a group that was killed in training, after one finished group."""
    make(25.0, "online", 2).run()
    machine.kill_at = 3
    with pytest.raises(KilledError):
        make(parallel=2).run()
    (path,) = (tmp_path / "out/.progress").glob("*/runs.json")
    return path


def check_finished(make, machine, out) -> None:
    make(parallel=2).run()
    found = list_runs(out)
    assert len(found) == len({*found}) == RUNS
    assert sorted(machine.trained) == sorted(found)


@pytest.mark.parametrize("name", SPOILED)
def test_shard_store_damaged_group_set_aside(
    name, started, make, machine, tmp_path, caplog
) -> None:
    started.write_bytes(SPOILED[name])
    check_finished(make, machine, tmp_path / "out")
    (line,) = caplog.messages
    assert line.startswith(
        f"{started}: damaged, or of an older version; renamed to runs.json.damaged"
    )
    assert "\n" not in line


def test_shard_store_partial_group_recovered(started, make, machine, tmp_path) -> None:
    started.write_bytes(json.dumps(json.loads(started.read_bytes())[:1]).encode())
    check_finished(make, machine, tmp_path / "out")


def test_shard_store_group_pipe_rejected(started, make, machine, tmp_path) -> None:
    started.unlink()
    os.mkfifo(started)
    with pytest.raises(OsoError, match=r"runs\.json: cannot be read \(not a regular file\)"):
        make().run()
    started.unlink()
    check_finished(make, machine, tmp_path / "out")


def test_shard_store_foreign_folders_kept(started, make, machine, tmp_path, caplog) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    cohort = started.parent.name.rpartition(".")[0]
    other = started.parent.with_name(f"{cohort}.random_stopping.0123456789ab")
    other.mkdir()
    for folder in (outside, other):
        (folder / "runs.json").write_text("[]")
    started.parent.with_name(f"{cohort}.{'0' * 12}").symlink_to(outside)
    check_finished(make, machine, tmp_path / "out")
    assert (other / "runs.json").exists()
    assert (outside / "runs.json").exists()
    assert caplog.messages == []


@pytest.mark.parametrize("content", [b"", b"PAR1" * 99])
def test_shard_store_damaged_shard_rejected(content, make, tmp_path) -> None:
    make(only="online").run()
    shard = list_stores(tmp_path / "out")[0]
    (shard / "runs.parquet").write_bytes(content)
    with pytest.raises(OsoError, match=f"{shard.name}/runs.parquet: not a readable Parquet file"):
        ShardStore(tmp_path / "out")
    assert len(list_stores(tmp_path / "out")) == 4
