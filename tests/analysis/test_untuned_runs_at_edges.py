"""Guesses that are as good as a search, widths that are just wide enough, averages of any decay."""

import math

import pandas as pd
import pytest
from tests.analysis.test_untuned_runs import SEARCH, fill

from oso_dp.analysis.claim_tests import FAILS, HOLDS, UNDECIDED, ClaimData
from oso_dp.analysis.claims import CLAIMS
from oso_dp.analysis.untuned_runs import win_ranges, wins_over_decades
from oso_dp.analysis.values import variant_label
from oso_dp.reporting.tables.budget_strategies import untuned_runs_table


@pytest.mark.parametrize("metric", ["accuracy", "mse"])
@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_win_ranges_equal_guesses_counted_possible(seeds, metric, store, study) -> None:
    """A guess that equals the search does not beat it, but counts as possibly better."""
    dataset = {"accuracy": "mnist", "mse": "fashion_mnist"}[metric]
    fill(store, [[0.5] * seeds] * 4, [[0.5] * seeds] * 4, dataset=dataset, metric=metric)
    (row,) = win_ranges(study(store)).to_dict("records")
    assert (row["own_beat"], row["own_surely"], row["own_possibly"]) == (0, 0, 4)
    assert row["own_learning_rate_decades_beat"] == 0
    assert row["own_learning_rate_decades_possibly"] == 4


@pytest.mark.parametrize("ran", [3, 4])
def test_win_ranges_reports_both_grid_sizes(ran, store, study) -> None:
    """A star marks an incomplete grid of the method (4 of 16 points) and of Online."""
    fill(store, [[0.9]] * 4, [[0.8]] * 4, method="fixed_threshold")
    fill(store, [], SEARCH[:ran])
    one = study(store)
    (row,) = win_ranges(one).to_dict("records")
    assert (row["own_points"], row["own_grid_size"]) == (4, 16)
    assert (row["online_points"], row["online_grid_size"]) == (ran, 4)
    printed = untuned_runs_table(one).printed
    own, online = (printed[name, "best"].item() for name in ("the method's own search",
                                                             "Online's search"))  # fmt: skip
    assert own.endswith("*")
    assert online.endswith("*") == (ran < 4)


@pytest.mark.parametrize("decay", [0.9, 0.99, 0.995, 0.999, 0.9999])
def test_variant_label_shows_full_decay(decay: float) -> None:
    """The label shows all digits of the decay, so that two decays have two labels."""
    said = variant_label(None, decay)
    assert said == f"averaged, {decay!r}"


def widths(*cells):
    """Guesses of Online's whole grids: (surely, possibly) decades of each budget."""
    known = {"dataset": "mnist", "method": "online", "k": 9, "variant": "", "own_mean": 90.0}
    known |= {"guesses": 9, "own_points": 9, "own_grid_size": 9}
    name = "own_learning_rate_decades_"
    rows = [
        {**known, "epsilon": 3.0 + place, f"{name}beat": low, f"{name}surely": low,
         f"{name}possibly": high}
        for place, (low, high) in enumerate(cells)
    ]  # fmt: skip
    return ClaimData(pd.DataFrame(), untuned=pd.DataFrame(rows))


@pytest.mark.parametrize("decades", [0.5, 1.0, 2.0])
def test_wins_over_decades_exact_width_counts(decades: float) -> None:
    """A width that equals the required decades is sufficient."""
    judge = wins_over_decades("online", decades)
    below = math.nextafter(decades, 0)
    assert judge(widths((decades, 4.0)), "mnist").verdict == HOLDS
    assert judge(widths((below, 4.0)), "mnist").verdict == UNDECIDED
    assert judge(widths((0.0, decades)), "mnist").verdict == UNDECIDED
    assert judge(widths((0.0, below)), "mnist").verdict == FAILS


@pytest.mark.parametrize("cells", [[(0.5, 1.5), (2.0, 3.0), (1.0, 2.5)], [(3.0, 3.5), (0.0, 2.0)]])
def test_wins_over_decades_spans_all_budgets(cells) -> None:
    numbers = wins_over_decades("online", 1.0)(widths(*cells), "mnist").numbers
    assert numbers["low"] == min(low for low, _ in cells)
    assert numbers["high"] == max(high for _, high in cells)
    assert numbers["grids"] == len(cells)


@pytest.mark.parametrize(("width", "verdict"), [(0.9, FAILS), (1.0, HOLDS), (1.2, HOLDS)])
def test_claim_q5_requires_one_decade(width: float, verdict: str) -> None:
    (question,) = (claim for claim in CLAIMS if claim.name == "Q5")
    assert "at least a decade" in question.statement
    assert question.test(widths((width, width)), "mnist").verdict == verdict


@pytest.mark.parametrize("points", [1, 8, 9])
def test_wins_over_decades_incomplete_never_holds(points: int) -> None:
    """The claim never holds beside an incomplete search, but it may fail."""
    for decades, whole in ((3.0, HOLDS), (0.5, FAILS)):
        evidence = widths((decades, decades))
        evidence.untuned["own_points"] = points
        finding = wins_over_decades("online", 1.0)(evidence, "mnist")
        searched = points == 9
        assert finding.verdict == (whole if searched or whole == FAILS else UNDECIDED)
        assert ("searched points only" in finding.text) == (not searched)


@pytest.mark.parametrize(
    "other", [{"precision": "bfloat16"}, {"epochs": 20, "steps": 20}, {"delta": 1e-6}]
)
@pytest.mark.parametrize("of_the_search", [True, False])
def test_win_ranges_incomparable_search_gives_nan(other, of_the_search, store, study) -> None:
    """A search of other precision, length or delta than the guesses gives NaN."""
    fill(store, [[0.9, 0.91]] * 4, [], **({} if of_the_search else other))
    fill(store, [], [[0.8, 0.81]] * 4, **(other if of_the_search else {}))
    (row,) = win_ranges(study(store)).to_dict("records")
    assert math.isnan(row["own_mean"])
    assert math.isnan(row["own_beat"])


@pytest.mark.parametrize(
    ("won", "decades"),
    [
        ([0.01], 1.0),
        ([0.1], 1.5),
        ([10.0], 1.15051),
        ([20.0], 0.30103),
        ([0.01, 0.1, 10.0, 20.0], 3.95154),
    ],
)
def test_win_ranges_uneven_decades_split_midway(won, decades, store, study) -> None:
    rates = (0.01, 0.1, 10.0, 20.0)
    for rho in rates:
        known = {"k": 4, "learning_rate": rho}
        value = 0.9 if rho in won else 0.5
        store.add(**known, search_accounting="single", noise_multiplier=500.0, values=(value,))
        store.add(**known, noise_multiplier=900.0, values=(0.7,))
    (row,) = win_ranges(study(store)).to_dict("records")
    assert row["own_learning_rate_decades_beat"] == pytest.approx(decades, abs=1e-3)
