"""Whole reports of made-up results, built once."""

import json

import pandas as pd
import pytest
from tests.stores import (  # noqa: F401
    Store,
    fill_glyphs,
    fill_paper,
    glyphs_store,
    make_store,
    paper_store,
    store,
    study,
)

from oso_dp.reporting.page.build import build_report
from oso_dp.reporting.sources import Sources
from oso_dp.reporting.tables import beyond, own_data_sets, tables_02_to_13


@pytest.fixture(scope="session")
def glyphs_report(tmp_path_factory):
    """The whole report of the demo's results, built once."""
    folder = tmp_path_factory.mktemp("glyphs")
    page = build_report(fill_glyphs(Store()).write(folder / "results"), folder / "report")
    return page.parent


@pytest.fixture(scope="session")
def paper_report(tmp_path_factory):
    """The whole report of a first few MNIST runs, built once, with a budget for one more grid."""
    folder = tmp_path_factory.mktemp("paper")
    budget = folder / "budget.json"
    entry = {"dataset": "mnist", "k": 9, "epsilon": 3, "runs": 9, "noise_multiplier": 1.498}
    budget.write_text(
        json.dumps(
            [
                entry | {"method": "online"},
                entry | {"method": "fixed_threshold", "runs": 81, "noise_multiplier": 4.008},
                entry | {"method": "no_dp", "epsilon": None, "noise_multiplier": None},
            ]
        )
    )
    results = fill_paper(Store()).write(folder / "results")
    page = build_report(results, folder / "report", [budget], title="A <title> & more")
    return page.parent


def comparison_tables(of):
    """The paper's tables, those of other data sets, and what is beyond: whatever a study has."""
    sources = Sources(of, [], pd.DataFrame(), [])
    files = (tables_02_to_13, own_data_sets, beyond)
    return [table for file in files for table in file.tables(sources)]
