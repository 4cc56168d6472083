"""An evaluation that contradicts its run is named, also behind rows that are in order."""

import pandas as pd
import pyarrow as pa
import pytest

from oso_dp.results.checks import find_evaluations_error

from .conftest import STEPS, evaluation_row, run_row

GONE = 60  # the step at which the second run diverged


def of_both(*changed: dict) -> str | None:
    """Of a run that is finished and one that diverged, with these evaluations besides."""
    rows = [evaluation_row("r1", 50), evaluation_row("r1", STEPS), evaluation_row("r2", 50)]
    runs = [run_row("r1"), run_row("r2", status="diverged", diverged_at=GONE)]
    return find_evaluations_error(pd.DataFrame(runs), pa.Table.from_pylist([*rows, *changed]))


def test_rows_in_order_have_no_complaint() -> None:
    assert of_both() is None
    assert of_both(evaluation_row("r2", GONE - 1)) is None


@pytest.mark.parametrize("again", [("r2", 50), ("r1", 50)])
def test_a_row_that_comes_again_is_named(again: tuple[str, int]) -> None:
    said = of_both(evaluation_row(*again, value=0.1))
    assert said is not None
    assert said.startswith(f"run {again[0]} appears more than once (1 rows")
