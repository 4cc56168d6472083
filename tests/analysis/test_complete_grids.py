"""A grid that lacks one point is a part of it, and one point more than was paid for is too many."""

import math

import pandas as pd
import pytest
from tests.analysis.claim_helpers import cells

from oso_dp.analysis.cells import has_paper_length
from oso_dp.analysis.claim_tests import (
    HOLDS,
    UNDECIDED,
    ClaimData,
    always_diverges,
    compare_methods,
)
from oso_dp.analysis.verdicts import is_complete_grid, is_incomplete_grid, judge_cells
from oso_dp.errors import OsoError
from oso_dp.paper.best_points import all_points
from oso_dp.paper.tables import DATASETS, PAPER_EPOCHS

LACKING = [0, 1, 2]


@pytest.mark.parametrize("k", [2, 3, 9])
@pytest.mark.parametrize("beyond", [-1, 0, 1, 2])
def test_judge_cells_extra_points_rejected(beyond: int, k: int, store, study) -> None:
    """Online's grid has k points, and its noise is that of k runs."""
    for place in range(k + beyond):
        store.add(dataset="glyphs", k=k, learning_rate=0.01 * 2**place, values=(0.9,))
    if beyond > 0:
        with pytest.raises(OsoError, match=f"{k + beyond} points of a grid of {k}"):
            judge_cells(study(store), "glyphs", k)
    else:
        assert judge_cells(study(store), "glyphs", k)["grid_points"].tolist() == [k + beyond]


@pytest.mark.parametrize("lacking", LACKING)
def test_judge_cells_point_requires_complete_grid(lacking: int, store, study) -> None:
    """The paper's point (Table 2: rho = 1.467) has a verdict only if the grid is complete."""
    for place in range(lacking, 7):
        value = 0.9 if place == 4 else 0.5
        store.add(k=7, learning_rate=10 ** (-2.5 + 4 * place / 6), values=(value,))
    cell = judge_cells(study(store), "mnist", 7).query("method == 'online' and epsilon == 9")
    said = "incomplete grid" if lacking else "same point"
    assert cell["point_verdict"].tolist() == [said]


@pytest.mark.parametrize("dataset", ["mnist", "fashion_mnist"])
@pytest.mark.parametrize(("apart", "said"), [(1e-5, "another point"), (0.01, "as good")])
def test_judge_cells_similar_point_as_good(
    apart: float, said: str, dataset: str, store, study
) -> None:
    """The paper's point is as good as the best one if seeds do not distinguish them."""
    rates = [10 ** (-2.5 + 4 * place / 6) for place in range(7)]
    (point,) = (
        p
        for p in all_points()
        if (p.dataset, p.k, p.epsilon, p.method) == (dataset, 7, 3.0, "online")
    )
    theirs = min(rates, key=lambda rate: abs(rate / point.learning_rate - 1))
    metric, sign = {"mnist": ("accuracy", 1), "fashion_mnist": ("mse", -1)}[dataset]
    known = {"dataset": dataset, "k": 7, "epsilon": 3.0, "metric": metric}
    for place, rate in enumerate(rates):
        for seed in range(3):
            value = {theirs: 0.5, rates[6]: 0.5 + sign * 0.001}.get(rate, 0.5 - sign * 0.3)
            noise = apart * (seed - 1) * (-1) ** place
            store.add(**known, seed=seed, learning_rate=rate, values=(value + noise,))
    cell = judge_cells(study(store), dataset, 7).query("method == 'online' and epsilon == 3")
    assert cell["point_verdict"].tolist() == [said]


@pytest.mark.parametrize("others", [1, 3])
def test_main_runs_other_momentum_excluded(others: int, store, study) -> None:
    """`main_runs` excludes runs of another momentum, also where they have more seeds."""
    shown = store.add(values=(0.5,))
    for seed in range(others):
        store.add(seed=seed, momentum=0.5, values=(0.9,))
    assert study(store).main_runs["run_id"].tolist() == [shown]


@pytest.mark.parametrize("lacking", LACKING)
@pytest.mark.parametrize("part", ["online", "fixed_threshold"])
def test_compare_methods_best_requires_complete_grid(part: str, lacking: int) -> None:
    """An incomplete grid is compared at the paper's points, where Online leads by 3, not by 1."""
    rows = cells(("online", 9, 91.0, 0.2), ("fixed_threshold", 9, 90.0, 0.2))
    sizes = pd.Series([9, 81])
    at_paper = {"at_paper_mean": [88.0, 85.0], "at_paper_std": 0.2, "at_paper_seeds": 5}
    points = sizes - lacking * (rows["method"] == part)
    rows = rows.assign(grid_size=sizes, grid_points=points, runs=45, diverged=0, **at_paper)
    judge = compare_methods("online", "better than", "fixed_threshold")
    found = judge(ClaimData(rows), "mnist")
    assert found.numbers["advantage"] == pytest.approx(3.0 if lacking else 1.0)
    assert ("at the paper's best points" in found.text) == bool(lacking)


@pytest.mark.parametrize("lacking", LACKING)
def test_always_diverges_requires_complete_grids(lacking: int) -> None:
    """One missing point in one of three grids leaves the claim undecided: it may train."""
    lost = ("fixed_quantile", 1, float("nan"), float("nan"), 0)
    frames = [cells(lost, dataset="fashion_mnist", k=k) for k in (5, 7, 9)]
    rows = pd.concat(frames, ignore_index=True).assign(grid_size=[25, 35, 45])
    rows = rows.assign(runs=rows["grid_size"], diverged=rows["grid_size"])
    rows = rows.assign(grid_points=rows["grid_size"] - [0, lacking, 0])
    runs = rows[["dataset", "method", "k", "epsilon"]].assign(status="diverged")
    for evidence in (ClaimData(rows, runs), ClaimData(rows)):  # ours, and ours by cross-selection
        found = always_diverges("fixed_quantile", 1.0)(evidence, "fashion_mnist")
        assert found.verdict == (UNDECIDED if lacking else HOLDS)


@pytest.mark.parametrize("dataset", [*DATASETS, "glyphs", "patients"])
def test_has_paper_length_requires_ten_epochs(dataset: str) -> None:
    """Runs need ten epochs on the paper's data sets; on others every length suffices."""
    for epochs in range(1, 2 * PAPER_EPOCHS):
        assert has_paper_length(dataset, epochs) == (dataset not in DATASETS or epochs >= 10)


@pytest.mark.parametrize(
    ("points", "size", "part"), [(1, 2, True), (2, 2, False), (3, 2, False), (2, None, False)]
)
@pytest.mark.parametrize("missing", [None, math.nan, pd.NA])
def test_is_incomplete_grid_unknown_size_false(points, size, part, missing) -> None:
    """A grid of unknown size is neither incomplete nor complete."""
    row = {"grid_points": points, "grid_size": missing if size is None else size}
    assert is_incomplete_grid(row) == part
    assert is_complete_grid(row) == (size is not None and not part)
