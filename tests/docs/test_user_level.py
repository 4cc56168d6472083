"""Numbers of docs/user/user_level.md are those of the rows in results/users."""

import re

import pandas as pd
import pytest

from oso_dp.analysis.claims import judge_claims
from oso_dp.analysis.load import read_result_set

METHODS = {
    "Online": "online",
    "AUTO-S": "auto_s",
    "FixedThreshold": "fixed_threshold",
    "FixedQuantile": "fixed_quantile",
    "AdamWOSM": "adam_wosm",
}


@pytest.fixture(scope="module")
def page(repo) -> str:
    return (repo / "docs/user/user_level.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def users(repo):
    return read_result_set(repo / "results/users")


def test_accuracies_are_those_of_the_best_points(page, users) -> None:
    best = users.best[users.best["model"] == "softmax_regression"]
    best = best.set_index(["method", "epsilon"])
    seen = 0
    for name, method in METHODS.items():
        line, *_ = re.findall(rf"^\| {name} \|(.*±.*)\|$", page, re.MULTILINE)
        for epsilon, cell in zip((1.0, 2.0, 4.0, 8.0), line.split("|"), strict=True):
            mean, std = map(float, cell.split("±"))
            row = best.loc[(method, epsilon)]
            assert row["seeds"] == 5
            assert (mean, std) == (round(100 * row["mean"], 1), round(100 * row["std"], 1))
            seen += 1
    assert seen == 20
    (without,) = re.findall(r"Without privacy: ([0-9.]+) ", page)
    no_dp = users.best[(users.best["method"] == "no_dp") & users.best["epsilon"].isna()]
    assert float(without) == round(100 * no_dp["mean"].iloc[0], 1)


def test_verdicts_are_those_of_the_rule(page, users) -> None:
    data = judge_claims(users)
    verdicts = data[data["claim"].str.startswith("U")].set_index("claim")["verdict_best"]
    stated = dict(re.findall(r"^\| (U[0-9]) \|[^|]*\| ([a-z ]+?) \|", page, re.MULTILINE))
    assert stated == {name: verdicts.get(name, "not run") for name in stated}
    assert len(stated) == 6


def test_numbers_of_the_evidence_are_stated(page, users) -> None:
    data = judge_claims(users).set_index("claim")
    for claim, words in (("U1", "points below"), ("U4", "% more noise")):
        row = data.loc[claim]
        row = row.iloc[0] if isinstance(row, pd.DataFrame) else row
        size = abs(row["advantage"]) * (100 if claim == "U4" else 1)
        (line,) = re.findall(rf"^\| {claim} \|.*$", page, re.MULTILINE)
        assert f"{size:.1f} {words}" in line
