"""The paper's claims (C1, C2, ...) and further questions (Q1, ...), each with its test."""

from dataclasses import dataclass
from functools import cache

import pandas as pd

from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.analysis.cells import list_panels
from oso_dp.analysis.claim_tests import (
    CELLS,
    NOT_APPLICABLE,
    NOT_RUN,
    PAPER_POINT_COLUMNS,
    RUNS,
    ClaimData,
    ClaimResult,
    ClaimTest,
    all_of,
    always_diverges,
    compare_methods,
)
from oso_dp.analysis.claims import compare_gradient_noise, compare_step_times
from oso_dp.analysis.random_stopping import outcomes, primary_distribution
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.claims import prominent_optimum
from oso_dp.analysis.untuned_runs import win_ranges, wins_over_decades
from oso_dp.paper.tables import DATASETS, SEEDS, paper_results

# Ablations: FixedThreshold with C fixed beforehand; Online without adapting C, or rho.
PRESET = "fixed_threshold_preset"
FROZEN_THRESHOLD = "online_frozen_threshold"
FROZEN_RATE = "online_frozen_learning_rate"

NOT_TESTED = "not asked"


@dataclass(frozen=True)
class Claim:
    """A statement that results can contradict; `test` is called once per data set."""

    name: str  # C1, C2, ...: the paper's claims; Q1, Q2, ...: further questions
    statement: str
    where: str  # in the paper, or NOT_TESTED
    datasets: tuple[str, ...]
    test: ClaimTest
    search_accounting: str = COMPOSITION
    by_construction: bool = False  # follows from a formula in the code: no run could refute it


CLAIMS = (
    Claim(
        "C1",
        "Online is at least as good as FixedThreshold under the same budget for the grid.",
        "Abstract, Discussion",
        DATASETS,
        compare_methods("online", "at least as good as", "fixed_threshold"),
    ),
    Claim(
        "C2",
        "Online is at least as good as FixedQuantile under the same budget for the grid.",
        "Abstract, Discussion",
        DATASETS,
        compare_methods("online", "at least as good as", "fixed_quantile"),
    ),
    Claim(
        "C3",
        "Online and AdamWOSM are on a par on MNIST and AG News.",
        "Discussion of Figures 3 and 5",
        ("mnist", "ag_news"),
        compare_methods("online", "on a par with", "adam_wosm"),
    ),
    Claim(
        "C4",
        "Online is better than AdamWOSM on Fashion-MNIST.",
        "Discussion of Figure 4",
        ("fashion_mnist",),
        compare_methods("online", "better than", "adam_wosm"),
    ),
    Claim(
        "C5",
        "Adapting to a quantile is no better than a fixed threshold on MNIST.",
        "Discussion of Figure 3",
        ("mnist",),
        compare_methods("fixed_quantile", "no better than", "fixed_threshold"),
    ),
    Claim(
        "C6",
        "On Fashion-MNIST FixedQuantile diverges at ε = 1 whatever its hyperparameters.",
        "Table 3, Figure 4",
        ("fashion_mnist",),
        always_diverges("fixed_quantile", epsilon=1.0),
    ),
    Claim(
        "C7",
        "On Fashion-MNIST FixedQuantile is second to Online at ε = 2, 3, 4 (k = 7 and 9).",
        "Discussion of Figure 4",
        ("fashion_mnist",),
        all_of(
            compare_methods("online", "better than", "fixed_quantile", (7, 9), (2.0, 3.0, 4.0)),
            compare_methods(
                "fixed_quantile", "better than", "fixed_threshold", (7, 9), (2.0, 3.0, 4.0)
            ),
            compare_methods("fixed_quantile", "better than", "adam_wosm", (7, 9), (2.0, 3.0, 4.0)),
        ),
    ),
    Claim(
        "C8",
        "Online costs little more time than FixedThreshold: at most a quarter more per step "
        "(our limit for “minimal”, in our engine).",
        "Conclusion",
        DATASETS,
        compare_step_times("online", "fixed_threshold", at_most=1.25),
    ),
    Claim(
        "C9",
        "Online's second query costs 1 % more noise on the gradient.",
        "Privacy Analysis",
        DATASETS,
        compare_gradient_noise("online", at_most=0.01),
        by_construction=True,
    ),
    Claim(
        "C10",
        "At every iteration C has a fairly prominent optimal value (our reading: its cosine is a "
        "tenth above those at both ends of the range).",
        "Introduction, Figure 1",
        ("mnist",),  # the paper's figure does not name its data
        prominent_optimum,
    ),
    Claim(
        "Q1",
        "Online is better than FixedThreshold with C = 0.1 given beforehand, which searches as few "
        "runs: so adapting matters, not only the smaller grid.",
        NOT_TESTED,
        DATASETS,
        compare_methods("online", "better than", PRESET, ks=(9,), at_least=0),
    ),
    Claim(
        "Q2",
        "Adapting C matters: Online is better than Online with C frozen.",
        NOT_TESTED,
        DATASETS,
        compare_methods("online", "better than", FROZEN_THRESHOLD, ks=(9,), at_least=0),
    ),
    Claim(
        "Q3",
        "Adapting ρ matters: Online is better than Online with ρ frozen.",
        NOT_TESTED,
        DATASETS,
        compare_methods("online", "better than", FROZEN_RATE, ks=(9,), at_least=0),
    ),
    Claim(
        "Q4",
        "Online is better than FixedThreshold also where the search stops at random.",
        NOT_TESTED,
        DATASETS,
        compare_methods("online", "better than", "fixed_threshold", ks=(9,), at_least=0),
        search_accounting=RANDOM_STOPPING,
    ),
    Claim(
        "Q5",
        "One run of Online without a search beats the best of its searched grid under the same "
        "budget, for guesses of ρ₀ over at least a decade.",
        NOT_TESTED,
        DATASETS,
        wins_over_decades("online", decades=1.0),
    ),
)

