"""The paper's best hyperparameters among a grid's points."""

from dataclasses import replace

from oso_dp.study.config import load_config
from oso_dp.study.expand import cohorts
from oso_dp.study.paper_points import papers_best_runs
from oso_dp.study.plan import read_plan


def test_the_papers_best_are_those_of_spotcheck(repo) -> None:
    plan = read_plan(repo / "results/plan.json")
    spotcheck = cohorts(load_config(repo / "config/spotcheck.yaml"))
    expected = {run.run_id for each in spotcheck for run in each.runs}
    assert {run for cohort in plan.cohorts for run in papers_best_runs(cohort)} == expected


def test_a_grid_of_other_ranges_has_none(repo) -> None:
    cohort = read_plan(repo / "results/plan.json").cohort("mnist.fixed_threshold.k9.eps3")
    moved = [replace(run, threshold=1.1 * run.threshold) for run in cohort.runs]
    assert papers_best_runs(cohort)
    assert papers_best_runs(replace(cohort, runs=tuple(moved))) == set()
