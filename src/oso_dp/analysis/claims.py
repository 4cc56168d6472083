"""What the paper claims and what it leaves open, each with the function that judges it."""

from dataclasses import dataclass
from functools import cache

import pandas as pd

from oso_dp.accounting.tuning import COMPOSITION, RANDOM_STOPPING
from oso_dp.analysis.cell_verdicts import judged_cells
from oso_dp.analysis.cells import settings
from oso_dp.analysis.costs_claimed import gradient_noise, step_time
from oso_dp.analysis.evidence import (
    AT_PAPER,
    CELLS,
    NOT_RUN,
    NOTHING,
    RUNS,
    Evidence,
    Finding,
    Judge,
    diverges,
    every,
    relation,
)
from oso_dp.analysis.guesses import ranges, wide_guesses
from oso_dp.analysis.optimal_threshold import prominent_optimum
from oso_dp.analysis.random_stopping import outcomes, usual
from oso_dp.analysis.study import Study
from oso_dp.paper.tables import DATASETS, SEEDS, paper_results

# The controls: FixedThreshold with C given beforehand; Online without adapting C, or rho.
PRESET = "fixed_threshold_preset"
FROZEN_THRESHOLD = "online_frozen_threshold"
FROZEN_RATE = "online_frozen_learning_rate"

NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Claim:
    """One sentence that results can hold against; `judge` is asked once per data set."""

    name: str  # C1, C2, ...: the paper's; Q1, Q2, ...: what it does not ask
    says: str
    where: str  # in the paper, or NOT_ASKED
    datasets: tuple[str, ...]
    judge: Judge
    tuning_accounting: str = COMPOSITION
    by_construction: bool = (
        False  # follows from a formula that the code has: no run could refute it
    )


CLAIMS = (
    Claim(
        "C1",
        "Online is at least as good as FixedThreshold under the same budget for the grid.",
        "Abstract, Discussion",
        DATASETS,
        relation("online", "at least as good as", "fixed_threshold"),
    ),
    Claim(
        "C2",
        "Online is at least as good as FixedQuantile under the same budget for the grid.",
        "Abstract, Discussion",
        DATASETS,
        relation("online", "at least as good as", "fixed_quantile"),
    ),
    Claim(
        "C3",
        "Online and AdamWOSM are on a par on MNIST and AG News.",
        "Discussion of Figures 3 and 5",
        ("mnist", "ag_news"),
        relation("online", "on a par with", "adam_wosm"),
    ),
    Claim(
        "C4",
        "Online is better than AdamWOSM on Fashion-MNIST.",
        "Discussion of Figure 4",
        ("fashion_mnist",),
        relation("online", "better than", "adam_wosm"),
    ),
    Claim(
        "C5",
        "Adapting to a quantile is no better than a fixed threshold on MNIST.",
        "Discussion of Figure 3",
        ("mnist",),
        relation("fixed_quantile", "no better than", "fixed_threshold"),
    ),
    Claim(
        "C6",
        "On Fashion-MNIST FixedQuantile diverges at ε = 1 whatever its hyperparameters.",
        "Table 3, Figure 4",
        ("fashion_mnist",),
        diverges("fixed_quantile", epsilon=1.0),
    ),
    Claim(
        "C7",
        "On Fashion-MNIST FixedQuantile is second to Online at ε = 2, 3, 4 (k = 7 and 9).",
        "Discussion of Figure 4",
        ("fashion_mnist",),
        every(
            relation("online", "better than", "fixed_quantile", (7, 9), (2.0, 3.0, 4.0)),
            relation("fixed_quantile", "better than", "fixed_threshold", (7, 9), (2.0, 3.0, 4.0)),
            relation("fixed_quantile", "better than", "adam_wosm", (7, 9), (2.0, 3.0, 4.0)),
        ),
    ),
    Claim(
        "C8",
        "Online costs little more time than FixedThreshold: at most a quarter more per step "
        "(our limit for “minimal”, in our engine).",
        "Conclusion",
        DATASETS,
        step_time("online", "fixed_threshold", at_most=1.25),
    ),
    Claim(
        "C9",
        "Online's second query costs 1 % more noise on the gradient.",
        "Privacy Analysis",
        DATASETS,
        gradient_noise("online", at_most=0.01),
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
        NOT_ASKED,
        DATASETS,
        relation("online", "better than", PRESET, ks=(9,), at_least=0),
    ),
    Claim(
        "Q2",
        "Adapting C matters: Online is better than Online with C frozen.",
        NOT_ASKED,
        DATASETS,
        relation("online", "better than", FROZEN_THRESHOLD, ks=(9,), at_least=0),
    ),
    Claim(
        "Q3",
        "Adapting ρ matters: Online is better than Online with ρ frozen.",
        NOT_ASKED,
        DATASETS,
        relation("online", "better than", FROZEN_RATE, ks=(9,), at_least=0),
    ),
    Claim(
        "Q4",
        "Online is better than FixedThreshold also where the search stops at random.",
        NOT_ASKED,
        DATASETS,
        relation("online", "better than", "fixed_threshold", ks=(9,), at_least=0),
        tuning_accounting=RANDOM_STOPPING,
    ),
    Claim(
        "Q5",
        "One run of Online without a search beats the best of its searched grid under the same "
        "budget, for guesses of ρ₀ over at least a decade.",
        NOT_ASKED,
        DATASETS,
        wide_guesses("online", decades=1.0),
    ),
)

