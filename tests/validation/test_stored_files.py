"""Plans and rows that cannot be true: no command takes them, and no file changes."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from oso_dp.errors import OsoError
from oso_dp.study.calibration import check_budget
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan, make_plan_with_noise, read_plan, write_plan
from oso_dp.study.strict_yaml import read_yaml

from .conftest import COHORT, STUDY, content, read, refused, write

# Of the private cohort's entry: a key, and another value than was planned.
EDITED = {
    "noise_multiplier": 0.7,
    "delta": 1e-3,
    "examples": 60_000,
    "search_accounting": "random_stopping",
    "points": [[1.0, 0.1, None]],
    "digest": "0",
}
PLAN_READERS = {
    "train": ["train", "--plan", "bad.json", "--cohort", COHORT, "--data", "x", "--output", "new"],
    "account": ["account", "part", "--plan", "bad.json"],
    "collect": ["collect", "part", "--store", "store", "--plan", "bad.json"],
}


@pytest.mark.parametrize(
    ("key", "reader"),
    [*((key, "account") for key in EDITED), ("delta", "train"), ("delta", "collect")],
)
def test_read_plan_edited_file_rejected(key, reader, place, oso) -> None:
    plan = json.loads((place / "plan.json").read_text())
    assert plan["cohorts"][0][key] != EDITED[key]
    plan["cohorts"][0][key] = EDITED[key]
    (place / "bad.json").write_text(json.dumps(plan))
    before = content(place)
    refused(oso(*PLAN_READERS[reader]), f"bad.json: {COHORT} was edited after")
    assert content(place) == before


def planned(share: float):
    """The study with so much of the noise that it asks for, digests and all."""
    config = parse_config(read_yaml(STUDY, "study.yaml"), "study.yaml")
    noise = {cohort.name: share * cohort.noise_multiplier for cohort in read_plan(PLAN).cohorts}
    return make_plan_with_noise(config, noise)


PLAN = Path("plan.json")


@pytest.mark.parametrize("share", [0.999, 0.5])
def test_train_insufficient_noise_rejected(share, place, oso) -> None:
    write_plan(planned(share), place / "bad.json")
    refused(oso(*PLAN_READERS["train"]), f"{COHORT}: noise_multiplier", "the budget of 3")
    assert not (place / "new").exists()


def test_train_later_cohort_above_budget_rejected(place, oso) -> None:
    """Only the later cohort, at epsilon = 9, has too little noise."""
    text = STUDY.replace("epsilons: [3]", "epsilons: [3, 9]")
    plan = make_plan(parse_config(read_yaml(text, "x"), "x"))
    cohorts = [
        replace(one, noise_multiplier=0.9 * one.noise_multiplier) if one.epsilon == 9 else one
        for one in plan.cohorts
    ]
    write_plan(replace(plan, cohorts=tuple(cohorts)), place / "bad.json")
    train = [
        word if word != COHORT else COHORT.replace("eps3", "eps9") for word in PLAN_READERS["train"]
    ]
    refused(oso(*train), "glyphs.online.k2.eps9: noise_multiplier", "the budget of 9")
    assert not (place / "new").exists()
    refused(oso(*PLAN_READERS["train"]), "x: ")  # it came as far as the data


def test_check_budget_without_dp_accounting_skipped(place, monkeypatch) -> None:
    cohorts = planned(0.5).cohorts
    with pytest.raises(OsoError, match="would cost epsilon"):
        check_budget(cohorts)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)  # as where it is not installed
    check_budget(cohorts)


DEARER = {"grid_runs": 3, "delta": 1e-7, "epochs": 2, "batch_size": 1200, "epsilon": 2.9}


@pytest.mark.parametrize("name", DEARER)
def test_check_budget_costlier_cohort_rejected(name, place) -> None:
    cohort = planned(1.0).cohorts[0]
    check_budget([cohort])
    with pytest.raises(OsoError, match="would cost epsilon"):
        check_budget([replace(cohort, **{name: DEARER[name]})])


def test_check_budget_shipped_plan_passes(repo) -> None:
    check_budget(read_plan(repo / "results/plan.json").cohorts[::9])


# The first row is of online, k = 2, epsilon = 3: table, column, value, what is said.
CASES = [
    ("runs", "run_id", None, "1 rows without run_id"),
    ("runs", "epsilon", math.inf, "epsilon: inf; must be > 0"),
    ("runs", "epsilon", None, "epsilon is missing"),
    ("runs", "method", "magic", "method: 'magic'; must be one of"),
    ("runs", "noise_multiplier", 1e6, "its ledger has noise multiplier"),
    ("runs", "query_noise_multiplier", math.inf, "query_noise_multiplier: inf; must be > 0"),
    ("runs", "examples", 7000, "its ledger has sampling rate"),
    ("runs", "steps", 10**9, "its ledger has 10 steps, the row 1000000000"),
    ("runs", "status", "diverged", "diverged_at is missing"),
    ("runs", "method_options", None, "method_options is missing"),
    ("runs", "search_accounting", "linear_scaling", "trial_fractions: None; must be two numbers"),
    ("runs", "ledger", "hello", "ledger: not readable"),
    ("evaluations", "value", 2.0, "value: 2.0; an accuracy must be <= 1"),
    ("evaluations", "value", None, "value is missing"),
    ("evaluations", "step", None, "1 rows without run_id or step or split"),
    ("evaluations", "split", "train", "split: 'train'; must be one of test, test_even, test_odd"),
    ("evaluations", "run_id", "nobody", "evaluations of run nobody have no row in runs.parquet"),
]


@pytest.mark.parametrize(("kind", "column", "value", "said"), CASES)
def test_read_results_impossible_value_rejected(kind, column, value, said, place, oso) -> None:
    rows = read(place / "part", kind)
    rows[0][column] = value
    write(place / "part", kind, rows)
    before = content(place)
    refused(oso("account", "part", "--plan", "plan.json"), "part", said)
    refused(oso("collect", "part", "--store", "store"), "part", said)
    refused(oso("report", "--results", "part", "--output", "shown"), "part", said)
    assert content(place) == before


@pytest.mark.parametrize("command", ["account", "collect"])
def test_read_results_missing_evaluations_rejected(command, place, oso) -> None:
    first = read(place / "part", "runs")[0]["run_id"]
    rows = read(place / "part", "evaluations")
    write(place / "part", "evaluations", [row for row in rows if row["run_id"] != first])
    before = content(place)
    said = f"run {first} is finished, but has no row in evaluations.parquet"
    refused(oso(command, "part", *(["--store", "store"] if command == "collect" else [])), said)
    assert content(place) == before


def test_read_results_valid_part_accepted(place, oso) -> None:
    assert oso("account", "part")[0] == 0
    assert oso("collect", "part", "--store", "new", "--plan", "plan.json")[0] == 0
    assert oso("summary", "--results", "new")[0] == 0
