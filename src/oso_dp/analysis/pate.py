"""PATE: accounts of its students, published costs recomputed, and its claims."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.pate import (
    MOMENTS,
    ORDERS,
    argmax_rdp,
    check_votes,
    epsilon_of_rdp,
    laplace_epsilon,
    laplace_moments,
    log_answered,
    threshold_rdp,
)
from oso_dp.defaults import ROUNDING
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger

_LABELS = ["dataset", "teachers", "aggregator", "epsilon", "seed"]


def account_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each labelling: its budget, and epsilon of the planned and of the released ledger."""
    found = []
    for row in rows.drop_duplicates(_LABELS).to_dict("records"):
        spent = {
            name: compute_epsilon([Ledger.from_json(row[ledger])], row["delta"])
            for name, ledger in (("planned", "planned_ledger"), ("released", "ledger"))
        }
        found.append({**{name: row[name] for name in _LABELS}, "delta": row["delta"], **spent})
    columns = [*_LABELS, "delta", "planned", "released"]
    return pd.DataFrame(found, columns=columns)


def check_pate_budgets(accounts: pd.DataFrame) -> None:
    """OsoError if what was planned exceeds a budget, or what was released the plan."""
    for row in accounts.to_dict("records"):
        name = ", ".join(str(row[label]) for label in _LABELS)
        for spent, budget in (("planned", "epsilon"), ("released", "planned")):
            if not row[spent] <= row[budget] * (1 + ROUNDING):
                raise OsoError(
                    f"pate.parquet: {name}: epsilon {row[spent]:.5g} {spent}; must be <= "
                    f"{row[budget]:.5g} ({budget})"
                )


VOTES_FILE = "mnist_250_teachers.npy"  # npapernot/multiple-teachers-for-privacy, frhrdr/patepy
PUBLISHED = "pate_published.csv"  # in a results folder
PUBLISHED_COLUMNS = ["quantity", "source", "printed", "ours", "tolerance", "agrees", "remark"]
_DELTA = 1e-5


@dataclass(frozen=True)
class _Published:
    quantity: str
    source: str
    printed: float
    ours: float
    tolerance: float
    remark: str = ""

    def row(self) -> list[object]:
        agrees = abs(self.ours - self.printed) <= self.tolerance
        return [*list(vars(self).values())[:-1], agrees, self.remark]


def recompute_published(folder: Path) -> pd.DataFrame:
    """The costs that two papers print for MNIST, beside what the authors' votes give, at 1e-5.

    OsoError for a folder without the votes.
    """
    votes = _read_published_votes(folder / VOTES_FILE)
    first, second = "Papernot et al. 2017", "Papernot et al. 2018"
    lnmax = [
        laplace_epsilon(laplace_moments(votes[:count], 20.0).sum(axis=0), _DELTA)
        for count in (100, 1000)
    ]
    worst = laplace_epsilon(100 * 2 / 20.0**2 * MOMENTS * (MOMENTS + 1), _DELTA)
    asked = votes[:640]
    probable = np.exp(log_answered(asked, 200.0, 150.0))
    rdp = threshold_rdp(asked, 200.0, 150.0) + probable[:, None] * argmax_rdp(asked, 40.0)
    total = rdp.sum(axis=0)
    theirs = float(np.min(total + math.log(1 / _DELTA) / (ORDERS - 1)))
    subset = "of the first queries; which ones were asked is not said"
    rows = [
        _Published("LNMax, scale 20: epsilon of 100 queries", first, 2.04, lnmax[0], 0.01),
        _Published(
            "the same, independent of the votes",
            first,
            5.80,
            worst,
            0.01,
            "by their moments 1 to 8; which bound gives 5.80 is not said",
        ),
        _Published("LNMax, scale 20: epsilon of 1,000 queries", first, 8.03, lnmax[1], 0.2, subset),
        _Published(
            "Confident-GNMax: answered of 640",
            second,
            286,
            float(probable.sum()),
            8,
            f"expected over the noise, {subset}",
        ),
        _Published(
            "its epsilon, by their conversion",
            second,
            1.97,
            theirs,
            0.05,
            f"expected over the noise, {subset}",
        ),
        _Published(
            "the same, by today's conversion",
            second,
            1.97,
            epsilon_of_rdp(total, _DELTA),
            0.05,
            "a conversion of 2020 is tighter",
        ),
    ]
    return pd.DataFrame([row.row() for row in rows], columns=PUBLISHED_COLUMNS)


def _read_published_votes(path: Path) -> npt.NDArray[np.float64]:
    try:
        votes = check_votes(np.load(path, allow_pickle=False))
    except (OSError, ValueError) as error:
        raise OsoError(f"{path}: cannot read votes ({' '.join(str(error).split())})") from None
    if votes.shape != (9000, 10):
        raise OsoError(f"{path}: votes {list(votes.shape)}; must be [9000, 10]")
    return votes
