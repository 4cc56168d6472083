"""PATE: accounts of its students, published costs recomputed, and its claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from oso_dp import labels
from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.pate import (
    MOMENTS,
    ORDERS,
    argmax_rdp,
    calibrate_stable,
    check_votes,
    epsilon_of_rdp,
    laplace_epsilon,
    laplace_moments,
    log_answered,
    threshold_rdp,
)
from oso_dp.accounting.search_accounting import SINGLE
from oso_dp.analysis.claim_tests import FAILS, HOLDS, NOT_RUN, UNDECIDED, classify
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.side_measurements import PATE_PUBLISHED
from oso_dp.analysis.verdicts import Sample, difference, margin_of
from oso_dp.defaults import ROUNDING
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger
from oso_dp.results.pate_rows import LABELLING

_NAMED = ["dataset", "teachers", "aggregator", "epsilon", "seed"]  # where a labelling is named


def account_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each labelling: its budget, and epsilon of the planned and of the released ledger."""
    found = []
    for row in rows.drop_duplicates(LABELLING).to_dict("records"):
        spent = {
            name: compute_epsilon([Ledger.from_json(row[ledger])], row["delta"])
            for name, ledger in (("planned", "planned_ledger"), ("released", "ledger"))
        }
        found.append({**{name: row[name] for name in _NAMED}, "delta": row["delta"], **spent})
    columns = [*_NAMED, "delta", "planned", "released"]
    return pd.DataFrame(found, columns=columns)


def check_pate_budgets(accounts: pd.DataFrame) -> None:
    """OsoError if what was planned exceeds a budget, or what was released the plan."""
    for row in accounts.to_dict("records"):
        name = ", ".join(f"{label}={row[label]}" for label in _NAMED)
        for spent, budget in (("planned", "epsilon"), ("released", "planned")):
            if not row[spent] <= row[budget] * (1 + ROUNDING):
                raise OsoError(
                    f"pate.parquet: {name}: {spent} epsilon {row[spent]:.5g}; must be <= "
                    f"{row[budget]:.5g}, {'the budget' if budget == 'epsilon' else 'the plan'}"
                )


VOTES_FILE = "mnist_250_teachers.npy"  # npapernot/multiple-teachers-for-privacy, frhrdr/patepy
_DELTA = 1e-5
# Quantities that claims are about.
_RIGHT = "LNMax, scale 20: labels that are right, in %"
_LNMAX = "LNMax, scale 20: epsilon of 100 queries"
_INDEPENDENT = "LNMax, scale 20: data-independent epsilon of 100 queries"
_CONFIDENT = "Confident-GNMax: answered of 640"
_THEIRS = "Confident-GNMax: epsilon, by their conversion"


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


