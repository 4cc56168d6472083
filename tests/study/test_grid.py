"""Grids: the paper's values, the paper's counts."""

import math
from dataclasses import replace

import pytest

from oso_dp.methods import find_method
from oso_dp.paper.best_points import best_points
from oso_dp.study.config import GridSection, load_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.grid import log_uniform, make_candidates, paper_best_runs
from oso_dp.study.plan import read_plan


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("online", lambda k: k),
        ("fixed_threshold", lambda k: k * k),
        ("fixed_quantile", lambda k: 5 * k),
        ("adam_wosm", lambda k: k),
        ("no_dp", lambda k: k),
    ],
)
@pytest.mark.parametrize("k", [5, 7, 9])
def test_make_candidates_sizes_match_paper(name, size, k) -> None:
    points = make_candidates(find_method(name).search, GridSection(), k)
    assert len(points) == size(k)
    assert len({tuple(point.items()) for point in points}) == len(points)


def test_make_candidates_include_paper_best_points() -> None:
    off = []
    for best in best_points():
        axes = find_method(best.method).search
        printed = {axis: getattr(best, axis) for axis in axes}
        distance = min(
            max(abs(math.log(point[axis] / printed[axis])) for axis in axes)
            for point in make_candidates(axes, GridSection(), best.k)
        )
        if distance > math.log(1.02):
            off.append((best.table, best.method, best.epsilon))
    assert off == []


@pytest.mark.parametrize("ends", [(-2.5, 1.5), (0.0, 3.0), (-4.0, -1.0)])
def test_log_uniform_single_value_centered(ends) -> None:
    (value,) = log_uniform(*ends, 1)
    assert math.log10(value) == pytest.approx(sum(ends) / 2, abs=1e-5)


RANGES = [(-2.5, 1.5), (-3.0, -1.0), (0.25, 3.0)]


@pytest.mark.parametrize("thresholds", [(-2.0, 2.0), (-1.0, 0.5), (1.0, 4.0)])
@pytest.mark.parametrize("rates", RANGES)
@pytest.mark.parametrize("k", [2, 3, 7])
def test_make_candidates_axes_span_ranges(k, rates, thresholds) -> None:
    """Each axis spans the range that the study configures."""
    grid = GridSection(log10_learning_rate=rates, log10_threshold=thresholds)
    points = make_candidates(("learning_rate", "threshold"), grid, k)
    assert len(points) == k * k
    for axis, (low, high) in (("learning_rate", rates), ("threshold", thresholds)):
        values = sorted({point[axis] for point in points})
        expected = [10 ** (low + i * (high - low) / (k - 1)) for i in range(k)]
        assert values == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("many", [1, 4, 5, 6, 9])
def test_make_candidates_include_all_quantiles(many: int) -> None:
    quantiles = [round(0.05 + 0.1 * i, 2) for i in range(many)]
    points = make_candidates(("learning_rate", "quantile"), GridSection(quantiles=quantiles), 3)
    assert [point["quantile"] for point in points] == 3 * quantiles


@pytest.fixture(scope="module")
def plan(repo):
    return read_plan(repo / "results/plan.json")


def test_paper_best_runs_match_best_points(plan, repo) -> None:
    spotcheck = make_cohorts(load_config(repo / "config/paper/best_points.yaml"))
    expected = {run.run_id for each in spotcheck for run in each.runs}
    assert {run for cohort in plan.cohorts for run in paper_best_runs(cohort)} == expected


@pytest.mark.parametrize("axis", ["learning_rate", "threshold"])
@pytest.mark.parametrize("factor", [0.97, 0.985, 1.015, 1.03])
def test_paper_best_runs_tolerate_two_percent(plan, axis: str, factor: float) -> None:
    cohort = plan.cohort("mnist.fixed_threshold.k9.eps3")
    there = paper_best_runs(cohort)
    moved = [replace(run, **{axis: factor * getattr(run, axis)}) for run in cohort.runs]
    found = paper_best_runs(replace(cohort, runs=tuple(moved)))
    assert found == (there if abs(factor - 1) < 0.02 else set())
