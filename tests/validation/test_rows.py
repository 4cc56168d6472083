"""Rows that cannot be true: no reader takes them, and collect leaves the store as it was."""

import math

import pytest

from oso_dp.privacy.ledger import Ledger, SumQuery

from .conftest import content, read, refused, write

# Of the table `runs`: column, value, what is said. The first row is of online, k = 2, epsilon = 3.
RUNS = [
    ("run_id", None, "1 rows without run_id"),
    ("dataset", None, "dataset is missing"),
    ("method", "magic", "method: 'magic'; must be one of"),
    ("method", None, "method is missing"),
    ("k", 0, "k: 0; must be >= 1"),
    ("k", -3, "k: -3; must be >= 1"),
    ("k", None, "k is missing"),
    ("epsilon", -1.0, "epsilon: -1.0; must be > 0"),
    ("epsilon", math.inf, "epsilon: inf; must be > 0"),
    ("epsilon", math.nan, "epsilon: nan; must be > 0"),
    ("epsilon", None, "epsilon is missing"),
    ("delta", 1.0, "delta: 1.0; must be > 0 and < 1"),
    ("delta", 0.0, "delta: 0.0; must be > 0 and < 1"),
    ("search_accounting", "best", "search_accounting: 'best'; must be one of composition"),
    ("seed", -1, "seed: -1; must be >= 0"),
    ("seed", None, "seed is missing"),
    ("learning_rate", -0.1, "learning_rate: -0.1; must be > 0"),
    ("learning_rate", 0.0, "learning_rate: 0.0; must be > 0"),
    ("learning_rate", math.inf, "learning_rate: inf; must be > 0"),
    ("learning_rate", math.nan, "learning_rate: nan; must be > 0"),
    ("threshold", -1.0, "threshold: -1.0; must be > 0"),
    ("quantile", 1.0, "quantile: 1.0; must be > 0 and < 1"),
    ("momentum", 1.0, "momentum: 1.0; must be >= 0 and < 1"),
    ("noise_multiplier", 0.0, "noise_multiplier: 0.0; must be > 0"),
    ("noise_multiplier", -2.0, "noise_multiplier: -2.0; must be > 0"),
    ("noise_multiplier", 1e6, "its ledger has noise multiplier"),
    ("query_noise_multiplier", math.inf, "query_noise_multiplier: inf; must be > 0"),
    ("sampling", "shuffled", "sampling: 'shuffled'; must be one of poisson"),
    ("examples", 0, "examples: 0; must be >= 1"),
    ("examples", 7000, "its ledger has sampling rate"),
    ("steps", -5, "steps: -5; must be >= 1"),
    ("steps", 10**9, "its ledger has 10 steps, the row 1000000000"),
    ("steps", 11, "its ledger has 10 steps, the row 11"),
    ("precision", "float8", "precision: 'float8'; must be one of float32"),
    ("rng_version", 0, "rng_version: 0; must be >= 1"),
    ("status", "running", "status: 'running'; must be one of finished, diverged"),
    ("status", "diverged", "diverged_at is missing"),
    ("wall_seconds", -1.0, "wall_seconds: -1.0; must be >= 0"),
    ("wall_seconds", math.nan, "wall_seconds: nan; must be >= 0"),
    ("model", None, "model is missing"),
    ("method_options", None, "method_options is missing"),
    ("schedule", "cosine", "schedule: 'cosine'; must be one of linear"),
    ("averaging", 1.0, "averaging: 1.0; must be > 0 and < 1"),
    ("grid_runs", -1, "grid_runs: -1; must be >= 1"),
    ("budget_runs", 0, "budget_runs: 0; must be >= 1"),
    ("search_accounting", "linear_scaling", "trial_fractions: None; must be two numbers"),
    ("ledger", "hello", "ledger: not readable"),
    ("ledger", "{}", "ledger: not readable"),
    ("ledger", None, "ledger: not readable"),
]
EVALUATIONS = [
    ("value", 2.0, "value: 2.0; an accuracy must be <= 1"),
    ("value", -0.5, "value: -0.5; must be >= 0"),
    ("value", math.inf, "value: inf; must be >= 0"),
    ("value", math.nan, "value: nan; must be >= 0"),
    ("value", None, "value is missing"),
    ("loss", math.inf, "loss: inf; must be a finite number"),
    ("loss", None, "loss is missing"),
    ("threshold", math.inf, "threshold: inf; must be >= 0"),
    ("learning_rate", -1.0, "learning_rate: -1.0; must be >= 0"),
    ("fraction_clipped", math.nan, "fraction_clipped: nan; must be a finite number"),
    ("step", -5, "step: -5; must be >= 1"),
    ("step", 0, "step: 0; must be >= 1"),
    ("step", 10**10, "step: 10000000000; must be >= 1 and <= 1e+09"),
    ("step", None, "1 rows without run_id or step or split"),
    ("split", "train", "split: 'train'; must be one of test, test_even, test_odd"),
    ("split", None, "1 rows without run_id or step or split"),
    ("metric", "f1", "metric: 'f1'; must be one of accuracy, mse"),
    ("metric", None, "metric is missing"),
    ("run_id", "nobody", "evaluations of run nobody have no row in runs.parquet"),
]
CASES = [("runs", *case) for case in RUNS] + [("evaluations", *case) for case in EVALUATIONS]
NAMES = [f"{kind}.{column} {value!r}" for kind, column, value, _ in CASES]


