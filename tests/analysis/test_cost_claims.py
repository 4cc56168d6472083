"""Claims about divergence, time and noise: from runs, measurements and ledgers' noise."""

import pandas as pd
import pytest
from tests.analysis.claim_helpers import cells, times

from oso_dp.accounting.search_accounting import RANDOM_STOPPING
from oso_dp.analysis.claim_tests import (
    FAILS,
    HOLDS,
    NOT_RUN,
    UNDECIDED,
    ClaimData,
    always_diverges,
)
from oso_dp.analysis.claims import compare_gradient_noise, compare_step_times, judge_claims
from oso_dp.analysis.side_measurements import STEP_TIMES
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.errors import OsoError


def evidence_of(study, store, dataset, k):
    made = study(store)
    return ClaimData(judge_cells(made, dataset, k), made.runs)


def test_always_diverges_requires_all_runs(make_store, study):
    def found(count, **one_more):
        store = make_store()
        for i in range(count):
            store.add(
                dataset="fashion_mnist",
                method="fixed_quantile",
                epsilon=1.0,
                learning_rate=10.0 ** (i // 5 / 2 - 2.5),
                quantile=(0.1, 0.3, 0.5, 0.7, 0.9)[i % 5],
                values=(),
                diverged_at=9,
            )
        if one_more:
            store.add(dataset="fashion_mnist", method="fixed_quantile", epsilon=1.0, **one_more)
        evidence = evidence_of(study, store, "fashion_mnist", 9)
        return always_diverges("fixed_quantile", 1.0)(evidence, "fashion_mnist")

    part = found(7)
    assert (part.verdict, part.text) == (UNDECIDED, "7 of 7 runs diverged, of an incomplete grid")
    # One k of two: the paper has this budget at k = 7, too.
    assert found(45).verdict == UNDECIDED
    trains = found(7, metric="mse", quantile=0.1, learning_rate=7.0)
    assert (trains.verdict, trains.text) == (FAILS, "7 of 8 runs diverged")
    # A grid of another k than the paper's bears on no claim of it.
    beside = found(7, metric="mse", quantile=0.1, learning_rate=7.0, k=1)
    assert (beside.verdict, beside.text) == (part.verdict, part.text)


def test_compare_step_times_ignores_wall_times(make_store, study):
    def found(*rows):
        table = pd.DataFrame(rows, columns=STEP_TIMES.columns)
        evidence = ClaimData(pd.DataFrame(columns=["dataset"]), None, table)
        return compare_step_times("online", "fixed_threshold", at_most=1.25)(evidence, "mnist")

    assert found(times(1.1, 1.05, 1.15)).verdict == HOLDS
    assert found(times(1.1, 1.05, 1.15)).numbers["advantage"] == 1.1
    assert found(times(1.5, 1.4, 1.6)).verdict == FAILS
    assert found(times(1.2, 1.1, 1.3)).verdict == UNDECIDED
    assert found(times(1.1, 1.0, 1.2), times(1.5, 1.4, 1.6, device="a gpu")).verdict == FAILS
    assert found(times(1.1, 1.0, 1.2, dataset="ag_news")).verdict == NOT_RUN
    slow = times(2.0, 1.9, 2.1, method="adam_wosm")
    assert found(times(1.1, 1.05, 1.15), slow).verdict == HOLDS
    assert found(slow).verdict == NOT_RUN
    assert found().verdict == NOT_RUN
    store = make_store()  # wall times say nothing, whatever they are
    for method, seconds in (("online", 900.0), ("fixed_threshold", 100.0)):
        for seed in range(3):
            store.add(method=method, seed=seed, wall_seconds=seconds)
    table = judge_claims(study(store)).set_index(["claim", "dataset"])
    assert table.loc[("C8", "mnist"), "verdict_best"] == NOT_RUN


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("x,y\n1,2\n", "not a table of step times"), ("", "not a table"), (None, "must be > 0")],
)
def test_step_times_foreign_table_rejected(tmp_path, text, complaint):
    path = tmp_path / "step_times.csv"
    if text is None:
        pd.DataFrame([times(1.1, 0.0, 1.2)]).to_csv(path, index=False)
    else:
        path.write_text(text)
    with pytest.raises(OsoError, match=complaint):
        STEP_TIMES.read(path)


