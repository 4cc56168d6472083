"""The paper's claims and further questions, with verdicts and evidence."""

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.claim_tests import (
    FAILS,
    HOLDS,
    NOT_APPLICABLE,
    NOT_RUN,
    UNDECIDED,
)
from oso_dp.analysis.claims import VERDICTS
from oso_dp.paper.tables import DATASETS
from oso_dp.reporting.table import ReportContext, Table

_NOTES = (
    "A claim about two methods is a range for A, the advantage of the first (positive is better), "
    "averaged over the grids, k and ε, of one data set: “at least as good” A ≥ −M, “on a par” "
    "−M ≤ A ≤ M, “better” A > 0, “no better” A ≤ M. M is the data set's margin of "
    "equivalence, as for the verdicts on values. On Fashion-MNIST M is a factor, and A the "
    "logarithm of the ratio of the errors; the text gives the ratio, below 1 where the first is "
    "better. “By ε” gives A at each budget; these intervals are not corrected for their number. "
    "“Equivalent within M”: the interval lies inside ±M.",
    "A claim holds if A's 95 % interval lies in that range, does not hold if it lies outside, and "
    "is undecided otherwise, or if fewer than half of the paper's grids have two seeds or more "
    "(for questions that the paper does not ask: if none has). The interval is Welch's, over "
    "seeds: it uses each seed's mean over the grids, whose standard deviation is the mean of the "
    "grids' standard deviations, since a seed starts all grids from the same weights. If the grid "
    "of either method is incomplete, both values are those at the paper's best points: the best of "
    "more points is larger by their number alone. Verdicts are not corrected for the number of "
    "claims.",
    "“By the paper's numbers” applies the same rule to the printed values (none for k = 7). “Ours” "
    "selects as the paper does; “at the last step” takes each run's last checkpoint; “by "
    "cross-selection” selects on one half of the test set and reports on the other. In a complete "
    "grid each rule also selects its best point.",
)


def tables(context: ReportContext) -> list[Table]:
    """No tables if nothing was run that a claim or question is about."""
    judged = context.claims["verdict_best"] != NOT_RUN
    if not judged.any() and not set(context.study.datasets) & set(DATASETS):
        return []
    return claims_tables(context.claims)


def claims_tables(data: pd.DataFrame) -> list[Table]:
    """The rows of `judge_claims` as tables: the paper's claims, questions, user level."""
    tables = []
    for name, initial, title in (
        ("claims", "C", "The paper's claims"),
        ("questions", "Q", "Further questions"),
        ("user_level_claims", "U", "User-level privacy"),
    ):
        rows = data[data["claim"].str.startswith(initial)].reset_index(drop=True)
        if initial == "U" and rows.empty:
            continue
        tables.append(Table(name, title, rows, _shown(rows), _NOTES))
    return tables


def _shown(data: pd.DataFrame) -> pd.DataFrame:
    first = ~data.duplicated("claim")
    cells = {
        "": data["claim"].where(first, ""),
        "claim": data["says"].where(first, ""),
        "data set": data["dataset"].map(labels.dataset_short),
    }
    for heading, name in VERDICTS.items():
        if (data[f"verdict_{name}"] != NOT_APPLICABLE).any():
            cells[heading] = data[f"verdict_{name}"]
    return pd.DataFrame(cells | {"our evidence": data["evidence"]})


def claims_sentence(data: pd.DataFrame) -> str:
    """How many of the paper's claims hold; those that hold by construction are separate."""
    built = data[data["claim"].str.startswith("C") & data["by_construction"]]
    names = ", ".join(dict.fromkeys(built["claim"]))
    hold = int((built["verdict_best"] == HOLDS).sum())
    apart = f" {names} follows from a formula of the method, so that no run could refute it"
    return f"By our rows, {claims_count(data)}.{apart} ({hold} of {len(built)} data sets were run)."


def claims_count(data: pd.DataFrame) -> str:
    """A clause on the number of claims by verdict, without those that hold by construction."""
    asked = data["claim"].str.startswith("C") & ~data["by_construction"]
    verdicts = data.loc[asked, "verdict_best"]
    hold, fail, open_ = (int((verdicts == v).sum()) for v in (HOLDS, FAILS, UNDECIDED))
    narrow = int((asked & (data["verdict_best"] == HOLDS) & (data["at_paper"] > 0)).sum())
    return (
        f"of its {len(verdicts)} claims, each data set counted, {hold} "
        f"{'holds' if hold == 1 else 'hold'}{f' ({narrow} {AT_PAPERS_POINTS})' if narrow else ''}, "
        f"{fail} {'does' if fail == 1 else 'do'} not, "
        f"{open_} {'is' if open_ == 1 else 'are'} undecided, "
        f"{len(verdicts) - hold - fail - open_} not run"
    )


def in_short(data: pd.DataFrame, initial: str) -> pd.DataFrame:
    """Text cells: a row for each claim ("C") or question ("Q"), a column for each data set."""
    rows = data[data["claim"].str.startswith(initial)]
    lines = []
    for name, of_claim in rows.groupby("claim", sort=False):
        first = of_claim.iloc[0]
        line = {"": name, "claim" if initial == "C" else "question": first["says"]}
        if initial == "C":
            line["the paper's numbers"] = _one_word(of_claim["verdict_paper"])
        words = of_claim.set_index("dataset")["verdict_best"]
        if first["by_construction"]:
            words = words.replace(HOLDS, BY_CONSTRUCTION)
        narrow = of_claim.set_index("dataset")["at_paper"] > 0
        words = words.mask(narrow & words.isin([HOLDS, FAILS]), words + f" {AT_PAPERS_POINTS}")
        for dataset in labels.sort_datasets(rows["dataset"].unique()):
            line[labels.dataset_short(dataset)] = words.get(dataset, NOT_APPLICABLE)
        lines.append(line)
    return pd.DataFrame(lines)


BY_CONSTRUCTION = f"{HOLDS} (by construction)"
AT_PAPERS_POINTS = "at the paper's points"  # if some of the compared grids are incomplete


def _one_word(verdicts: pd.Series) -> str:
    """The common verdict of all data sets, or the number of each verdict."""
    counts = verdicts[verdicts != NOT_APPLICABLE].value_counts()
    if len(counts) < 2:
        return str(counts.index[0]) if len(counts) else NOT_APPLICABLE
    return ", ".join(f"{word} ({number})" for word, number in counts.items())
