"""When a campaign stops, goes on, and shares its folder with another; by a fake clock."""

from pathlib import Path

import pytest
from tests.planned_rows import run_row, score_rows

from oso_dp.campaign import campaign as module
from oso_dp.campaign import parts as parts_module
from oso_dp.campaign.control import StoppedError
from oso_dp.campaign.order import all_work
from oso_dp.campaign.parts import Parts
from oso_dp.errors import OsoError
from oso_dp.results.read import read_results
from oso_dp.training.job import Rows

RUNS = 16  # of the small study: online 4, no_dp 4, fixed_threshold 8; of 10 steps each


def complete(folder: Path) -> list[str]:
    """The runs in all parts, each of which must be sound."""
    parts = sorted(folder.glob("[!.]*"))
    return [run_id for part in parts for run_id in read_results(part).runs["run_id"]]


def test_the_most_valuable_runs_go_first(campaign, machine, plan) -> None:
    dear = next(cohort for cohort in plan.cohorts if cohort.method == "fixed_threshold")
    best = {run.run_id for run in dear.runs[2:4]}
    campaign(best=best, runs_at_once=64).run()
    assert set(machine.trained[:2]) == best
    assert [size for _, size, _ in machine.begun] == [2, 4, 4, 6]
    assert len(set(machine.trained)) == RUNS


@pytest.mark.parametrize("seconds", [0.5, 41.0, 97.5, 1000.0])
@pytest.mark.parametrize("at_once", [1, 5])
def test_it_stops_in_time_with_complete_runs_only(
    seconds, at_once, campaign, machine, tmp_path
) -> None:
    machine.per_step = lambda method, size: 0.5 + 0.25 * size
    made = campaign(seconds, runs_at_once=at_once)
    made.run()
    assert machine.now <= seconds + machine.per_step("", at_once)
    assert sorted(complete(tmp_path / "out")) == sorted(machine.trained)
    assert sum(runs for _, runs in made.left) == RUNS - len(machine.trained)
    assert made.runs == len(machine.trained)
    if seconds == 1000.0:
        assert made.runs == RUNS
        assert made.hours_left == 0


def test_what_cannot_end_by_the_estimate_is_not_begun(campaign, machine) -> None:
    """Runs of 10 s each, 25 s in all: two of them, and no third, of no method."""
    made = campaign(25.0, runs_at_once=1)
    made.run()
    assert len(machine.begun) == len(machine.trained) == 2
    assert machine.now == 20.0
    assert made.hours_left == pytest.approx(14 * 10 / 3600)


def test_what_would_end_just_in_time_is_not_begun(campaign, machine) -> None:
    """10 s a run: 10.2 s are left after the first, and one that is a little slower is lost."""
    campaign(20.2, runs_at_once=1).run()
    assert len(machine.begun) == len(machine.trained) == 1
    machine.now = 0.0
    campaign(10.6, runs_at_once=1).run()  # by now its speed is known
    assert len(machine.begun) == len(machine.trained) == 2


def test_what_came_meanwhile_is_seen_at_the_end_whatever_ended_it(
    campaign, machine, plan, tmp_path
) -> None:
    """From others that write to the same folder."""
    cohort = plan.cohorts[-1]
    (*_, last) = cohort.runs

    def stop() -> None:
        rows = Rows([run_row(cohort, last)], score_rows(last, [cohort.steps]))
        Parts(tmp_path / "out").write(cohort, [last], rows)
        raise StoppedError

    made = campaign(look=stop)
    made.run()
    assert (machine.trained, made.parts.trained) == ([], 1)
    assert last.run_id in made.parts.done


@pytest.mark.parametrize("there", [1, 2, 3])
def test_a_group_of_which_some_were_trained_elsewhere_is_forgotten(there, plan, tmp_path) -> None:
    """Its checkpoint is one of all: what is left of it is trained anew, in another group."""
    cohort = plan.cohorts[0]
    group = cohort.runs[:3]
    parts = Parts(tmp_path / "out")
    folder = parts.begin(cohort, group)
    assert parts.started(cohort) == [group]
    runs = group[:there]
    rows = [row for run in runs for row in score_rows(run, [cohort.steps])]
    others = (*runs, cohort.runs[3])  # that were trained together
    rows += score_rows(cohort.runs[3], [cohort.steps])
    parts.write(cohort, others, Rows([run_row(cohort, run) for run in others], rows))
    assert parts.started(cohort) == []
    assert not folder.exists()


