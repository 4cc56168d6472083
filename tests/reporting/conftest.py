"""Whole reports of made-up results, built once."""

import os
from contextlib import contextmanager

import pandas as pd
import pytest
from filelock import FileLock
from matplotlib.figure import Figure
from tests.planned_rows import mnist_study
from tests.reporting.drawing_helpers import every_kind
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

from oso_dp.accounting.search_accounting.random_stopping import RandomStoppingSearch
from oso_dp.analysis import search_costs
from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.figures import every_figure
from oso_dp.reporting.figures.chart import FigureSpec
from oso_dp.reporting.page.build import build_report
from oso_dp.reporting.table import ReportContext
from oso_dp.reporting.tables import cells
from oso_dp.study.plan import make_plan_with_noise, write_plan


@contextmanager
def quick_prices():
    """Prices take up to seconds each, and test_search_costs checks them: here are made-up ones."""

    def price(search, epsilon, delta, accountant):
        grows = (
            0.5
            if not isinstance(search, RandomStoppingSearch)
            else 0.05 * (2 + min(search.stopping_eta, 7))
        )
        whole = search.runs**grows * (1 + search.sampling.rate * search.steps**0.5) / epsilon
        return whole * (0.94 if accountant == "pld" else 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_costs, "_noise_multiplier", price)
        yield


@pytest.fixture(autouse=True)
def no_price_takes_seconds():
    with quick_prices():
        yield


def built_once(tmp_path_factory, name, build):
    """What `build` makes in a folder of this name, which several workers share."""
    folder = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        folder = folder.parent
    with FileLock(folder / f"{name}.lock"):
        made = folder / name
        if not made.exists():
            with quick_prices():
                build(folder / f".{name}")
            (folder / f".{name}").rename(made)
    return made / "report"


@pytest.fixture(scope="session", autouse=True)
def one_day():
    """Reports say when they were made; those of the tests, all on one day."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1800000000")
        yield


@pytest.fixture(scope="session")
def made() -> ResultSet:
    """A study of which every figure can be drawn."""
    return every_kind()


@pytest.fixture(scope="session")
def drawn(made) -> list[tuple[FigureSpec, Figure]]:
    """Its figures, drawn once: look, and change nothing."""
    with quick_prices():
        pairs = [(plan, plan.draw()) for plan in every_figure(made)]
    return [(plan, figure) for plan, figure in pairs if figure is not None]


@pytest.fixture(scope="session")
def glyphs_report(tmp_path_factory):
    """The whole report of the demo's results."""

    def build(folder):
        build_report(fill_glyphs(Store()).write(folder / "results"), folder / "report")

    return built_once(tmp_path_factory, "glyphs", build)


@pytest.fixture(scope="session")
def paper_report(tmp_path_factory):
    """The whole report of a first few MNIST runs, with a budget for one more grid."""
    noise = {"mnist.online.k9.eps3": 1.498, "mnist.fixed_threshold.k9.eps3": 4.008}
    plan = make_plan_with_noise(mnist_study("online", "fixed_threshold", "no_dp"), noise)

    def build(folder):
        results = fill_paper(Store()).write(folder / "results")
        write_plan(plan, folder / "plan.json")
        build_report(results, folder / "report", [folder / "plan.json"])

    return built_once(tmp_path_factory, "paper", build)


def comparison_tables(of):
    """The paper's tables, those of other data sets, and what is beyond: whatever a study has."""
    sources = ReportContext(of, [], pd.DataFrame(), [])
    return cells.tables(sources)
