"""The tables in reports/ are what results/ say: to the last number, of every stored row."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from oso_dp.analysis.accounts import account
from oso_dp.analysis.budgets import read_study_plans
from oso_dp.analysis.claims import judged
from oso_dp.analysis.load import read_study
from oso_dp.reporting.sources import Sources
from oso_dp.reporting.table import to_csv
from oso_dp.reporting.tables import every_table
from oso_dp.study.plan import plans_of


@pytest.fixture(scope="module")
def tables(repo: Path, tmp_path_factory) -> dict[str, Path]:
    """Each table of the stored results, computed anew, as a file."""
    store, folder = repo / "results", tmp_path_factory.mktemp("tables")
    study = read_study(store, plans_of(store))
    accounts = account(study.runs, *read_study_plans(plans_of(store)))
    pictures = [path.stem for path in (repo / "reports/figures").glob("*.png")]
    written = {}
    for table in every_table(Sources(study, accounts, judged(study), pictures)):
        written[table.name] = folder / f"{table.name}.csv"
        written[table.name].write_text(to_csv(table))
    return written


def test_the_report_has_these_tables_and_no_others(repo: Path, tables) -> None:
    assert {path.stem for path in (repo / "reports/tables").glob("*.csv")} == tables.keys()


def test_every_number_is_the_reports(repo: Path, tables) -> None:
    """A change of code may not change one; new rows come with `make report`."""
    for name, path in tables.items():
        stored, fresh = (pd.read_csv(at) for at in (repo / f"reports/tables/{name}.csv", path))
        assert list(stored) == list(fresh), name
        assert len(stored) == len(fresh), name
        numbers = stored.select_dtypes("number").columns
        assert set(numbers) == set(fresh.select_dtypes("number").columns), name
        np.testing.assert_allclose(
            fresh[numbers].to_numpy(float), stored[numbers].to_numpy(float), rtol=1e-6, err_msg=name
        )
