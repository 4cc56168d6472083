"""How many points a grid has, where no plan says so: as its rows say, as the accounts do, too."""

import pytest

from oso_dp.analysis.accounts import account_grids
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.study.grid import default_grid_size

WHERE = {"dataset": "glyphs", "method": "fixed_quantile", "k": 2}


def rows(store, sizes, **more):
    """A point for each size."""
    for place, size in enumerate(sizes):
        store.add(**WHERE, learning_rate=10.0**place, quantile=0.5, grid_runs=size, **more)
    return store


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([2, 2], 2),
        ([3, 3], 3),
        ([30], 30),
        ([2, 3], None),
    ],
)
def test_grid_size_requires_agreeing_rows(sizes, expected, store, study) -> None:
    """The rows give the size if they agree; otherwise it is the paper's of this method and k."""
    design = default_grid_size("fixed_quantile", 2)
    made = study(rows(store, sizes))
    assert made.grid_size(*WHERE.values()) == (expected or design)
    (cell,) = judge_cells(made, "glyphs", 2).to_dict("records")
    assert cell["grid_size"] == (expected or design)


@pytest.mark.parametrize("size", [2, 7])
def test_account_grids_matches_grid_size(size: int, store, study) -> None:
    made = study(rows(store, [size, size]))
    (grid,) = account_grids(made.runs)
    assert grid.runs == made.grid_size(*WHERE.values()) == size


@pytest.mark.parametrize("other", [{"method": "auto_s"}, {"k": 3}, {"dataset": "mnist"}])
def test_grid_size_other_grids_ignored(other, store, study) -> None:
    store.add(**WHERE | other, grid_runs=6)
    rows(store, [2, 2])
    made = study(store)
    assert made.grid_size(*WHERE.values()) == 2
    assert made.grid_size(*(WHERE | other).values()) == 6


def test_grid_size_plan_overrides_rows(store, study) -> None:
    grid = {**WHERE, "epsilon": 9.0, "runs": 4, "noise_multiplier": 1.0}
    assert study(rows(store, [2, 2]), [grid]).grid_size(*WHERE.values()) == 4


@pytest.mark.parametrize(("composed", "expected"), [([], 6), ([2, 2], 2), ([2, 3], 10)])
def test_grid_size_falls_back_random_stopping(composed, expected, store, study):
    """Without composition rows, those of random stopping give the size, single runs never."""
    rows(store, [6, 6], search_accounting="random_stopping", noise_multiplier=300.0)
    rows(store, [1, 1], search_accounting="single", noise_multiplier=300.0)
    rows(store, composed)
    assert study(store).grid_size(*WHERE.values()) == expected


def test_grid_size_unregistered_method_uses_rows(store, study) -> None:
    store.add(dataset="glyphs", k=2, method="magic", grid_runs=6)
    made = study(store)
    assert [made.grid_size("glyphs", name, 2) for name in ("magic", "sorcery")] == [6, None]
