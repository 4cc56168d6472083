"""What stands in reports/ is what results/ say, to the last number and word."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from oso_dp.analysis.accounts import account_grids
from oso_dp.analysis.claims import judge_claims
from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.figures import chart, every_figure, files
from oso_dp.reporting.figures.chart import FigureSpec
from oso_dp.reporting.figures.files import WrittenFigure
from oso_dp.reporting.page.build import render
from oso_dp.reporting.table import ReportContext, Table, to_csv, to_latex, to_markdown
from oso_dp.reporting.tables import every_table
from oso_dp.study.plan import read_plan


@dataclass(frozen=True)
class Made:
    """A report's parts, made anew; no figure is drawn."""

    sources: ReportContext
    tables: Mapping[str, Table]
    plans: list[FigureSpec]  # of the figures that stand in the report


@pytest.fixture(scope="module")
def made(repo: Path, stored: ResultSet) -> Made:
    study = stored
    accounts = account_grids(study.runs, read_plan(repo / "results/plan.json"))
    there = {path.stem for path in (repo / "reports/figures").glob("*.png")}
    plans = [plan for plan in every_figure(study) if plan.name in there]
    sources = ReportContext(study, accounts, judge_claims(study), [plan.name for plan in plans])
    return Made(sources, {table.name: table for table in every_table(sources)}, plans)


def test_reports_table_names_match(repo: Path, made: Made) -> None:
    assert {path.stem for path in (repo / "reports/tables").glob("*.csv")} == made.tables.keys()


def test_reports_table_numbers_match(repo: Path, made: Made, tmp_path: Path) -> None:
    """The numbers of the committed tables match a new report; `make report` updates them."""
    for name, table in made.tables.items():
        path = tmp_path / f"{name}.csv"
        path.write_text(to_csv(table))
        stored, fresh = (pd.read_csv(at) for at in (repo / f"reports/tables/{name}.csv", path))
        assert list(stored) == list(fresh), name
        assert len(stored) == len(fresh), name
        numbers = stored.select_dtypes("number").columns
        assert set(numbers) == set(fresh.select_dtypes("number").columns), name
        np.testing.assert_allclose(
            fresh[numbers].to_numpy(float), stored[numbers].to_numpy(float), rtol=1e-6, err_msg=name
        )


@pytest.mark.parametrize("write", [to_markdown, to_latex])
def test_reports_table_text_matches(write, repo: Path, made: Made) -> None:
    """The committed Markdown and LaTeX tables match those of a new report."""
    ending = {to_markdown: "md", to_latex: "tex"}[write]
    for name, table in made.tables.items():
        assert write(table) == (repo / f"reports/tables/{name}.{ending}").read_text(), name


def test_reports_page_text_matches(repo: Path, made: Made) -> None:
    """The text of the committed page matches a new page, apart from the figures."""
    pictures = [_as_drawn(plan, repo / "reports/figures") for plan in made.plans]
    fresh = render(made.sources, made.tables, pictures)
    stored = (repo / "reports/index.html").read_text()
    assert _said(fresh) == _said(stored)


def test_reports_figure_data_match(repo: Path, made: Made) -> None:
    beside = [plan for plan in made.plans if plan.data is not None]
    assert beside
    for plan in beside:
        stored = pd.read_csv(repo / f"reports/figures/{plan.name}.csv")
        numbers = stored.select_dtypes("number").columns
        assert list(stored) == list(plan.data), plan.name
        np.testing.assert_allclose(
            plan.data[numbers].replace("", None).to_numpy(float),  # no words are no number
            stored[numbers].to_numpy(float),
            rtol=1e-5,
            err_msg=plan.name,
        )


@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_reports_figure_images_match(repo: Path, made: Made, all_of_them: bool) -> None:
    """The committed figures match new ones byte by byte: one per kind, nightly all of them."""
    wanted = re.search(r"^matplotlib==(\S+)", (repo / "requirements.lock").read_text(), re.M)
    if version("matplotlib") != wanted[1]:
        pytest.skip(f"matplotlib {version('matplotlib')} draws otherwise than {wanted[1]} does")
    last = {plan.kind: plan for plan in made.plans}
    drawn = made.plans if all_of_them else last.values()
    other = []
    for plan in drawn:
        with chart.theme():
            png = files.to_png(plan.draw())
        if png != (repo / f"reports/figures/{plan.name}.png").read_bytes():
            other.append(plan.name)
    assert other == []


def _as_drawn(plan: FigureSpec, folder: Path) -> WrittenFigure:
    width = int.from_bytes((folder / f"{plan.name}.png").read_bytes()[16:20], "big")
    return WrittenFigure(plan, "", width)


def _said(page: str) -> list[str]:
    """The page's lines without its figures, its looks and its day."""
    page = re.sub(r"data:image/[^\"]*", "", page)
    page = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"Report of [\d-]+", "", page).splitlines()
