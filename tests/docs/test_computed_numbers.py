"""Numbers on the pages that follow from the code alone, to their last digit."""

import math
import re

import pytest
from scipy.optimize import brentq
from tests.searches import make_search

from oso_dp.accounting.accountants import make_accountant
from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.accounting.search_accounting.random_stopping import STOPPING_ETA
from oso_dp.models import build_model
from oso_dp.privacy.ledger import composed_event
from oso_dp.privacy.sampling import PoissonSampling

MNIST, DELTA = PoissonSampling(512 / 60_000), 1e-5
STEPS = math.ceil(10 * 60_000 / 512)
ROW = re.compile(r"^\| (\d) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", re.M)


@pytest.mark.parametrize(
    ("epsilon", "runs"),
    [
        (3, 81),
        *(pytest.param(*row, marks=pytest.mark.nightly) for row in [(3, 9), (9, 9), (9, 81)]),
    ],
)
def test_ambiguities_classical_conversion_noise_matches(epsilon, runs, repo) -> None:
    def spent(nu: float) -> float:
        accountant = make_accountant("rdp", MNIST)
        accountant.compose(composed_event({(MNIST, nu): STEPS * runs}))
        orders = zip(accountant._orders, accountant._rdp, strict=True)
        return min(rdp + math.log(1 / DELTA) / (order - 1) for order, rdp in orders if order > 1)

    classical = brentq(lambda nu: spent(nu) - epsilon, 0.5, 8, xtol=1e-4)
    ours = Search(MNIST, STEPS, runs).noise_multiplier(epsilon, DELTA)
    page = (repo / "docs/reproduction/ambiguities.md").read_text(encoding="utf-8")
    assert f"| {epsilon} | {runs} | {ours:.3g} | {classical:.3g} |" in page


@pytest.mark.parametrize(
    "column",
    [
        "composition",
        "logarithmic",
        *(pytest.param(shape, marks=pytest.mark.nightly) for shape in ("geometric", "poisson")),
    ],
)
def test_extensions_stopping_noise_matches(repo, column) -> None:
    page = (repo / "docs/reproduction/extensions.md").read_text(encoding="utf-8")
    assert f"| {column} |" in page.replace("Poisson |", "poisson |")
    place = 2 + ["composition", "logarithmic", "geometric", "poisson"].index(column)
    rows = ROW.findall(page)
    assert [row[:2] for row in rows] == [("3", "9"), ("3", "81"), ("9", "9"), ("9", "81")]
    for row in rows:
        stopped = column != "composition"
        way = RANDOM_STOPPING if stopped else COMPOSITION
        shape = {"stopping_eta": STOPPING_ETA[column]} if stopped else {}
        search = make_search(MNIST, STEPS, int(row[1]), way, **shape)
        assert row[place] == f"{search.noise_multiplier(float(row[0]), DELTA):.3f}"


def test_extensions_gradient_length_matches(repo) -> None:
    page = (repo / "docs/reproduction/extensions.md").read_text(encoding="utf-8")
    size = sum(p.numel() for p in build_model("cnn").parameters())
    sigma = Search(MNIST, STEPS, 1).noise_multiplier(3.0, DELTA) / 512  # nu C / B, with C = 1
    assert f"squared length is {size * sigma**2:.2f} by noise alone" in page


def test_artifact_report_sizes_match(repo) -> None:
    """The stated sizes may differ by 1 MB, because a report grows with the results."""
    page = (repo / "docs/reproduction/artifact.md").read_text(encoding="utf-8")
    said = re.search(r"the report (\d+) MB \(its page (\d+) MB\)", page)
    every = [path for path in (repo / "reports").rglob("*") if path.is_file()]
    whole = sum(path.stat().st_size for path in every if repo / "reports/demo" not in path.parents)
    sizes = whole, (repo / "reports/index.html").stat().st_size
    for megabytes, size in zip(map(int, said.groups()), sizes, strict=True):
        assert abs(megabytes - size / 1e6) < 1
