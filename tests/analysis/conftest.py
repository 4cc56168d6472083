"""Grids of rows with the ledgers of a budget, and rows of a plan that nobody trained."""

from functools import cache

import pandas as pd
from tests.results.conftest import run_row
from tests.stores import glyphs_store, make_store, named, paper_store, store, study  # noqa: F401

from oso_dp.accounting.search import Search
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.noise_composition import gradient_noise_multiplier
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.calibration import calibrate_grids
from oso_dp.study.config import StudyConfig, load_config, parse_config
from oso_dp.study.plan import Plan, make_plan, make_plan_with_noise

RATE, STEPS, EPSILON = 0.02, 200, 3.0
NU = Search(PoissonSampling(RATE), STEPS, 9).noise_multiplier(EPSILON, 1e-5)
NINE = "glyphs.online.k9.eps3"
GLYPHS = {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 1}
# What decides a result and has no column: a search that differs in one of these is another search.
HIDDEN = {
    "seeds": {"seeds": [1, 2, 3]},  # not one of them: they repeat a search
    "a method's constant": {"methods": {"online": {"threshold_rate": 0.1}}},
    "another of its constants": {"methods": {"online": {"learning_rate_rate": 0.1}}},
    "how often it is evaluated": {"evaluate_every": 7},
    "the last layer": {"final_activation": True},
    "where the noise comes from": {"randomness": "system"},
}


def ledger(nu: float = NU, steps: int = STEPS, rate: float = RATE) -> str:
    queries = (SumQuery("clipped_gradient", nu),)
    return Ledger(PoissonSampling(rate), [(queries, steps)]).to_json()


def with_second(second: float) -> dict[str, object]:
    """A row's columns where each step has two sums, which together have noise NU."""
    first = gradient_noise_multiplier(NU, second)
    sums = (SumQuery("clipped_gradient", first), SumQuery("clipped_direction", second))
    text = Ledger(PoissonSampling(RATE), [(sums, STEPS)]).to_json()
    return {"query_noise_multiplier": second, "ledger": text}


def row(number: int, seed: int = 0, **other):
    known = {
        "dataset": "glyphs",
        "epsilon": EPSILON,
        "examples": 6000,
        "batch_size": 120,
        "epochs": 4,
        "steps": STEPS,
        "noise_multiplier": NU,
        "learning_rate": 0.1 * (number + 1),
        "seed": seed,
        "ledger": ledger(),
    }
    return {**run_row(f"run {number} seed {seed}"), **known, **other}


def grid(rows=9, seeds=(0,), **other) -> pd.DataFrame:
    return named(pd.DataFrame([{**row(n, s), **other} for s in seeds for n in range(rows)]))


def rows_of(plan, name) -> pd.DataFrame:
    cohort = plan.cohort(name)
    nu = cohort.noise_multiplier
    known = (
        "k",
        "epsilon",
        "search_accounting",
        "momentum",
        "precision",
        "batch_size",
        "epochs",
        "steps",
    )
    shared = {n: getattr(cohort, n) for n in known}
    text = ledger(nu, cohort.steps, cohort.sampling.rate)
    facts = {**shared, **cohort.columns, "noise_multiplier": nu, "ledger": text}
    return pd.DataFrame([row(0, **facts, **vars(run)) for run in cohort.runs])


@cache
def smallest_plan(repo) -> Plan:
    return make_plan(load_config(repo / "config/ci/smoke.yaml"))


def _nine(repo, **more) -> StudyConfig:
    """A study of nine runs per seed."""
    smoke = load_config(repo / "config/ci/smoke.yaml").model_dump()
    known = {"datasets": {"glyphs": GLYPHS}, "methods": {"online": {}}, "values_per_axis": [9]}
    return parse_config({**smoke, **known, "seeds": [0, 1], **more}, "x")


@cache
def _noise_of_nine(repo) -> float:
    """Nothing of `HIDDEN` changes it."""
    (found,) = calibrate_grids(_nine(repo))
    return found.noise_multiplier * (1 + 1e-5)


@cache
def two_plans(repo, choice) -> list[Plan]:
    """A study of nine runs and another one that differs from it in one choice; the same noise."""
    noise = {NINE: _noise_of_nine(repo)}
    return [make_plan_with_noise(_nine(repo, **more), noise) for more in ({}, HIDDEN[choice])]