def recompute_published(folder: Path, truth: npt.NDArray[np.int64]) -> pd.DataFrame:
    """What two papers print for MNIST, beside what the authors' votes give, at delta 1e-5.

    truth: the labels of MNIST's test digits, of which the first 9,000 were voted on. OsoError for a
    folder without the votes.
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
    noisy = votes + np.random.default_rng(0).laplace(0, 20.0, votes.shape)
    right = 100 * float((noisy.argmax(axis=1) == truth[: len(votes)]).mean())
    rows = [
        _Published(_RIGHT, first, 93.18, right, 0.6),
        _Published(_LNMAX, first, 2.04, lnmax[0], 0.01),
        _Published(
            _INDEPENDENT,
            first,
            5.80,
            worst,
            0.01,
            "by their moments 1 to 8; which bound gives 5.80 is not said",
        ),
        _Published("LNMax, scale 20: epsilon of 1,000 queries", first, 8.03, lnmax[1], 0.2, subset),
        _Published(
            _CONFIDENT,
            second,
            286,
            float(probable.sum()),
            8,
            f"expected over the noise, {subset}",
        ),
        _Published(
            _THEIRS,
            second,
            1.97,
            theirs,
            0.05,
            f"expected over the noise, {subset}",
        ),
        _Published(
            "Confident-GNMax: epsilon, by the conversion of Canonne et al. 2020",
            second,
            1.97,
            epsilon_of_rdp(total, _DELTA),
            0.05,
            "tighter than their conversion",
        ),
    ]
    return pd.DataFrame([row.row() for row in rows], columns=PATE_PUBLISHED.columns)


def _read_published_votes(path: Path) -> npt.NDArray[np.float64]:
    try:
        votes = check_votes(np.load(path, allow_pickle=False))
    except (OSError, ValueError) as error:
        raise OsoError(f"{path}: cannot read votes ({' '.join(str(error).split())})") from None
    if votes.shape != (9000, 10):
        raise OsoError(f"{path}: votes {list(votes.shape)}; must be [9000, 10]")
    return votes


def compare_students(study: ResultSet) -> pd.DataFrame:
    """Accuracy on the students' test examples: of students, and of gradient methods beside them.

    Columns: dataset, epsilon, approach, learning, mean, std, seeds. The gradient methods are the
    untuned runs on these data sets, networks and budgets, at their last step.
    """
    rows = study.pate
    students = rows.assign(
        approach="PATE, " + rows["aggregator"], accuracy=rows["student_accuracy"]
    )
    parts = [students[[*_COMPARED, "accuracy"]]]
    if len(rows) and len(study.runs):
        runs = study.runs[study.runs["search_accounting"] == SINGLE]
        known = rows[["dataset", "model", "epsilon"]].drop_duplicates()
        runs = runs.merge(known, on=["dataset", "model", "epsilon"])
        last = study.evaluations[study.evaluations["split"] == _TEST_SPLIT]
        runs = runs.merge(
            last, left_on=["run_id", "steps"], right_on=["run_id", "step"], suffixes=("", "_there")
        )
        peers = runs.assign(approach=runs["method"].map(labels.method_label), learning="gradients")
        parts.append(peers.assign(accuracy=peers["value"])[[*_COMPARED, "accuracy"]])
    found = pd.concat(parts).groupby(_COMPARED, sort=False)["accuracy"]
    return found.agg(["mean", "std", "count"]).rename(columns={"count": "seeds"}).reset_index()


_COMPARED = ["dataset", "epsilon", "approach", "learning"]
_TEST_SPLIT = "test_odd"  # as the students' test examples


def summarize_epsilons(rows: pd.DataFrame) -> pd.DataFrame:
    """Epsilon of each labelling four ways, the means over seeds; with accuracies."""
    once = rows.drop_duplicates(LABELLING)
    keys = ["dataset", "teachers", "aggregator", "options", "epsilon"]
    means = once.groupby(keys, sort=False)[_MEANS].mean().reset_index()
    return means.assign(queries=once.groupby(keys, sort=False)["queries"].first().to_numpy())


_MEANS = [
    *("epsilon_rdp", "epsilon_exact", "epsilon_data_dependent", "epsilon_sanitized"),
    *("sanitized_deviation", "answered", "label_accuracy"),
    *("teacher_accuracy", "ensemble_accuracy"),
]

PATE_CLAIM_COLUMNS = ["claim", "says", "dataset", "verdict", "evidence"]
_PRINTED_STUDENT = 98.0  # MNIST, epsilon 2.04 (Papernot et al. 2017), semi-supervised


def judge_pate_claims(study: ResultSet) -> pd.DataFrame:
    """Verdicts on PATE; one row for each claim and data set.

    A1 to A3 by the tolerances of `recompute_published`, A4 by the mean over seeds, A5 by all
    labellings, A6 by calibrated plans, A7 by `claim_tests.classify`.
    """
    rows, compared = study.pate, compare_students(study)
    found = [
        (name, says, "mnist", *_published_claim(study.pate_published, quantities))
        for name, says, quantities in _OF_PUBLISHED
    ]
    for dataset in labels.sort_datasets(rows["dataset"].unique()):
        here, there = rows[rows["dataset"] == dataset], compared[compared["dataset"] == dataset]
        if dataset == "mnist":
            found.append(("A4", _A4, dataset, *_student_claim(there)))
        found.append(("A5", _A5, dataset, *_dependent_claim(here)))
        found.append(("A7", _A7, dataset, *_peers_claim(there)))
    found.append(("A6", _A6, labels.DASH, *_stable_claim()))
    return pd.DataFrame(sorted(found), columns=PATE_CLAIM_COLUMNS)


# Claims about the authors' votes, with the quantities of `recompute_published` that decide them.
_OF_PUBLISHED = (
    ("A1", "LNMax labels 93.18 % right.", (_RIGHT,)),
    (
        "A2",
        "LNMax, 100 queries: data-dependent epsilon 2.04, data-independent 5.80.",
        (_LNMAX, _INDEPENDENT),
    ),
    ("A3", "Confident-GNMax answers 286 of 640 queries at 1.97.", (_CONFIDENT, _THEIRS)),
)
_A4 = f"A student trained on private labels reaches {_PRINTED_STUDENT} % at epsilon <= 2.04."
_A5 = (
    "The data-dependent epsilon (RDP) of GNMax and Confident-GNMax is below the data-independent "
    "one (PLD)."
)
_A6 = (
    "At equal epsilon, the lead that a stable winner needs grows with the unstable queries, and "
    "hardly with all queries."
)
_A7 = "At equal epsilon the best student is at least as good as the best gradient method."


def _published_claim(table: pd.DataFrame, quantities: Sequence[str]) -> tuple[str, str]:
    if table.empty:
        return NOT_RUN, "`oso pate published` was not run"
    rows = table[table["quantity"].isin(quantities)]
    if len(rows) < len(quantities):
        return NOT_RUN, "`oso pate published` was run by an older version"
    texts = [f"printed {row['printed']:g}, ours {row['ours']:.4g}" for _, row in rows.iterrows()]
    return HOLDS if rows["agrees"].all() else FAILS, "; ".join(texts)


def _stable_claim() -> tuple[str, str]:
    """By the calibrated margins, at epsilon 8."""
    few, many, unstable = (
        calibrate_stable(queries, unstable, 8.0, _DELTA).margin
        for queries, unstable in ((100, 1), (10_000, 1), (100, 10))
    )
    text = (
        f"{many / few:.2f} times the lead for 100 times the queries, {unstable / few:.1f} times "
        "for 10 times the unstable ones"
    )
    return HOLDS if many < 2 * few and unstable > 5 * few else FAILS, text


def _student_claim(compared: pd.DataFrame) -> tuple[str, str]:
    students = compared[compared["approach"].str.startswith("PATE") & (compared["epsilon"] <= 2.04)]
    if students.empty:
        return NOT_RUN, "no students at epsilon <= 2.04"
    best = students.loc[students["mean"].idxmax()]
    verdict = HOLDS if 100 * best["mean"] >= _PRINTED_STUDENT else FAILS
    return verdict, f"{_named(best)}: {100 * best['mean']:.2f} %, {best['seeds']} seeds"


def _dependent_claim(rows: pd.DataFrame) -> tuple[str, str]:
    rows = rows.dropna(subset=["epsilon_exact", "epsilon_data_dependent"]).drop_duplicates(
        LABELLING
    )
    if rows.empty:
        return NOT_RUN, "no labels with Gaussian noise"
    ratio = rows["epsilon_data_dependent"] / rows["epsilon_exact"]
    verdict = HOLDS if (ratio < 1).all() else FAILS if (ratio >= 1).all() else UNDECIDED
    return verdict, f"{ratio.min():.2f} to {ratio.max():.2f} times, {len(ratio)} labellings"


def _peers_claim(compared: pd.DataFrame) -> tuple[str, str]:
    is_student = compared["approach"].str.startswith("PATE")
    pairs, texts = [], []
    for epsilon, here in compared[compared["seeds"] > 1].groupby("epsilon"):
        sides = [here[is_student[here.index] == side] for side in (True, False)]
        if any(side.empty for side in sides):
            continue
        one, other = (side.loc[side["mean"].idxmax()] for side in sides)
        pairs.append((_in_percent(one), _in_percent(other)))
        lead = labels.format_signed(100 * (one["mean"] - other["mean"]))
        texts.append(f"ε {epsilon:g}: {_named(one)} {lead} points against {other['approach']}")
    if not pairs:
        return NOT_RUN, "no epsilon with students and gradient methods"
    advantage = difference(pairs)
    assert advantage is not None  # two seeds or more
    verdict = classify(advantage, -margin_of(str(compared["dataset"].iloc[0])), math.inf)
    return verdict, "; ".join(texts)


def _in_percent(row: pd.Series) -> Sample:
    return Sample(100 * row["mean"], 100 * row["std"], int(row["seeds"]))


def _named(row: pd.Series) -> str:
    return f"{row['approach']}, {row['learning'].replace('_', '-')}"
