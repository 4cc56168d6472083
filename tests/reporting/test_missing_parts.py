"""A table and a figure are one file each, and are found by it."""

from pathlib import Path

import pytest

import oso_dp.reporting.figures as figures
import oso_dp.reporting.tables as tables
from oso_dp.reporting.page.build import build_report

TABLE = '''"""A new table."""

import pandas as pd

from oso_dp.reporting.table import ReportContext
from oso_dp.reporting.table import Table


def tables(sources: ReportContext) -> list[Table]:
    rows = pd.DataFrame({"seeds": [int(sources.study.runs["seed"].nunique())]})
    return [Table("brand_new", "How many seeds there are", rows, rows, ("A note.",))]
'''
FIGURE = '''"""A new figure."""

from collections.abc import Iterator

from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.figures.chart import Axis, Chart, FigureSpec

ORDER = 500


def figures(study: ResultSet) -> Iterator[FigureSpec]:
    chart = Chart(study.values, "A title", Axis("seed"), Axis("value"), {"online": {}})
    yield FigureSpec("brand_new", "", None, "mine", "A caption of mine.", chart.draw)
'''


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "__path__", [])  # drawing the others takes seconds
    for package, text in ((tables, TABLE), (figures, FIGURE)):
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / "brand_new.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])


def test_build_report_new_modules_included(added, store, tmp_path) -> None:
    for seed in (0, 1):
        store.add(dataset="glyphs", k=3, seed=seed)
    page = build_report(store.write(tmp_path / "results"), tmp_path / "report")
    assert (page.parent / "tables" / "brand_new.csv").read_text() == "seeds\n2\n"
    assert (page.parent / "figures" / "brand_new.png").stat().st_size > 1000
    text = page.read_text()
    for said in ("How many seeds there are", "A note.", "A caption of mine."):
        assert said in text
