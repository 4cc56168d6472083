"""Plans that were edited, or that plan what cannot be: refused before the first step."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from oso_dp.errors import OsoError
from oso_dp.study.calibration import check_budget
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan, make_plan_with_noise, read_plan, write_plan
from oso_dp.study.strict_yaml import read_yaml

from .conftest import COHORT, STUDY, content, refused

# Of the private cohort's entry: a key, and another value than was planned.
EDITED = {
    "noise_multiplier": 0.7,
    "query_noise_multiplier": 3.0,
    "steps": 5,
    "sampling_rate": 0.01,
    "epsilon": 9.0,
    "delta": 1e-3,
    "runs": 1,
    "batch_size": 60,
    "epochs": 2,
    "examples": 60_000,
    "k": 3,
    "search_accounting": "random_stopping",
    "seeds": [7],
    "points": [[1.0, 0.1, None]],
    "run_ids": "0",
    "method": "fixed_threshold",
    "dataset": "mnist",
    "digest": "0",
}
# Of the whole file.
BROKEN = {
    "empty": ("", "not a plan"),
    "a list": ("[]", "not a plan"),
    "a word": ('"plan"', "not a plan"),
    "no version": ("{}", "plan version 1; must be 4"),
    "an older version": ('{"version": 2, "config": {}}', "plan version 2"),
    "a newer version": ('{"version": 99}', "plan version 99"),
    "nothing but its version": ('{"version": 4}', "not a plan"),
    "no cohorts": ('{"version": 4, "cohorts": 1, "digest": ""}', "not a plan"),
    "cohorts that are none": ('{"version": 4, "cohorts": [1], "digest": ""}', "not a plan"),
    "cut off": ('{"version": 4, "cohorts": [', "not a plan"),
    "not a text": (b"\xff\xfe\x00\x01" * 1000, "not a plan"),
    "deep": ("[" * 100_000, "not a plan"),
}
READERS = {
    "train": ["train", "--plan", "bad.json", "--cohort", COHORT, "--data", "x", "--output", "new"],
    "account": ["account", "part", "--plan", "bad.json"],
    "collect": ["collect", "part", "--store", "store", "--plan", "bad.json"],
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("key", EDITED)
def test_a_plan_that_was_edited_is_read_by_no_command(key, reader, place, oso) -> None:
    plan = json.loads((place / "plan.json").read_text())
    assert plan["cohorts"][0][key] != EDITED[key]
    plan["cohorts"][0][key] = EDITED[key]
    (place / "bad.json").write_text(json.dumps(plan))
    before = content(place)
    refused(oso(*READERS[reader]), f"bad.json: {COHORT} was edited after")
    assert content(place) == before


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_plan_is_named(case, reader, place, oso) -> None:
    text, said = BROKEN[case]
    (place / "bad.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    before = content(place)
    refused(oso(*READERS[reader]), "bad.json: ", said)
    assert content(place) == before


def planned(share: float):
    """The study with so much of the noise that it asks for, digests and all."""
    config = parse_config(read_yaml(STUDY, "study.yaml"), "study.yaml")
    noise = {cohort.name: share * cohort.noise_multiplier for cohort in read_plan(PLAN).cohorts}
    return make_plan_with_noise(config, noise)


PLAN = Path("plan.json")


@pytest.mark.parametrize("share", [0.999, 0.5])
def test_too_little_noise_is_not_trained_with_whoever_planned_it(share, place, oso) -> None:
    """A digest tells that a plan is as it was written, not that what was written is right."""
    write_plan(planned(share), place / "bad.json")
    refused(oso(*READERS["train"]), f"{COHORT}: noise_multiplier", "the budget of 3")
    assert not (place / "new").exists()


def test_of_a_plans_cohorts_it_is_the_one_to_be_trained_that_has_to_keep_its_budget(
    place, oso
) -> None:
    """Not the first: here the one at epsilon = 9 alone has too little noise."""
    text = STUDY.replace("epsilons: [3]", "epsilons: [3, 9]")
    plan = make_plan(parse_config(read_yaml(text, "x"), "x"))
    cohorts = [
        replace(one, noise_multiplier=0.9 * one.noise_multiplier) if one.epsilon == 9 else one
        for one in plan.cohorts
    ]
    write_plan(replace(plan, cohorts=tuple(cohorts)), place / "bad.json")
    train = [
        word if word != COHORT else COHORT.replace("eps3", "eps9") for word in READERS["train"]
    ]
    refused(oso(*train), "glyphs.online.k2.eps9: noise_multiplier", "the budget of 9")
    assert not (place / "new").exists()
    refused(oso(*READERS["train"]), "x: ")  # it came as far as the data


def test_where_nobody_can_compute_it_the_plan_is_believed(place, monkeypatch) -> None:
    cohorts = planned(0.5).cohorts
    with pytest.raises(OsoError, match="would cost epsilon"):
        check_budget(cohorts)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)  # as where it is not installed
    check_budget(cohorts)


DEARER = {"grid_runs": 3, "delta": 1e-7, "epochs": 2, "batch_size": 1200, "epsilon": 2.9}


@pytest.mark.parametrize("name", DEARER)
def test_whatever_the_price_rests_on_is_looked_at(name, place) -> None:
    cohort = planned(1.0).cohorts[0]
    check_budget([cohort])
    with pytest.raises(OsoError, match="would cost epsilon"):
        check_budget([replace(cohort, **{name: DEARER[name]})])


def test_the_shipped_plan_is_affordable(repo) -> None:
    check_budget(read_plan(repo / "results/plan.json").cohorts[::9])


def test_the_copy_is_valid(place, oso) -> None:
    """The cases above are refused for what they change, and for nothing else."""
    shutil.copy("plan.json", "bad.json")
    assert oso(*READERS["collect"])[0] == 0
