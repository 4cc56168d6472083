"""Numbers of docs/user/user_level.md are those of the rows in results/users."""

import math
import re

import pandas as pd
import pytest

from oso_dp.analysis.claims import judge_claims
from oso_dp.analysis.load import read_result_set
from oso_dp.analysis.verdicts import Sample, average_over_grids, difference, margin_of
from oso_dp.reporting.figures.users import mean_by_series, series_of_best

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


COLUMNS = [("softmax_regression", epsilon) for epsilon in (1.0, 2.0, 4.0, 8.0)]
COLUMNS += [("tanh_cnn", epsilon) for epsilon in (2.0, 8.0)]
SEEDS = {"softmax_regression": 5, "tanh_cnn": 3}


def test_user_level_accuracies_match_best_points(page, users) -> None:
    best = users.best.set_index(["model", "method", "epsilon"])
    seen = 0
    for name, method in METHODS.items():
        line, *_ = re.findall(rf"^\| {name} \|(.*±.*)\|$", page, re.MULTILINE)
        for (model, epsilon), cell in zip(COLUMNS, line.split("|"), strict=True):
            mean, std = map(float, cell.split("±"))
            row = best.loc[(model, method, epsilon)]
            assert row["seeds"] == SEEDS[model]
            assert row["points"] == row["grid_runs"]
            assert (mean, std) == (round(100 * row["mean"], 1), round(100 * row["std"], 1))
            seen += 1
    assert seen == 30
    without = re.findall(r"Without privacy: ([0-9.]+) % \(linear\), ([0-9.]+) % \(CNN\)", page)
    no_dp = users.best[users.best["method"] == "no_dp"].groupby("model")["mean"].max()
    assert [tuple(map(float, one)) for one in without] == [
        tuple(round(100 * no_dp[model], 1) for model in SEEDS)
    ]


def test_user_level_verdicts_match_claims(page, users) -> None:
    data = judge_claims(users)
    verdicts = data[data["claim"].str.startswith("U")].set_index("claim")["verdict_best"]
    stated = dict(re.findall(r"^\| (U[0-9]) \|[^|]*\| ([a-z ]+?) \|", page, re.MULTILINE))
    stated.pop("U7")  # from a store of its own, below
    assert stated == {name: verdicts.get(name, "not run") for name in stated}
    assert len(stated) == 6


def test_user_level_evidence_matches_claims(page, users) -> None:
    data = judge_claims(users).set_index("claim")
    for claim, words in (("U1", "points below"), ("U4", "% more noise"), ("U6", "points below")):
        row = data.loc[claim]
        row = row.iloc[0] if isinstance(row, pd.DataFrame) else row
        size = abs(row["advantage"]) * (100 if claim == "U4" else 1)
        (line,) = re.findall(rf"^\| {claim} \|.*$", page, re.MULTILINE)
        assert f"{size:.1f} {words}" in line
        if claim in ("U1", "U6"):
            assert f"[{row['low']:+.1f}, {row['high']:+.1f}]" in line


def test_user_level_u7_matches_results(repo, page) -> None:
    """U7 has a store of its own, because adaptation rates are no part of a cell."""
    best = read_result_set(repo / "results/ambiguities/users_paper_rates").best
    assert (best["seeds"] == 5).all()
    assert (best["points"] == best["grid_runs"]).all()
    online, fixed = (
        average_over_grids(
            [
                Sample(100 * row["mean"], 100 * row["std"], row["seeds"])
                for _, row in best[best["method"] == method].iterrows()
            ]
        )
        for method in ("online", "fixed_threshold_preset")
    )
    lead, margin = difference([(online, fixed)]), margin_of("mnist_writers")
    is_same = -margin < lead.low and lead.high < margin
    (line,) = re.findall(r"^\| U7 \|.*$", page, re.MULTILINE)
    assert ("| holds |" if is_same else "| undecided |") in line
    assert f"{lead.mean:+.2f} points [{lead.low:+.2f}, {lead.high:+.2f}]" in line
    assert f"M = {margin:g}" in line
    assert f"at most {100 * math.expm1(100 * 2.5e-3):.0f} %" in line


def test_user_level_online_leads_match_claims(page, users) -> None:
    data = judge_claims(users).set_index("claim")
    leads = re.findall(r"over \w+ \+([0-9.]+) points", data.loc["U2", "evidence"])
    assert f"{' and '.join(leads)} points above" in page


def test_user_level_study_size_matches_results(page, users) -> None:
    text = " ".join(page.split())
    for model, words in (("softmax_regression", "linear runs"), ("tanh_cnn", "runs of the CNN")):
        runs = users.runs[users.runs["model"] == model]
        hours = runs["wall_seconds"].sum() / 3600
        assert f"{len(runs):,} {words} took {hours:.1f} core-hours" in text


def test_user_level_best_threshold_ratio_matches(page, users) -> None:
    points = users.points[users.points["method"] == "fixed_threshold"]
    points = points[(points["epsilon"] == 8) & (points["model"] == "softmax_regression")]
    best = points.loc[points.groupby(["local", "learning_rate"])["mean"].idxmax()]
    table = best.pivot(index="learning_rate", columns="local", values="threshold")
    small, usual = (table[name] for name in sorted(table, key=lambda name: "=0.1" in name))
    below = table.index < 10
    assert below.sum() == 4
    assert {round(ratio, 1) for ratio in (usual / small)[below]} == {3.2}
    assert (usual[~below] == small[~below]).all()
    assert "below 10 the best C is 3.2 times smaller" in page


@pytest.mark.parametrize(
    ("model", "before", "lowest"),
    [("softmax_regression", "Linear model: ", 1.0), ("tanh_cnn", "CNN: ", 2.0)],
)
def test_user_level_writer_accuracies_match_results(page, users, model, before, lowest) -> None:
    rows, runs = series_of_best(users), users.best_runs
    rows = rows[rows["model"] == model]
    assert {*rows["run_id"]} == {*runs[runs["model"] == model]["run_id"]}  # each best point, whole
    means = mean_by_series(rows).set_index(["method", "epsilon", "series"])["mean"]
    means = means.sort_index().round(1)
    no_dp = means.xs("no_dp").droplevel("epsilon")
    high, low = means["online", 8.0], means["online", lowest]
    assert (
        f"{before}without privacy {no_dp['students']} and {no_dp['employees']} %, with Online "
        f"{high['students']} and {high['employees']} % at epsilon = 8, "
        f"{low['students']} and {low['employees']} % at epsilon = {lowest:g}."
    ) in " ".join(page.split())
    gaps = mean_by_series(rows.dropna(subset=["epsilon"])).pivot(
        index=["method", "epsilon"], columns="series", values="mean"
    )
    gap = no_dp["employees"] - no_dp["students"]
    assert ((gaps["employees"] - gaps["students"]) > gap).all()
