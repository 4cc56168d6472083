"""Where a claim is undecided: how many seeds would decide it."""

import re

import pandas as pd
import pytest
from tests.analysis.claim_helpers import both, cells

from oso_dp.analysis.claim_tests import UNDECIDED, ClaimData, compare_methods


@pytest.mark.parametrize("lead", [-1.6, -0.9, 0.07, 0.4])
@pytest.mark.parametrize("claimed", ["better than", "on a par with", "at least as good as"])
def test_compare_methods_stated_seeds_decide(lead, claimed):
    """The stated number of seeds decides at the same means and stds; one seed less does not."""

    def judge(seeds):
        rows = [
            (m, e, v, 2.0, seeds)
            for e in (3, 5, 7, 9)
            for m, v in (("online", 90 + lead), ("fixed_threshold", 90))
        ]
        grids = pd.concat([cells(*rows, k=k) for k in (5, 7, 9)])
        return compare_methods("online", claimed, "fixed_threshold")(ClaimData(grids), "mnist")

    few = judge(3)
    if few.verdict != UNDECIDED or "equivalent within M" in few.text:
        assert "seeds would decide" not in few.text
        return
    if "more than 1000 seeds" in few.text:
        assert judge(1000).verdict == UNDECIDED
        return
    needed = int(re.search(r"about (\d+) seeds would decide, 3 are there", few.text)[1])
    assert judge(needed).verdict != UNDECIDED
    assert judge(needed - 1).verdict == UNDECIDED


def test_compare_methods_equal_means_never_decided():
    found = compare_methods("online", "better than", "fixed_threshold")(both(90, 90, 5.0), "mnist")
    assert found.text.endswith("more than 1000 seeds would be needed to decide")


@pytest.mark.parametrize(("ours", "theirs", "said"), [(3, 5, "4"), (5, 3, "4"), (2, 5, "3.5")])
def test_compare_methods_reports_mean_seeds(ours, theirs, said) -> None:
    rows = [
        (m, e, v, 2.0, seeds)
        for e in (3, 5, 7, 9)
        for m, v, seeds in (("online", 91, ours), ("fixed_threshold", 90, theirs))
    ]
    grids = pd.concat([cells(*rows, k=k) for k in (5, 7, 9)])
    found = compare_methods("online", "better than", "fixed_threshold")(ClaimData(grids), "mnist")
    assert f"seeds would decide, {said} are there" in found.text