def test_the_rest_of_the_time_goes_to_smaller_groups(campaign, machine) -> None:
    """40 s for a group of four: after the first, 30 s are left for one of two and one of one."""
    machine.per_step = lambda method, size: size
    campaign(71.0, "fixed_threshold", runs_at_once=4).run()
    assert [size for _, size, _ in machine.begun] == [4, 2, 1]
    assert machine.now == 70.0


def test_a_smaller_group_that_saves_nothing_is_seen_by_its_first_steps(campaign, machine) -> None:
    machine.per_step = lambda method, size: 4.0
    campaign(75.0, "fixed_threshold", runs_at_once=4).run()
    assert [size for _, size, _ in machine.begun] == [4, 2, 1]
    assert machine.now == 40.0 + 2 * 8.0  # two steps each, to see it
    assert len(machine.trained) == 4


def test_a_group_that_is_too_slow_leaves_nothing_behind(campaign, machine, tmp_path) -> None:
    machine.per_step = lambda method, size: 80.0
    campaign(60.0).run()
    assert machine.now == 80.0
    assert not list((tmp_path / "out" / ".progress").glob("*/runs.json"))


def test_a_group_cut_off_goes_on_in_the_next_call(campaign, machine, tmp_path) -> None:
    """Slower towards its end than at its beginning, which no estimate could tell."""
    machine.per_step = lambda method, size: 1.0 if machine.now < 7.0 else 5.0
    campaign(15.0, "fixed_threshold", runs_at_once=3).run()
    assert complete(tmp_path / "out") == []
    machine.begun.clear()
    campaign(runs_at_once=64).run()
    after = [(size, step) for name, size, step in machine.begun if "fixed_threshold" in name]
    assert after == [(3, 8), (5, 0)]  # the same runs together, whatever the size is now
    assert len(machine.trained) == len(set(machine.trained)) == RUNS


def test_too_little_memory_halves_the_groups(campaign, machine, tmp_path) -> None:
    machine.memory = 3
    campaign(runs_at_once=8).run()
    assert max(size for _, size, _ in machine.begun[2:]) == 2
    assert sorted(complete(tmp_path / "out")) == sorted(set(machine.trained))
    assert len(machine.trained) == RUNS


def test_too_little_memory_for_one_run_is_said(campaign, machine) -> None:
    machine.memory = 0
    with pytest.raises(OsoError, match=r"glyphs\..*: the device's memory is too small"):
        campaign().run()


def test_a_second_call_trains_nothing_again(campaign, machine, tmp_path) -> None:
    campaign(35.0, runs_at_once=3).run()
    before = list(machine.trained)
    assert 0 < len(before) < RUNS
    campaign(runs_at_once=5).run()
    assert len(machine.trained) == len(set(machine.trained)) == RUNS
    assert sorted(complete(tmp_path / "out")) == sorted(machine.trained)
    campaign().run()
    assert len(machine.trained) == RUNS


def test_what_another_folder_holds_is_not_trained(campaign, machine, tmp_path) -> None:
    campaign(35.0, runs_at_once=3).run()
    other = Parts(tmp_path / "other", have=[tmp_path / "out"])
    campaign(parts=other, runs_at_once=3).run()
    assert len(machine.trained) == len(set(machine.trained)) == RUNS
    both = complete(tmp_path / "out") + complete(tmp_path / "other")
    assert sorted(both) == sorted(machine.trained)


@pytest.mark.parametrize("order", [1, -1])
def test_what_any_of_several_folders_holds_is_not_trained(order, plan, tmp_path) -> None:
    """Under the system's entropy it would be trained with other noise, and paid for twice."""
    kept = []
    for place, cohort in enumerate(plan.cohorts[:3]):
        folder = Parts(tmp_path / f"out{place}")
        run = cohort.runs[0]
        scores = score_rows(run, [cohort.steps])
        folder.write(cohort, [run], Rows([run_row(cohort, run)], scores))
        kept.append(run.run_id)
    folders = [tmp_path / f"out{place}" for place in range(3)][::order]
    assert len(set(kept)) == 3
    assert Parts(tmp_path / "other", have=folders).done == set(kept)


