"""docs/reproduction/artifact.md names every claim, table and figure, and commands that exist."""

import re

import pytest

from oso_dp.analysis.claim_tests import NOT_APPLICABLE, NOT_RUN
from oso_dp.analysis.claims import CLAIMS, judge_claims
from oso_dp.study.config import load_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.workload import estimate_workload

CONFIGURATION = r"config/[\w/.]+\.yaml"


@pytest.fixture(scope="module")
def page(repo):
    return (repo / "docs/reproduction/artifact.md").read_text(encoding="utf-8")


def rows(page, heading):
    """The table below a heading: its lines, as lists of cells."""
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names(page, heading):
    """The names of a table's rows, with `<dataset>` and `<k>` as patterns."""
    patterns = []
    for name in (name for row in rows(page, heading) for name in re.findall("`(.+?)`", row[0])):
        name = re.escape(name).replace("<dataset>", r"[a-z0-9_]+").replace("<k>", r"\d+")
        patterns.append(re.compile(name))
    return patterns


def test_artifact_page_lists_all_claims(page):
    assert [row[0] for row in rows(page, "Claims")] == [claim.name for claim in CLAIMS]


def test_artifact_page_expected_verdicts_match_paper(page, store, study):
    store.add(dataset="glyphs", k=3)
    data = judge_claims(study(store))
    for name, _, _, expected in rows(page, "Claims"):
        found = data.loc[data["claim"] == name, "verdict_paper"]
        if set(found) == {NOT_APPLICABLE}:
            assert expected in ("", "the paper gives no numbers"), name
        else:
            assert NOT_RUN not in set(found)
            assert set(found) == set(re.findall("holds|undecided|does not hold", expected)), name


@pytest.mark.parametrize("report", ["paper_report", "glyphs_report"])
@pytest.mark.parametrize(
    ("heading", "files"), [("Tables", "tables/*.csv"), ("Figures", "figures/*.png")]
)
def test_artifact_page_lists_report_files(page, request, report, heading, files):
    known = names(page, heading)
    made = {path.stem for path in request.getfixturevalue(report).glob(files)}
    assert made
    for name in made:
        assert any(pattern.fullmatch(name) for pattern in known), name


def test_artifact_page_tables_exist(page, paper_report, glyphs_report):
    """Each table that the page names exists, unless it needs runs that both reports lack."""
    elsewhere = {"other_methods", "untuned_runs", "budget_strategies", "linear_scaling"}
    elsewhere |= {"pate_students", "pate_epsilons", "pate_published", "pate_claims"}
    made = {p.stem for r in (paper_report, glyphs_report) for p in r.glob("tables/*.csv")}
    for pattern in names(page, "Tables"):
        if pattern.pattern not in elsewhere:
            assert any(pattern.fullmatch(name) for name in made), pattern.pattern


def test_artifact_page_commands_exist(page, repo):
    targets = re.findall(r"^([a-z-]+):", (repo / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"(?:`|^    )make ([a-z-]+)", page, re.M):
        assert target in targets, target
    for name in re.findall(CONFIGURATION, page):
        assert (repo / name).exists(), name


def test_artifact_page_workload_matches_estimate(page, repo):
    stated = rows(page, "The full way")
    assert len(stated) >= 6
    for command, private, plain, hours in stated:
        config = load_config(repo / re.search(CONFIGURATION, command)[0])
        ahead = estimate_workload(config, make_cohorts(config), ())
        assert (private, plain) == (f"{ahead.private.runs:,}", f"{ahead.plain.runs:,}"), command
        digits = 1 if ahead.hours < 1 else 0
        assert hours == f"{ahead.hours:,.{digits}f}", command
