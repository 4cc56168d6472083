"""What others wrote into a campaign's folder: set aside or named, and no finished run is lost."""

import json
import os
from dataclasses import replace

import pytest

from oso_dp.campaign.order import all_work
from oso_dp.campaign.parts import Parts
from oso_dp.errors import OsoError
from oso_dp.results.read import read_results

SPOILED = {
    "empty": b"",
    "cut off": b'["a", "b',
    "no text": b"\xff\xfe[]",
    "no list": b'{"a": 1}',
    "no runs": b"[]",
    "nested without end": b"[" * 100_000,
    "numbers": b"[1, 2]",
    "half a letter": b'["\\ud800"]',
    "longer than any": b"[" + b" " * (2 << 20) + b"]",
    "a path": b'["../../outside"]',
}


@pytest.fixture
def begun(campaign, machine, tmp_path):
    """A campaign that was killed in its second group; the file that says which runs it has."""
    machine.kill_at = 99
    made = campaign(runs_at_once=2)
    per_step = machine.per_step

    def slow(method, size):
        if len(machine.begun) == 2:
            machine.kill_at = 3
        return per_step(method, size)

    machine.per_step = slow
    with pytest.raises(machine.KilledError):
        made.run()
    machine.per_step = per_step
    (path,) = (tmp_path / "out/.progress").glob("*/runs.json")
    return path


def finish(campaign, machine, tmp_path) -> None:
    """Every run is there once; those that were done were not trained again."""
    done = list(machine.trained)
    campaign(runs_at_once=2).run()
    parts = sorted((tmp_path / "out").glob("[!.]*"))
    ids = [run for part in parts for run in read_results(part).runs["run_id"]]
    assert len(ids) == len(set(ids)) == 16
    assert machine.trained[: len(done)] == done
    assert sorted(machine.trained) == sorted(ids)


def test_a_spoiled_list_of_a_group_is_set_aside(begun, plan, tmp_path, caplog) -> None:
    parts = Parts(tmp_path / "out")
    (cohort,) = [one for one in plan.cohorts if begun.parent.name.startswith(f"{one.name}.")]
    sound = begun.read_bytes()
    run = json.loads(sound)[0]
    twice = {"a run twice": json.dumps([run, run]).encode()}
    for content in (SPOILED | twice).values():
        begun.write_bytes(content)
        assert parts.started(cohort) == []
        line = caplog.messages.pop()
        assert line.startswith(f"{begun}: damaged, or of an older version; now runs.json.damaged")
        assert "\n" not in line
        assert begun.with_name("runs.json.damaged").read_bytes() == content
        caplog.clear()
    begun.write_bytes(sound)
    assert [[run.run_id for run in group] for group in parts.started(cohort)] == [json.loads(sound)]


def test_a_group_in_anothers_folder_ends(begun, campaign, machine, tmp_path) -> None:
    """Its runs were once trained again in each round, without end."""
    begun.write_bytes(json.dumps(json.loads(begun.read_bytes())[:1]).encode())
    finish(campaign, machine, tmp_path)


def test_a_list_that_is_no_file_is_named(begun, campaign, machine, tmp_path) -> None:
    """A pipe that nobody writes to must not be waited for."""
    begun.unlink()
    os.mkfifo(begun)
    with pytest.raises(OsoError, match=r"runs\.json: cannot be read \(not a regular file\)"):
        campaign().run()
    begun.unlink()
    finish(campaign, machine, tmp_path)


def test_folders_of_other_names_are_left(begun, campaign, machine, tmp_path, caplog) -> None:
    """Another cohort's, whose name begins the same, is none of ours; nor is a link elsewhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "runs.json").write_text("[]")
    cohort = begun.parent.name.rpartition(".")[0]
    other = begun.parent.with_name(f"{cohort}.random_stopping.0123456789ab")
    other.mkdir()
    (other / "runs.json").write_text("[]")
    link = begun.parent.with_name(f"{cohort}.{'0' * 12}")
    link.symlink_to(outside)
    finish(campaign, machine, tmp_path)
    assert (other / "runs.json").exists()
    assert [path.name for path in outside.iterdir()] == ["runs.json"]
    assert caplog.messages == []


def test_a_part_that_others_spoiled_is_named_and_stays(campaign, machine, tmp_path) -> None:
    campaign().run()
    out = tmp_path / "out"
    part = sorted(out.glob("[!.]*"))[0]
    (part / "runs.parquet").write_bytes(b"PAR1")
    with pytest.raises(OsoError, match=f"{part.name}/runs.parquet: not a readable Parquet file"):
        Parts(out)
    assert len(list(out.glob("[!.]*"))) == 16


@pytest.mark.parametrize("place", [0, 1])
def test_a_plan_that_asks_for_too_little_noise_is_not_trained(
    place, campaign, machine, plan
) -> None:
    """Whoever wrote it so: its runs would cost more than the budget that their rows claim."""
    works = [work for work in all_work([plan]) if work.cohort.private]
    made = campaign(everything=works)
    made.run()
    trained = len(machine.trained)
    assert trained == sum(len(work.cohort.runs) for work in works)
    few = replace(works[place].cohort, noise_multiplier=0.3)
    spoiled = [replace(work, cohort=few) if i == place else work for i, work in enumerate(works)]
    made.parts.done.difference_update(run.run_id for run in few.runs)
    with pytest.raises(OsoError, match=f"{few.name}: noise_multiplier"):
        campaign(everything=spoiled, parts=made.parts).run()
    assert len(machine.trained) == trained