@pytest.mark.parametrize(("kind", "column", "value", "said"), CASES, ids=NAMES)
def test_a_value_that_cannot_be_is_taken_by_no_command(
    kind, column, value, said, place, oso
) -> None:
    rows = read(place / "part", kind)
    rows[0][column] = value
    write(place / "part", kind, rows)
    before = content(place)
    refused(oso("account", "part", "--plan", "plan.json"), "part", said)
    refused(oso("collect", "part", "--store", "store"), "part", said)
    assert content(place) == before


@pytest.mark.parametrize("command", ["account", "collect"])
def test_evaluations_that_are_not_there_are_missed(command, place, oso) -> None:
    first = read(place / "part", "runs")[0]["run_id"]
    rows = read(place / "part", "evaluations")
    write(place / "part", "evaluations", [row for row in rows if row["run_id"] != first])
    before = content(place)
    said = f"run {first} is finished, but has no row in evaluations.parquet"
    refused(oso(command, "part", *(["--store", "store"] if command == "collect" else [])), said)
    assert content(place) == before


SHOWN = [
    ("evaluations", "value", 2.0, "value: 2.0"),
    ("evaluations", "loss", math.nan, "loss: nan"),
    ("evaluations", "split", "train", "split: 'train'"),
    ("runs", "learning_rate", -0.1, "learning_rate: -0.1"),
    ("runs", "delta", 1.0, "delta: 1.0"),
    ("runs", "method", "magic", "method: 'magic'"),
    ("runs", "steps", 10**9, "its ledger has 10 steps"),
    ("runs", "ledger", "hello", "ledger: not readable"),
]


@pytest.mark.parametrize(("kind", "column", "value", "said"), SHOWN)
@pytest.mark.parametrize("command", ["summary", "report"])
def test_nothing_that_cannot_be_is_shown(kind, column, value, said, command, place, oso) -> None:
    rows = read(place / "part", kind)
    rows[0][column] = value
    write(place / "part", kind, rows)
    more = ["--output", "shown"] if command == "report" else []
    refused(oso(command, "--results", "part", *more), f"part/{kind}.parquet", said)
    assert not (place / "shown").exists()


@pytest.mark.parametrize("command", ["account", "collect", "summary", "report"])
def test_what_exceeds_its_budget_is_taken_and_shown_by_no_command(command, place, oso) -> None:
    """Rows and ledgers agree, about too little noise."""
    rows = read(place / "part", "runs")
    for row in rows:
        if row["noise_multiplier"]:
            ledger = Ledger.from_json(row["ledger"])
            steps = [
                (tuple(SumQuery(q.name, q.noise_multiplier / 2) for q in queries), count)
                for queries, count in ledger.steps
            ]
            row["ledger"] = Ledger(ledger.sampling, steps).to_json()
            for name in ("noise_multiplier", "query_noise_multiplier"):
                row[name] = row[name] and row[name] / 2
    write(place / "part", "runs", rows)
    arguments = {
        "account": ["part"],
        "collect": ["part", "--store", "new"],
        "summary": ["--results", "part"],
        "report": ["--results", "part", "--output", "shown"],
    }
    said = "glyphs.online.k2.eps3: its ledgers cost epsilon"
    refused(oso(command, *arguments[command]), said, "the budget is 3")
    assert not [name for name in content(place) if name.startswith(("new/", "shown/"))]


def test_what_is_valid_is_taken_and_shown(place, oso) -> None:
    """The cases above are refused for what they spoil, and for nothing else."""
    assert oso("account", "part")[0] == 0
    assert oso("collect", "part", "--store", "new", "--plan", "plan.json")[0] == 0
    assert oso("summary", "--results", "new")[0] == 0
