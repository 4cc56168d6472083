"""A cell's other columns: in its unit, of its own rule, half and setting."""

import itertools
import statistics

import pytest
from tests.analysis.claim_helpers import papers_point

from oso_dp.analysis import cells
from oso_dp.analysis.verdicts import judge_cells


@pytest.mark.parametrize(
    ("metric", "k", "epsilon", "apart"), [("accuracy", 3, 1.0, 0.01), ("mse", 9, 4.0, 0.03)]
)
def test_judge_cells_stds_in_percent(metric, k, epsilon, apart, store, study) -> None:
    """Means and stds are in percent by each rule: best, last step and cross-selection."""
    dataset = {"accuracy": "mnist", "mse": "fashion_mnist"}[metric]
    sign = 1 if metric == "accuracy" else -1
    seeds = range(4)
    best = [0.5 + sign * 0.1 + apart * seed for seed in seeds]
    last = [0.5 + 2 * apart * seed for seed in seeds]
    halves = [0.4 + 3 * apart * seed for seed in seeds]
    for seed in seeds:
        pairs = ((halves[seed], halves[seed]),) * 2
        known = {"dataset": dataset, "metric": metric, "k": k, "epsilon": epsilon, "seed": seed}
        store.add(**known, values=(best[seed], last[seed]), halves=pairs)
    frame = judge_cells(study(store), dataset, k)
    (row,) = frame[frame["status"] == "run"].to_dict("records")
    run_best = [min(a, b) if sign < 0 else max(a, b) for a, b in zip(best, last, strict=True)]
    for name, values in (("", run_best), ("last_", last), ("cross_", halves)):
        assert row[f"{name}mean"] == pytest.approx(100 * statistics.mean(values))
        assert row[f"{name}std"] == pytest.approx(100 * statistics.stdev(values))


def test_judge_cells_halves_keep_own_points(store, study) -> None:
    for rate, halves in ((1.0, (0.9, 0.6)), (0.1, (0.7, 0.8))):
        store.add(dataset="glyphs", learning_rate=rate, values=(0.5,), halves=(halves,))
    (row,) = judge_cells(study(store), "glyphs", 9).to_dict("records")
    assert (row["even_learning_rate"], row["odd_learning_rate"]) == (1.0, 0.1)


@pytest.mark.parametrize(
    ("other", "better"),
    [
        ({"momentum": 0.0}, 0.05),
        ({"precision": "bfloat16"}, -0.2),
        ({"noise_multiplier": 7e3, "grid_runs": 12}, 0.05),
    ],
)
def test_judge_cells_paper_point_excludes_variants(other, better: float, store, study) -> None:
    """Values at the paper's point exclude runs of another momentum, precision or noise."""
    own = papers_point("online", 9, 9.0)
    for seed, rate in itertools.product(range(3), (own["learning_rate"], 10.0)):
        halves = ((0.8 + 0.01 * seed,) * 2,)
        store.add(**own | {"learning_rate": rate}, seed=seed, values=(0.9,), halves=halves)
    for seed in range(4):
        value = 0.9 + better
        store.add(**own | other, seed=seed, values=(value,), halves=((value, value),))
    frame = judge_cells(study(store), "mnist", 9)
    (row,) = frame[frame["status"] == "run"].to_dict("records")
    assert row["seeds"] == row["at_paper_seeds"] == row["at_paper_cross_seeds"] == 3
    assert row["at_paper_mean"] == pytest.approx(90)
    assert row["at_paper_cross_mean"] == pytest.approx(81)
    assert row["at_paper_cross_std"] == pytest.approx(1)


@pytest.mark.parametrize("axis", ["learning_rate", "threshold"])
@pytest.mark.parametrize("off", [-0.05, -0.03, -0.0199, 0.0, 0.0199, 0.03, 0.05, 0.1])
def test_columns_at_paper_point_within_tolerance(off: float, axis: str) -> None:
    """A point within 2 % of the paper's printed learning rate and threshold is its point."""
    theirs = {"method": "fixed_threshold", "learning_rate": 0.01467, "threshold": 1.0}
    ran = theirs | {axis: theirs[axis] * (1 + off), "mean": 0.9, "std": 0.01, "seeds": 3}
    found = cells._columns_at_paper_point([ran], theirs, "accuracy")
    assert bool(found) == (abs(off) < 0.02)
