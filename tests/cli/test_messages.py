"""What a command says: what is allowed, which file, one or several."""

from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from oso_dp import data as data_room
from oso_dp.study.plan import read_plan

COHORT = "glyphs.online.k2.eps3"


def refused(outcome, *parts: str) -> str:
    status, _, error = outcome
    assert (status, error.count("\n")) == (2, 1)
    for part in parts:
        assert part in error
    return error


def test_a_data_set_of_an_installed_package_is_among_the_allowed(oso, study, monkeypatch) -> None:
    wanted = ("data", "nosuch", "--output", "x.npz")
    refused(oso(*wanted), "data set 'nosuch': ")
    offered = [EntryPoint("patients", "a:b", "oso_dp.data").name]
    monkeypatch.setattr(data_room, "list_plugins", lambda: offered)
    refused(oso(*wanted), "patients")


def test_the_cohorts_of_a_plan_are_named(oso, study) -> None:
    given = ("--plan", "plan.json", "--data", "glyphs.npz", "--output", "part")
    refused(oso("train", *given, "--cohort", "nosuch"), "cohort: 'nosuch'", f"are {COHORT}")


def test_somebody_elses_archive_is_no_data_file_and_stays(oso, collected) -> None:
    np.savez("foreign.npz", a=np.array([{}], dtype=object))
    given = ("collect", "part", "--store", "store", "--data")
    error = refused(
        oso(*given, "foreign.npz"), "foreign.npz: truncated, or not a data file written by"
    )
    assert "pickle" not in error
    assert "remove" not in error
    refused(oso(*given, "none.npz"), "none.npz: cannot read data file (No such file")
    train = ("train", "--plan", "plan.json", "--cohort", COHORT, "--output", "new", "--data")
    assert "remove" not in refused(
        oso(*train, "foreign.npz"), "foreign.npz: truncated, or not a data file written by `oso"
    )


def test_randomness_for_protection_is_not_said_to_protect_nothing(oso, study, repo) -> None:
    text = (repo / "config/ci/smoke.yaml").read_text(encoding="utf-8")
    Path("system.yaml").write_text(f"{text}\nrandomness: system\n")
    assert oso("plan", "--config", "system.yaml", "--output", "system.json")[0] == 0
    cohort = next(one.name for one in read_plan(Path("system.json")).cohorts if one.is_private)
    given = ("--cohort", cohort, "--data", "glyphs.npz", "--output", "x.csv")
    error = refused(
        oso("diagnose", "cosine", "--plan", "system.json", *given),
        "system.json: randomness: system",
    )
    assert "these do not" not in error
    assert "must be seeded" in error


def test_the_steps_that_are_looked_at_stand_in_the_help(oso) -> None:
    assert "100, 250, 500, 750, 950" in " ".join(oso("diagnose", "cosine", "--help")[1].split())


def test_one_is_one(oso, repo, tmp_path) -> None:
    size = ("--examples", 6000, "--batch-size", 6000, "--epochs", 1, "--runs", 1)
    assert "for 1 run of 1 step at" in oso("calibrate", "--epsilon", 3, *size)[1]
    text = (repo / "config/ci/smoke.yaml").read_text(encoding="utf-8")
    head = text.partition("methods:")[0] + "methods:\n  online: {}\n"
    (tmp_path / "one.yaml").write_text(f"{head}values_per_axis: [1]\nseeds: [0]\n")
    status, output, error = oso("plan", "--config", tmp_path / "one.yaml")
    assert status == 0, error
    assert "in 1 cohort and" in output


def test_a_grid_without_the_papers_points_names_its_file(oso, tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\ndatasets: {mnist: {model: cnn, epsilons: [9], seconds_per_step: "
        "1}}\nmethods: {fixed_threshold: {}}\nvalues_per_axis: [9]\nseeds: [0]\ngrid_points: "
        "paper_best\ngrid: {log10_learning_rate: [-2, 1]}\n"
    )
    refused(oso("plan", "--config", path), f"error: {path}: table ", "not a point of the grid")


@pytest.mark.parametrize("skip", [True, False])
def test_what_nothing_is_left_without_is_not_left_out(study, skip) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "oso_dp.scheduler", "--minutes", "1", "--results", "out"]
    command += ["--plan", "plan.json", "--data", "nowhere", *["--skip-missing"] * skip]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    error = refused((done.returncode, "", done.stderr), "nowhere/glyphs.npz: no such file")
    assert ("--skip-missing" in error) == (not skip)