VERDICTS = {
    "by the paper's numbers": "paper",
    "ours": "best",
    "at the last step": "last",
    "by cross-selection": "cross",
}


def judged(study: Study) -> pd.DataFrame:
    """One row per claim and data set: the verdict from each evidence, and what ours rests on.

    What the paper does not ask is judged on data sets, too, that it does not have, where they ran.
    """
    others = [dataset for dataset in study.datasets if dataset not in DATASETS]
    ran = [pair for pair in settings(study) if pair[0] in others]
    frames = [judged_cells(study, dataset, k) for dataset, k in [*_designed(), *ran]]
    cells = pd.concat(frames)
    ours = cells[[*CELLS, *RUNS, *AT_PAPER]]
    best = Evidence(ours, study.main_runs, study.step_times, study.cosine, ranges(study))
    sources = {"best": best}
    sources |= {rule: Evidence(_by_rule(cells, rule)) for rule in ("last", "cross")}
    stopped = {"best": Evidence(_stopped_cells(study))}
    rows = []
    for claim in CLAIMS:
        used = sources if claim.tuning_accounting == COMPOSITION else stopped
        for dataset in [*claim.datasets, *(others if claim.where == NOT_ASKED else ())]:
            findings = {name: claim.judge(evidence, dataset) for name, evidence in used.items()}
            if used is sources:
                findings["paper"] = _by_the_papers_numbers(claim, dataset)
            if dataset in claim.datasets or findings["best"].verdict != NOT_RUN:
                rows.append(_row(claim, dataset, findings))
    return pd.DataFrame(rows)


def _by_rule(cells: pd.DataFrame, rule: str) -> pd.DataFrame:
    """The cells with their values by another checkpoint rule than the paper's."""
    own = {name: cells[f"{rule}_{name}"] for name in ("mean", "std")}
    at_paper = {name: cells[name.replace("at_paper", f"at_paper_{rule}")] for name in AT_PAPER}
    seeds = cells[f"{rule}_seeds"].fillna(0)
    return cells[[*CELLS, *RUNS]].assign(**own, seeds=seeds, **at_paper)


def _row(claim: Claim, dataset: str, findings: dict[str, Finding]) -> dict:
    best = findings["best"]
    verdicts = {name: findings.get(name, Finding(NOTHING)).verdict for name in VERDICTS.values()}
    if verdicts["paper"] == NOT_RUN:
        verdicts["paper"] = NOTHING
    numbers = ("advantage", "low", "high", "margin", "grids", "of_grids", "at_paper")
    return {
        "claim": claim.name,
        "by_construction": claim.by_construction,
        "says": claim.says,
        "where": claim.where,
        "dataset": dataset,
        **{f"verdict_{name}": verdict for name, verdict in verdicts.items()},
        "evidence": best.text,
        **{name: best.numbers.get(name) for name in numbers},
    }


@cache
def _by_the_papers_numbers(claim: Claim, dataset: str) -> Finding:
    return claim.judge(Evidence(_papers_cells()), dataset)


@cache
def _papers_cells() -> pd.DataFrame:
    paper = paper_results()
    status = paper["mean"].notna().map({True: "run", False: "not run"})
    status = status.mask(paper["diverged"], "diverged")
    return paper.assign(status=status, seeds=SEEDS)[CELLS]


def _stopped_cells(study: Study) -> pd.DataFrame:
    """The expected outcome of random stopping, as cells; under one distribution for all methods."""
    cells = usual(outcomes(study)).rename(columns={"value": "mean"})
    return cells.assign(status=cells["mean"].notna().map({True: "run", False: "not run"}))


def _designed() -> list[tuple[str, int]]:
    """The paper's pairs of data set and k: other results bear on none of its claims."""
    pairs = paper_results()[["dataset", "k"]].drop_duplicates()
    return [(dataset, int(k)) for dataset, k in pairs.itertuples(index=False)]
