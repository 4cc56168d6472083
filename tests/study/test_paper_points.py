"""The paper's best hyperparameters among a grid's points."""

from dataclasses import replace

import pytest

from oso_dp.study.config import load_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.grid import paper_best_runs
from oso_dp.study.plan import read_plan


@pytest.fixture(scope="module")
def plan(repo):
    return read_plan(repo / "results/plan.json")


def test_the_papers_best_are_those_of_spotcheck(plan, repo) -> None:
    spotcheck = make_cohorts(load_config(repo / "config/paper/best_points.yaml"))
    expected = {run.run_id for each in spotcheck for run in each.runs}
    assert {run for cohort in plan.cohorts for run in paper_best_runs(cohort)} == expected


@pytest.mark.parametrize("axis", ["learning_rate", "threshold"])
@pytest.mark.parametrize("factor", [0.97, 0.985, 1.015, 1.03])
def test_a_point_is_the_papers_within_two_per_cent(plan, axis: str, factor: float) -> None:
    cohort = plan.cohort("mnist.fixed_threshold.k9.eps3")
    there = paper_best_runs(cohort)
    moved = [replace(run, **{axis: factor * getattr(run, axis)}) for run in cohort.runs]
    found = paper_best_runs(replace(cohort, runs=tuple(moved)))
    assert found == (there if abs(factor - 1) < 0.02 else set())