VERDICTS = {
    "by the paper's numbers": "paper",
    "ours": "best",
    "at the last step": "last",
    "by cross-selection": "cross",
}


def judge_claims(study: ResultSet) -> pd.DataFrame:
    """Test all claims.

    Returns:
        One row per claim and data set: the verdict from the paper's numbers and from ours by each
        checkpoint rule, and our evidence. Questions that the paper does not ask are also tested on
        data sets that are not in the paper, if they were run.
    """
    others = [dataset for dataset in study.datasets if dataset not in DATASETS]
    ran = [pair for pair in list_panels(study) if pair[0] in others]
    frames = [judge_cells(study, dataset, k) for dataset, k in [*_designed_cells(), *ran]]
    cells = pd.concat(frames)
    ours = cells[[*CELLS, *RUNS, *PAPER_POINT_COLUMNS]]
    best = ClaimData(ours, study.main_runs, study.step_times, study.cosine, win_ranges(study))
    sources = {"best": best}
    sources |= {rule: ClaimData(_judge_by_rule(cells, rule)) for rule in ("last", "cross")}
    stopped = {"best": ClaimData(_make_random_stopping_cells(study))}
    rows = []
    for claim in CLAIMS:
        used = sources if claim.search_accounting == COMPOSITION else stopped
        for dataset in [*claim.datasets, *(others if claim.where == NOT_TESTED else ())]:
            findings = {name: claim.test(evidence, dataset) for name, evidence in used.items()}
            if used is sources:
                findings["paper"] = _judge_paper_numbers(claim, dataset)
            if dataset in claim.datasets or findings["best"].verdict != NOT_RUN:
                rows.append(_row(claim, dataset, findings))
    return pd.DataFrame(rows)


def _judge_by_rule(cells: pd.DataFrame, rule: str) -> pd.DataFrame:
    """The cells with their values under another checkpoint rule than the paper's."""
    renamed = {name: cells[f"{rule}_{name}"] for name in ("mean", "std")}
    at_paper = {
        name: cells[name.replace("at_paper", f"at_paper_{rule}")] for name in PAPER_POINT_COLUMNS
    }
    seeds = cells[f"{rule}_seeds"].fillna(0)
    return cells[[*CELLS, *RUNS]].assign(**renamed, seeds=seeds, **at_paper)


def _row(claim: Claim, dataset: str, findings: dict[str, ClaimResult]) -> dict:
    best = findings["best"]
    verdicts = {
        name: findings.get(name, ClaimResult(NOT_APPLICABLE)).verdict for name in VERDICTS.values()
    }
    if verdicts["paper"] == NOT_RUN:
        verdicts["paper"] = NOT_APPLICABLE
    numbers = ("advantage", "low", "high", "margin", "grids", "of_grids", "at_paper")
    return {
        "claim": claim.name,
        "by_construction": claim.by_construction,
        "says": claim.statement,
        "where": claim.where,
        "dataset": dataset,
        **{f"verdict_{name}": verdict for name, verdict in verdicts.items()},
        "evidence": best.text,
        **{name: best.numbers.get(name) for name in numbers},
    }


@cache
def _judge_paper_numbers(claim: Claim, dataset: str) -> ClaimResult:
    return claim.test(ClaimData(_make_paper_cells()), dataset)


@cache
def _make_paper_cells() -> pd.DataFrame:
    paper = paper_results()
    status = paper["mean"].notna().map({True: "run", False: "not run"})
    status = status.mask(paper["diverged"], "diverged")
    return paper.assign(status=status, seeds=SEEDS)[CELLS]


def _make_random_stopping_cells(study: ResultSet) -> pd.DataFrame:
    """Expected outcomes of random stopping as cells, under one distribution for all methods."""
    cells = primary_distribution(outcomes(study)).rename(columns={"value": "mean"})
    return cells.assign(status=cells["mean"].notna().map({True: "run", False: "not run"}))


def _designed_cells() -> list[tuple[str, int]]:
    """The paper's pairs of data set and k; its claims concern no others."""
    pairs = paper_results()[["dataset", "k"]].drop_duplicates()
    return [(dataset, int(k)) for dataset, k in pairs.itertuples(index=False)]
