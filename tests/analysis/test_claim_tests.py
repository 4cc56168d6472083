"""A claim is judged by what was measured of its own methods, data set and grids, and no others."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from tests.analysis.claim_helpers import both, cells, times

from oso_dp.analysis.claim_tests import (
    FAILS,
    HOLDS,
    NOT_RUN,
    UNDECIDED,
    ClaimData,
    compare_methods,
)
from oso_dp.analysis.claims import CLAIMS, compare_gradient_noise, compare_step_times

NONE = pd.DataFrame(columns=["dataset"])


def claim(name: str):
    (one,) = (claim for claim in CLAIMS if claim.name == name)
    return one


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rival", [0.5, 0.99, 2.0])
def test_compare_step_times_uses_named_baseline(rival: float, turned: bool) -> None:
    """The verdict uses the ratio to the named baseline, whatever the ratio to another method."""
    rows = [times(1.1, 1.05, 1.15), times(rival, rival - 0.1, rival + 0.1, rival="adam_wosm")]
    evidence = ClaimData(NONE, step_times=pd.DataFrame(rows[:: -1 if turned else 1]))
    found = compare_step_times("online", "fixed_threshold", at_most=1.25)(evidence, "mnist")
    assert (found.verdict, found.numbers["advantage"]) == (HOLDS, 1.1)
    alone = ClaimData(NONE, step_times=pd.DataFrame(rows[1:]))
    assert compare_step_times("online", "fixed_threshold", 1.25)(alone, "mnist").verdict == NOT_RUN


@pytest.mark.parametrize(
    ("high", "verdict"), [(1.25, HOLDS), (1.2501, UNDECIDED), (1.3, UNDECIDED)]
)
def test_claim_c8_allows_quarter_more(high: float, verdict: str) -> None:
    evidence = ClaimData(NONE, step_times=pd.DataFrame([times(1.2, 1.1, high)]))
    assert "at most a quarter more" in claim("C8").statement
    assert claim("C8").test(evidence, "mnist").verdict == verdict


def noises(*ratios, **more) -> pd.DataFrame:
    known = {"dataset": "mnist", "method": "online", "noise_multiplier": 2.0}
    return pd.DataFrame([{**known, "query_noise_multiplier": 2 * r, **more} for r in ratios])


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("other", [{"dataset": "ag_news"}, {"method": "online_frozen_threshold"}])
def test_compare_gradient_noise_uses_own_runs(other, turned: bool) -> None:
    frames = [noises(7.124), noises(3.0, **other)]
    runs = pd.concat(frames[:: -1 if turned else 1])
    found = compare_gradient_noise("online", at_most=0.01)(ClaimData(NONE, runs), "mnist")
    assert found.verdict == HOLDS
    assert found.numbers["advantage"] == pytest.approx(0.01, abs=1e-4)


@pytest.mark.parametrize(("ratio", "verdict"), [(7.124, HOLDS), (6.95, FAILS), (6.0, FAILS)])
def test_claim_c9_allows_one_percent(ratio: float, verdict: str) -> None:
    assert "costs 1 % more noise" in claim("C9").statement
    assert claim("C9").test(ClaimData(NONE, noises(ratio)), "mnist").verdict == verdict


@pytest.mark.parametrize("plain", ["no_dp", "adam"])
def test_compare_methods_non_private_grids_excluded(plain: str) -> None:
    """On data sets outside the paper, only grids of private methods are counted."""
    rows = cells(
        *[(m, e, v, 0.1) for e in (1, 3) for m, v in (("online", 95), ("fixed_threshold", 90))],
        (plain, math.nan, 99.0, 0.1),
        dataset="glyphs",
    )
    found = compare_methods("online", "better than", "fixed_threshold")(ClaimData(rows), "glyphs")
    assert found.verdict == HOLDS
    assert (found.numbers["grids"], found.numbers["of_grids"]) == (2, 2)
    assert "2 of 2 grids" in found.text


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_compare_methods_one_seed_grids_uncounted(lost: int) -> None:
    """The number of compared grids excludes grids of one seed, in its text and its numbers."""
    evidence = both(95.0, 90.0)
    frame = evidence.cells.reset_index(drop=True)
    places = frame[["k", "epsilon"]].drop_duplicates().head(lost)
    gone = frame.merge(places, how="left", indicator=True)["_merge"] == "both"
    frame.loc[gone & (frame["method"] == "online"), ["seeds", "std"]] = (1, math.nan)
    judge = compare_methods("online", "better than", "fixed_threshold")
    found = judge(replace(evidence, cells=frame), "mnist")
    assert (found.numbers["grids"], found.numbers["of_grids"]) == (12 - lost, 12)
    assert f"{12 - lost} of 12 grids" in found.text


@pytest.mark.parametrize("lost", [0, 1, 4])
def test_compare_methods_one_seed_points_uncounted(lost: int) -> None:
    """Of twelve incomplete grids, those with one seed at the paper's point are not counted."""
    frame = both(95.0, 90.0).cells.reset_index(drop=True)
    ran = {"grid_points": 1, "grid_size": 9, "runs": 5, "diverged": 0}
    frame = frame.assign(**ran, at_paper_mean=frame["mean"], at_paper_std=0.3, at_paper_seeds=5)
    places = frame[["k", "epsilon"]].drop_duplicates().head(lost)
    gone = frame.merge(places, how="left", indicator=True)["_merge"] == "both"
    frame.loc[gone, ["at_paper_seeds", "at_paper_std"]] = (1, math.nan)
    found = compare_methods("online", "better than", "fixed_threshold")(ClaimData(frame), "mnist")
    assert f"{12 - lost} of 12 grids ({12 - lost} at the paper's best points)" in found.text


@pytest.mark.parametrize("method", ["online", "fixed_threshold"])
@pytest.mark.parametrize("lost", [1, 2])
def test_compare_methods_diverged_not_incomplete(lost: int, method: str) -> None:
    """A diverged grid is reported as diverged and not, in addition, as incomplete."""
    frame = both(95.0, 90.0).cells.reset_index(drop=True)
    ran = {"grid_points": 9, "grid_size": 9, "runs": 5, "diverged": 0}
    frame = frame.assign(**ran, at_paper_mean=math.nan, at_paper_std=math.nan, at_paper_seeds=0)
    rows = frame.index[frame["method"] == method][:lost]
    frame.loc[rows, ["mean", "std", "seeds", "status"]] = (math.nan, math.nan, 0, "diverged")
    found = compare_methods("online", "better than", "fixed_threshold")(ClaimData(frame), "mnist")
    assert f"diverged in {lost} more" in found.text
    assert "incomplete" not in found.text
    assert f"{12 - lost} of 12 grids" in found.text
