"""What holds for a cohort's first run, and the first cohort, holds for each of them."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from oso_dp.errors import OsoError
from oso_dp.study.calibration import check_budget
from oso_dp.study.config import parse_config
from oso_dp.study.plan import Plan, make_plan, make_plan_with_noise, read_plan, write_plan
from oso_dp.training.job import make_task

STUDY: dict[str, Any] = {
    "name": "test",
    "datasets": {"glyphs": {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 1}},
    "methods": {"online": {}, "fixed_threshold": {}},
    "values_per_axis": [2],
    "seeds": [0, 1],
    "batch_size": 6000,  # everybody in each batch: priced in no time
    "epochs": 5,
}


def plan_with(**changes: Any) -> Plan:
    return make_plan_with_noise(parse_config({**STUDY, **changes}, "x"), defaultdict(lambda: 9.0))


@pytest.mark.parametrize("seeds", [[5, 2], [2, 0, 1], [2**63 - 1, 7, 0]])
def test_cohort_runs_keep_seed_order(seeds, tmp_path) -> None:
    plan = plan_with(seeds=seeds)
    for cohort in plan.cohorts:
        assert cohort.seeds == seeds
        assert [run.seed for run in cohort.runs] == seeds * len(cohort.points)
        assert cohort.with_runs(cohort.points, cohort.seeds) == cohort
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan


@pytest.mark.parametrize("momentum", [0.0, 0.25, 0.9])
def test_make_task_momentum_matches_config(momentum: float) -> None:
    for cohort in plan_with(momentum=momentum).cohorts:
        assert cohort.momentum == momentum
        assert cohort.make_method().momentum == momentum
        assert make_task(cohort).method.momentum == momentum


@pytest.mark.parametrize("batch_size", [100, 512, 6000])
def test_cohort_query_noise_scales_with_batch(batch_size: int) -> None:
    settings = {"fixed_quantile": {"count_noise": 0.25}}
    for cohort in plan_with(methods=settings, batch_size=batch_size).cohorts:
        assert cohort.query_noise_multiplier == pytest.approx(2 * 0.25 * batch_size)
        nu, batch = cohort.noise_multiplier, cohort.batch_size
        split = cohort.make_method().split_noise(nu, batch)
        assert cohort.query_noise_multiplier == split[1]


@pytest.mark.parametrize("size", [1, 3])
def test_check_budget_partial_cohort_priced_whole(size: int) -> None:
    config = parse_config({**STUDY, "search_accounting": "linear_scaling"}, "x")
    for cohort in make_plan(config).cohorts:
        some = replace(cohort, runs=cohort.runs[:size])
        check_budget([some])
        with pytest.raises(OsoError, match="would cost epsilon"):
            check_budget([replace(some, noise_multiplier=0.999 * some.noise_multiplier)])
