"""A claim about two methods: a range, an interval, and the grids that both ran."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from tests.analysis.claim_helpers import both, cells

from oso_dp.analysis.claim_tests import (
    FAILS,
    HOLDS,
    NOT_APPLICABLE,
    NOT_RUN,
    RELATION_RANGES,
    UNDECIDED,
    ClaimData,
    ClaimResult,
    all_of,
    classify,
    compare_methods,
)
from oso_dp.analysis.claims import CLAIMS, FROZEN_RATE, FROZEN_THRESHOLD, PRESET
from oso_dp.analysis.verdicts import Difference
from oso_dp.paper.tables import paper_results


@pytest.mark.parametrize(
    ("difference", "low", "high", "verdict"),
    [
        (Difference(1.0, 0.5), 0.0, math.inf, HOLDS),
        (Difference(1.0, 1.5), 0.0, math.inf, UNDECIDED),
        (Difference(-1.0, 0.5), 0.0, math.inf, FAILS),
        (Difference(-1.0, 0.5), -2.0, 2.0, HOLDS),
        (Difference(-1.8, 0.5), -2.0, 2.0, UNDECIDED),
        (Difference(-3.0, 0.5), -2.0, 2.0, FAILS),
    ],
)
def test_classify_compares_interval_with_range(difference, low, high, verdict):
    assert classify(difference, low, high) == verdict


def test_compare_methods_few_grids_undecided():
    judge = compare_methods("online", "better than", "fixed_threshold")
    few = cells(
        *[(m, e, v, 0.1) for e in (3, 5) for m, v in (("online", 95), ("fixed_threshold", 90))]
    )
    found = judge(ClaimData(few), "mnist")
    assert found.verdict == UNDECIDED
    assert "2 of 12 grids; by ε 3: +5.00 [" in found.text
    assert found.text.endswith("; too few grids: 6 would decide")
    assert judge(ClaimData(few), "ag_news").verdict == NOT_RUN
    alone = judge(ClaimData(few[few["method"] == "online"]), "mnist")
    assert (alone.verdict, alone.text) == (NOT_RUN, "no grid of FixedThreshold")


def test_compare_methods_reports_excluded_grids():
    judge = compare_methods("online", "better than", "fixed_threshold")
    rows = cells(
        ("online", 3, 95.0, math.nan, 1),
        ("fixed_threshold", 3, 90.0, 0.2),
        ("online", 5, 95.0, 0.2),
        ("fixed_threshold", 5, math.nan, math.nan, 0),
    )
    found = judge(ClaimData(rows), "mnist")
    assert found.verdict == UNDECIDED
    assert found.text == "FixedThreshold diverged in 1 more; 1 grid with one seed only"


def test_compare_methods_other_budgets_not_run():
    rows = cells(("online", 2, 95.0, 0.1), ("fixed_threshold", 2, 90.0, 0.1))
    assert (
        compare_methods("online", "better than", "fixed_threshold")(
            ClaimData(rows), "mnist"
        ).verdict
        == NOT_RUN
    )


def test_compare_methods_paper_advantage_matches_mean(store, study):
    paper = paper_results().dropna(subset=["mean"])
    paper = paper[paper["dataset"] == "ag_news"]
    mean = paper.pivot(index=["k", "epsilon"], columns="method", values="mean")
    found = compare_methods("online", "on a par with", "adam_wosm")(
        ClaimData(paper.assign(status="run", seeds=5)), "ag_news"
    )
    assert found.numbers["advantage"] == pytest.approx((mean["online"] - mean["adam_wosm"]).mean())
    assert found.numbers["grids"] == 8


@pytest.mark.parametrize("grids", [1, 5, 6, 12])
def test_compare_methods_half_grids_decide(grids: int) -> None:
    """Six of twelve grids decide a claim; fewer leave it undecided."""
    places = [(k, epsilon) for k in (5, 7, 9) for epsilon in (3, 5, 7, 9)][:grids]
    rows = [
        cells(("online", epsilon, 95.0, 0.1), ("fixed_threshold", epsilon, 90.0, 0.1), k=k)
        for k, epsilon in places
    ]
    found = compare_methods("online", "better than", "fixed_threshold")(
        ClaimData(pd.concat(rows)), "mnist"
    )
    assert found.verdict == (HOLDS if grids >= 6 else UNDECIDED)
    assert ("too few grids" in found.text) == (grids < 6)


RANK = [FAILS, NOT_RUN, UNDECIDED, NOT_APPLICABLE, HOLDS]


@pytest.mark.parametrize("one", RANK)
@pytest.mark.parametrize("other", RANK)
def test_all_of_returns_least_certain(one, other) -> None:
    """Of two verdicts, `all_of` returns the one that comes first in `RANK`."""
    judges = [lambda *_, verdict=verdict: ClaimResult(verdict) for verdict in (one, other)]
    found = all_of(*judges)(ClaimData(pd.DataFrame()), "mnist").verdict
    assert found == min(one, other, key=RANK.index)


@pytest.mark.parametrize("words", RELATION_RANGES)
@pytest.mark.parametrize("lead", [-1.5, -0.5, 0.0, 0.5, 1.5])  # M is 1.3 on MNIST
def test_compare_methods_follows_relation_ranges(words: str, lead: float) -> None:
    """The verdict on a precise lead follows from its position relative to 0 and the margin."""
    within_range = {
        "at least as good as": lead >= -1.3,
        "on a par with": -1.3 <= lead <= 1.3,
        "better than": lead > 0,
        "no better than": lead <= 1.3,
    }[words]
    expected = UNDECIDED if words == "better than" and lead == 0 else None
    expected = expected or (HOLDS if within_range else FAILS)
    found = compare_methods("online", words, "fixed_threshold")(both(90 + lead, 90, 0.001), "mnist")
    assert found.verdict == expected


@pytest.mark.parametrize(("lead", "verdict"), [(-0.5, FAILS), (0.0, FAILS), (0.5, HOLDS)])
def test_compare_methods_equal_constants_not_better(lead: float, verdict: str) -> None:
    """At a std of 0, `better than` holds for a positive lead and fails for equal values."""
    found = compare_methods("online", "better than", "fixed_threshold")(
        both(90 + lead, 90, 0.0), "mnist"
    )
    assert found.verdict == verdict


PAPERS = {"ag_news": 12, "mnist": 12, "fashion_mnist": 12}  # grids: k and epsilon


def everything(dataset: str) -> ClaimData:
    """A value of every method at every k and epsilon that the paper has, and at some others."""
    epsilons = (1, 2, 3, 4, 5, 7, 9)
    methods = {name for claim in CLAIMS for name in PARTIES.get(claim.name, ())}
    rows = [(method, epsilon, 90.0, 0.1) for method in sorted(methods) for epsilon in epsilons]
    return ClaimData(pd.concat([cells(*rows, dataset=dataset, k=k) for k in (1, 5, 7, 9, 11)]))


# Of each claim about methods: these, and over how many of the paper's grids it goes.
PARTIES = {
    **dict.fromkeys(("C1", "C5", "Q4"), ("online", "fixed_quantile", "fixed_threshold")),
    **dict.fromkeys(("C2", "C7"), ("online", "fixed_quantile", "fixed_threshold", "adam_wosm")),
    **dict.fromkeys(("C3", "C4"), ("online", "adam_wosm")),
    "Q1": ("online", PRESET),
    "Q2": ("online", FROZEN_THRESHOLD),
    "Q3": ("online", FROZEN_RATE),
}
GRIDS = {"C7": [6, 6, 6], **{name: [4] for name in ("Q1", "Q2", "Q3", "Q4")}}


@pytest.mark.parametrize(
    ("claim", "dataset"),
    [(one, dataset) for one in CLAIMS if one.name in PARTIES for dataset in one.datasets],
    ids=lambda value: getattr(value, "name", value),
)
def test_claims_cover_named_grids(claim, dataset: str) -> None:
    """C7 covers k = 7 and 9 at epsilon 2, 3 and 4, Q1 to Q4 cover k = 9, others all grids."""
    said = claim.test(everything(dataset), dataset).text
    counts = [(int(ran), int(of)) for ran, of in re.findall(r"(\d+) of (\d+) grids", said)]
    expected = GRIDS.get(claim.name, [PAPERS[dataset]])
    assert counts == [(grids, grids) for grids in expected]


ALIKE_ALL = {"precision": "float32", "epochs": 10, "distribution": "geometric"}
ALIKE_ALL |= {"delta": 1e-5, "variant": ""}


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        ({"precision": "tf32"}, {"precision": "float32"}),
        ({"delta": 1e-5}, {"delta": 1e-6}),
        ({"variant": ""}, {"variant": "rate falling"}),
        ({"variant": "rate falling"}, {"variant": "rate falling"}),
        ({"epochs": 10}, {"epochs": 20}),
        ({"epochs": 2}, {"epochs": 2}),
        ({"distribution": "geometric"}, {"distribution": "poisson"}),
    ],
)
def test_compare_methods_incomparable_runs_excluded(kind: dict, other: dict) -> None:
    """Grids with short or scheduled runs, or with runs that differ in settings, are excluded."""
    evidence = both(95.0, 90.0).cells
    online = evidence["method"] == "online"
    for spoilt in (0, 4, 12):  # of twelve grids
        unlike = evidence.assign(**ALIKE_ALL)
        for method, kinds in ((online, kind), (~online, other)):
            chosen = np.flatnonzero(method.to_numpy())[:spoilt]
            for name, value in kinds.items():
                unlike.iloc[chosen, unlike.columns.get_loc(name)] = value
        found = compare_methods("online", "better than", "fixed_threshold")(
            ClaimData(unlike), "mnist"
        )
        assert found.verdict == (UNDECIDED if spoilt == 12 else HOLDS)
        said = f"{spoilt} whose runs differ in precision, length or delta, or are too short"
        assert (said in found.text) == (spoilt > 0)
        assert found.numbers.get("grids", 0) == 12 - spoilt


def leads(values: dict[float, float], dataset: str = "mnist") -> ClaimData:
    """FixedThreshold has 90, and Online as much more at each epsilon; at all k."""
    rows = [
        (method, epsilon, 90 + lead * (method == "online"), 0.1)
        for epsilon, lead in values.items()
        for method in ("online", "fixed_threshold")
    ]
    return ClaimData(pd.concat([cells(*rows, dataset=dataset, k=k) for k in (5, 7, 9)]))


@pytest.mark.parametrize("name", ["on a par with", "better than", "at least as good as"])
@pytest.mark.parametrize("values", [(-1, 1, 2, 3), (3, 0, 0, -3), (0.5, 0.5, 0.5, 0.5)])
def test_compare_methods_reports_advantage_by_epsilon(name: str, values) -> None:
    """The text lists the advantage at each epsilon beside the average."""
    budgets = dict(zip((3.0, 5.0, 7.0, 9.0), values, strict=True))
    found = compare_methods("online", name, "fixed_threshold")(leads(budgets), "mnist")
    (said,) = re.findall(r"; by ε ([^;]*)", found.text)
    pairs = re.findall(r"(\d): ([+−]?[\d.]+) \[", said)
    assert {float(e): float(v.replace("−", "-")) for e, v in pairs} == budgets
    assert found.numbers["advantage"] == pytest.approx(np.mean(values))


@pytest.mark.parametrize(
    ("lead", "std", "verdict", "equivalent"),
    [
        (0.1, 0.5, UNDECIDED, True),
        (-0.1, 0.5, UNDECIDED, True),
        (1.0, 1.0, UNDECIDED, False),  # the interval reaches beyond the margin at one end
        (-1.0, 1.0, UNDECIDED, False),
        (0.1, 2.0, UNDECIDED, False),
        (0.5, 0.1, HOLDS, False),  # a lead that is sure is a lead
        (-0.5, 0.1, FAILS, False),
    ],
)
def test_compare_methods_within_margin_equivalent(lead, std, verdict, equivalent: bool) -> None:
    """Methods are equivalent where the interval includes 0 and lies inside the margin."""
    found = compare_methods("online", "better than", "fixed_threshold")(
        both(90 + lead, 90, std), "mnist"
    )
    assert (found.verdict, "equivalent within M" in found.text) == (verdict, equivalent)


@pytest.mark.parametrize("scale", [1.0, 20.0, 0.05])
@pytest.mark.parametrize(("ratio", "par"), [(1.1, True), (0.9, True), (1.5, False), (0.6, False)])
def test_compare_methods_errors_compared_by_ratio(scale: float, ratio: float, par: bool) -> None:
    """Errors are compared by their ratio, whatever their scale."""
    rows = [
        (method, epsilon, scale * size, 0.01 * scale)
        for epsilon in (1, 2, 3, 4)
        for method, size in (("online", ratio), ("fixed_threshold", 1.0))
    ]
    grids = [cells(*rows, dataset="fashion_mnist", k=k) for k in (5, 7, 9)]
    judge = compare_methods("online", "on a par with", "fixed_threshold")
    found = judge(ClaimData(pd.concat(grids)), "fashion_mnist")
    assert found.verdict == (HOLDS if par else FAILS)
    assert f"{ratio:.2f} times its error" in found.text
