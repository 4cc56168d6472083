"""An evaluation that contradicts its run is named, also behind rows that are in order."""

import pandas as pd
import pyarrow as pa
import pytest

from oso_dp.results.evaluated import complaint

from .conftest import STEPS, evaluation_row, run_row

GONE = 60  # the step at which the second run diverged


def of_both(*changed: dict, metric: str = "accuracy") -> str | None:
    """Of a run that is finished and one that diverged, with these evaluations besides."""
    rows = [evaluation_row("r1", 50), evaluation_row("r1", STEPS), evaluation_row("r2", 50)]
    rows[-1]["metric"] = metric
    runs = [run_row("r1"), run_row("r2", status="diverged", diverged_at=GONE)]
    return complaint(pd.DataFrame(runs), pa.Table.from_pylist([*rows, *changed]))


def test_rows_in_order_have_no_complaint() -> None:
    assert of_both() is None
    assert of_both(evaluation_row("r2", GONE - 1)) is None


@pytest.mark.parametrize("at", [GONE + 1, STEPS, 10**9])
def test_no_run_is_evaluated_after_it_diverged(at: int) -> None:
    said = of_both(evaluation_row("r2", at))
    assert said == f"run r2: evaluated at step {at}, but it ended at {GONE}"


@pytest.mark.parametrize("again", [("r2", 50), ("r1", 50)])
def test_a_row_that_comes_again_is_named(again: tuple[str, int]) -> None:
    """Next to the first one, and far from it."""
    said = of_both(evaluation_row(*again, value=0.1))
    assert said is not None
    assert said.startswith(f"run {again[0]} stands there more than once (1 rows")


def test_the_second_run_has_its_data_sets_metric_too() -> None:
    said = of_both(metric="mse")
    assert said is not None
    assert said.startswith("run r2")


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_a_runs_rows_hides_no_step(order: int) -> None:
    """The latest step counts, wherever its row stands."""
    rows = [evaluation_row("r2", 10), evaluation_row("r2", STEPS)][::order]
    assert of_both(*rows) == f"run r2: evaluated at step {STEPS}, but it ended at {GONE}"
    assert of_both(evaluation_row("r1", 20)) is None