def test_speeds_are_those_of_whole_runs_on_this_device(plan, tmp_path) -> None:
    """Of 10 steps; their median, so that one run beside a busy neighbour changes nothing."""
    (cohort,) = (one for one in plan.cohorts if one.method == "fixed_threshold")
    gone = {"status": "diverged", "diverged_at": 1, "wall_seconds": 0.2}
    others = [{"device": "a GPU", "wall_seconds": 0.1}, gone, {"wall_seconds": None}]
    changed = [*({"wall_seconds": 10.0 * each} for each in (1, 2, 6)), *others]
    group = cohort.runs[: len(changed)]
    rows = [run_row(cohort, run) | more for run, more in zip(group, changed, strict=True)]
    parts = Parts(tmp_path / "out")
    parts.write(cohort, group, Rows(rows, []))
    assert parts.measured("cpu", all_work([plan])) == [(cohort, 2.0)]


def test_a_group_that_diverged_early_says_nothing_of_the_speed(
    campaign, machine, monkeypatch
) -> None:
    """Its seconds are not those of all its steps."""

    def diverge(cohort, runs, arrays, folder, device, at_once, on_progress, clock) -> Rows:
        for step in (1, 2):
            machine.now += 1.0
            on_progress(0, step)
        gone = {"status": "diverged", "diverged_at": 2}
        return Rows([run_row(cohort, run) | gone for run in runs], [])

    monkeypatch.setattr(module, "run_job", diverge)
    made = campaign(only="online", runs_at_once=4)
    made.run()
    assert (made.runs, made.groups) == (4, 1)
    assert not made.speed.known


def test_a_group_that_went_on_is_as_slow_as_its_steps(campaign, machine) -> None:
    """What came before the kill took no time of this call's."""
    machine.kill_at = 5
    with pytest.raises(machine.KilledError):
        campaign(only="online", runs_at_once=4).run()
    made = campaign(only="online", runs_at_once=4)
    made.run()
    (work,) = made.everything
    assert machine.begun[-1] == (work.cohort.name, 4, 4)
    assert made.speed.group_seconds(work.cohort, 4) == pytest.approx(10.0)


def test_two_campaigns_at_once_share_the_work(campaign, machine, tmp_path) -> None:
    """The second one starts, and takes all it can, while the first trains its first group."""

    def second() -> None:
        machine.meanwhile = lambda: None
        campaign(runs_at_once=1).run()

    first = campaign(runs_at_once=2)
    machine.meanwhile = second
    first.run()
    assert len(machine.trained) == len(set(machine.trained)) == RUNS
    assert sorted(complete(tmp_path / "out")) == sorted(machine.trained)
    assert first.left == []


@pytest.mark.parametrize("step", [1, 2, 5, 10])
def test_a_kill_while_training_loses_no_part(step, campaign, machine, tmp_path) -> None:
    machine.kill_at = step
    with pytest.raises(machine.KilledError):
        campaign(runs_at_once=3).run()
    campaign(runs_at_once=3).run()
    assert [each[2] for each in machine.begun[:2]] == [0, step // 2 * 2]
    assert sorted(complete(tmp_path / "out")) == sorted(machine.trained)
    assert len(machine.trained) == len(set(machine.trained)) == RUNS


@pytest.mark.parametrize("moment", ["first table", "second table", "renamed", "progress dropped"])
def test_a_kill_while_writing_leaves_a_part_whole_or_absent(
    moment, campaign, machine, tmp_path, monkeypatch
) -> None:
    """At any moment the folder can be collected, and a second call completes it."""
    with monkeypatch.context() as patch:
        if "table" in moment:
            write_table, kinds = parts_module.write_table, []

            def write(path, kind, rows) -> None:
                write_table(path, kind, rows)
                kinds.append(kind)
                if len(kinds) == (1 if moment == "first table" else 2):
                    raise machine.KilledError

            patch.setattr(parts_module, "write_table", write)
        else:
            drop = Parts.drop

            def die(self, cohort, group) -> None:
                if moment == "progress dropped":
                    drop(self, cohort, group)
                raise machine.KilledError

            patch.setattr(Parts, "drop", die)
        with pytest.raises(machine.KilledError):
            campaign(runs_at_once=3).run()
    written = complete(tmp_path / "out")
    assert len(written) == (0 if "table" in moment else 3)
    machine.trained = list(written)
    campaign(runs_at_once=3).run()
    assert sorted(complete(tmp_path / "out")) == sorted(machine.trained)
    assert len(machine.trained) == len(set(machine.trained)) == RUNS
    assert not list((tmp_path / "out").glob(".glyphs*"))
    assert not list((tmp_path / "out" / ".progress").glob("*/state.pt"))
