"""What training would write for a plan, but for the values: every rule of results holds."""

from collections.abc import Iterable
from typing import Any

from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.noise_composition import gradient_noise_multiplier
from oso_dp.results.schema import SCHEMAS, SPLITS
from oso_dp.study.cohort import PlannedCohort, Run
from oso_dp.study.config import StudyConfig, parse_config
from oso_dp.study.plan import Plan

Row = dict[str, Any]


def mnist_study(*methods: str, **more: Any) -> StudyConfig:
    """A study of MNIST at epsilon 3, with nine values for each axis and one seed."""
    study = {
        "name": "test",
        "datasets": {"mnist": {"model": "cnn", "epsilons": [3], "seconds_per_step": 1}},
        "methods": {method: {} for method in methods},
        "values_per_axis": [9],
        "seeds": [0],
    }
    return parse_config({**study, **more}, "test")


def rows_of(plan: Plan) -> dict[str, list[Row]]:
    """Both tables, with an evaluation in the middle and one at the end of each run."""
    pairs = [(cohort, run) for cohort in plan.cohorts for run in cohort.runs]
    return {
        "runs": [run_row(cohort, run) for cohort, run in pairs],
        "evaluations": [
            row
            for cohort, run in pairs
            for row in score_rows(run, (cohort.steps // 2, cohort.steps))
        ],
    }


def run_row(cohort: PlannedCohort, run: Run) -> Row:
    nu, second = cohort.noise_multiplier, cohort.query_noise_multiplier
    step = [SumQuery("clipped_gradient", nu)]
    if second is not None:
        step = [
            SumQuery("clipped_gradient", gradient_noise_multiplier(nu, second)),
            SumQuery("second", second),
        ]
    ledger = Ledger(cohort.sampling, [(tuple(step), cohort.steps)])
    names = SCHEMAS["runs"].names
    return {
        **dict.fromkeys(names),
        **{name: getattr(cohort, name) for name in names if hasattr(cohort, name)},
        **cohort.columns,
        "noise_multiplier": nu or None,
        "sampling": "poisson",
        "rng_version": 2,
        "status": "finished",
        "device": "cpu",
        "torch_version": "2",
        "package_version": "0.1.0",
        "code_hash": "0",
        "wall_seconds": 1.0,
        "ledger": ledger.to_json(),
        **vars(run),
    }


def score_rows(run: Run, steps: Iterable[int]) -> list[Row]:
    """After each of these steps, on each split."""
    score = {
        "run_id": run.run_id,
        "metric": "accuracy",
        "value": 0.5,
        "loss": 1.5,
        "threshold": run.threshold,
        "learning_rate": run.learning_rate,
        "fraction_clipped": None,
        "class_accuracy": None,
    }
    return [{**score, "step": step, "split": split} for step in steps for split in SPLITS]
