"""Rows on data that are not public: how many runs their one epsilon pays for."""

import json

import pandas as pd
import pytest

from oso_dp.results.protected import shared_budgets


@pytest.mark.parametrize("sizes", [(12, 5), (5, 12)])
def test_of_several_studies_the_largest_number_counts(sizes) -> None:
    """In whatever order they are stored: a smaller one would charge less than was released."""
    texts = [json.dumps({"budget_runs": size, "public": False}) for size in sizes]
    rows = pd.DataFrame({"dataset": ["patients", "patients", "glyphs"], "settings": [*texts, None]})
    assert shared_budgets(rows) == {"patients": 12}


def test_two_data_sets_of_which_the_rows_say_the_same_share_no_budget() -> None:
    """Each has its own: of neither it is forgotten that all its runs share one."""
    text = json.dumps({"budget_runs": 12, "public": False, "data_version": "1"})
    rows = pd.DataFrame({"dataset": ["patients", "pupils", "patients"], "settings": [text] * 3})
    assert shared_budgets(rows) == {"patients": 12, "pupils": 12}