def test_always_diverges_ignores_random_stopping(store, study):
    more = {"dataset": "fashion_mnist", "method": "fixed_quantile", "epsilon": 1.0}
    more |= {"metric": "mse", "k": 9}
    for i in range(25):
        store.add(**more, learning_rate=2.0**i, quantile=0.1, values=(), diverged_at=3)
    store.add(
        **more, learning_rate=1.0, quantile=0.1, values=(0.1,), search_accounting=RANDOM_STOPPING
    )
    data = judge_claims(study(store)).set_index(["claim", "dataset"])
    assert data.loc[("C6", "fashion_mnist"), "evidence"].startswith("25 of 25 runs diverged")


def diverging(lost=45, sizes=(49, 81, 25), points=(49, 81, 25)) -> ClaimData:
    """FixedQuantile on Fashion-MNIST at epsilon = 1, at the paper's k: cells and 45 runs each."""
    rows = cells(*[("fixed_quantile", 1, 9.0, 0.1)] * 3, dataset="fashion_mnist")
    rows = rows.assign(k=(7, 9, 5), grid_points=points, grid_size=sizes, runs=45, diverged=lost)
    status = ["diverged"] * lost + ["finished"] * (45 - lost)
    runs = [
        {
            "dataset": "fashion_mnist",
            "method": "fixed_quantile",
            "epsilon": 1.0,
            "k": k,
            "status": s,
        }
        for k in (5, 7, 9)
        for s in status
    ]
    return ClaimData(rows, pd.DataFrame(runs))


@pytest.mark.parametrize("lost", [0, 44, 45])
def test_always_diverges_counts_diverged_grids(lost) -> None:
    """Without runs, as by cross-selection, a grid has diverged if all its runs did."""
    found = always_diverges("fixed_quantile", 1.0)(
        ClaimData(diverging(lost).cells), "fashion_mnist"
    )
    assert found.verdict == (HOLDS if lost == 45 else FAILS)
    assert found.text == f"diverged in {3 * (lost == 45)} of 3 grids"


@pytest.mark.parametrize("turned", [False, True])
def test_compare_step_times_highest_bound_decides(turned) -> None:
    """The device with the highest upper bound decides, not the one with the highest ratio."""
    rows = [times(1.2, 1.18, 1.22), times(1.1, 0.9, 1.3, device="a gpu")]
    table = pd.DataFrame(rows[:: -1 if turned else 1], columns=STEP_TIMES.columns)
    evidence = ClaimData(pd.DataFrame(columns=["dataset"]), None, table)
    found = compare_step_times("online", "fixed_threshold", at_most=1.25)(evidence, "mnist")
    assert (found.verdict, found.numbers["high"]) == (UNDECIDED, 1.3)


@pytest.mark.parametrize("ratios", [(7.124, 5.0), (5.0, 7.124), (7.124, 7.2, 3.0)])
def test_compare_gradient_noise_worst_cell_decides(ratios, store, study) -> None:
    for epsilon, ratio in zip((3.0, 5.0, 9.0), ratios, strict=False):
        store.add(epsilon=epsilon, noise_multiplier=200.0, query_noise_multiplier=200.0 * ratio)
    evidence = evidence_of(study, store, "mnist", 9)
    found = compare_gradient_noise("online", at_most=0.01)(evidence, "mnist")
    assert found.verdict == FAILS
    assert found.numbers["advantage"] == pytest.approx((1 - min(ratios) ** -2) ** -0.5 - 1)


@pytest.mark.parametrize("turned", [False, True])
def test_compare_step_times_failing_device_decides(turned: bool) -> None:
    """A device on which the claim fails decides, also where another interval reaches higher."""
    rows = [times(1.3, 1.0, 1.6), times(1.4, 1.3, 1.5, device="another")]
    evidence = ClaimData(cells(), step_times=pd.DataFrame(rows[:: -1 if turned else 1]))
    found = compare_step_times("online", "fixed_threshold", at_most=1.25)(evidence, "mnist")
    assert (found.verdict, found.numbers["low"]) == (FAILS, 1.3)
