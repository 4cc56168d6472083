"""Numbers of docs/user/pate.md are those of the rows in results/pate."""

import re

import pytest

from oso_dp.analysis.load import read_result_set
from oso_dp.analysis.pate import compare_students, judge_pate_claims, summarize_epsilons

NAMES = {
    "MNIST": "mnist",
    "Fashion-MNIST": "fashion_mnist_labels",
    "AG News subset": "ag_news_partial",
}


@pytest.fixture(scope="module")
def page(repo) -> str:
    return (repo / "docs/user/pate.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def study(repo):
    return read_result_set(repo / "results/pate")


def lines(page: str, columns: int) -> list[list[str]]:
    """The rows about a data set of the tables with this many columns."""
    found = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in row] for row in found if len(row) == columns]
    return [row for row in rows if row[0] in NAMES]


def test_pate_best_approaches_match_results(page, study) -> None:
    compared = compare_students(study)
    is_student = compared["approach"].str.startswith("PATE")
    stated = lines(page, 6)
    assert len(stated) == 9
    for name, epsilon, *cells in stated:
        here = (compared["dataset"] == NAMES[name]) & (compared["epsilon"] == float(epsilon))
        for side, (approach, accuracy) in ((True, cells[:2]), (False, cells[2:])):
            rows = compared[here & (is_student == side) & (compared["seeds"] == 3)]
            best = rows.loc[rows["mean"].idxmax()]
            named = f"{best['approach']}, {best['learning'].replace('_', '-')}"
            assert approach == (named.removeprefix("PATE, ") if side else best["approach"])
            mean, std = (100 * best[column] for column in ("mean", "std"))
            assert accuracy == f"{mean:.1f} ± {std:.1f}"


def test_pate_mnist_leads_match_results(page, study) -> None:
    compared = compare_students(study)
    compared = compared[compared["dataset"] == "mnist"]
    is_student = compared["approach"].str.startswith("PATE")
    best = compared[is_student].groupby("epsilon")["mean"].max()
    lead = compared[~is_student].pivot(index="epsilon", columns="approach", values="mean")
    lead = 100 * lead.sub(best, axis="index")
    low, high = lead["Online"].min(), lead["Online"].max()
    assert f"Online leads by only {low:.1f} to {high:.1f} points" in " ".join(page.split())
    assert (lead["FixedThreshold"].abs() < 0.5).all()
    assert (lead["AdamWOSM"] < 0).all()


def test_pate_epsilons_match_seed_means(page, study) -> None:
    table = summarize_epsilons(study.pate).set_index(["dataset", "aggregator", "epsilon"])
    stated = lines(page, 7)
    assert len(stated) == 6
    for name, aggregator, epsilon, *numbers in stated:
        row = table.loc[(NAMES[name], aggregator, float(epsilon))]
        names = ("epsilon_exact", "epsilon_data_dependent", "epsilon_sanitized")
        assert numbers[:3] == [f"{row[column]:.2f}" for column in names]
        assert numbers[3] == f"{100 * row['label_accuracy']:.1f}"


def test_pate_verdicts_match_results(page, study) -> None:
    judged = judge_pate_claims(study)
    stated = re.findall(r"^\| (A[0-9]) \|[^|]*\|([^|]*)\|([^|]*)\|$", page, re.MULTILINE)
    assert {name for name, *_ in stated} == set(judged["claim"])
    for claim, where, verdict in stated:
        rows = judged[judged["claim"] == claim]
        if where.strip():
            rows = rows[rows["dataset"] == NAMES[where.strip()]]
        assert set(rows["verdict"]) == {verdict.strip()}


def test_pate_study_size_matches_results(page, study) -> None:
    assert f"{len(study.pate)} students" in page
    hours = study.runs["wall_seconds"].sum() / 3600
    assert f"{len(study.runs)} runs" in page
    assert f"({hours:.1f} core-hours)" in page
