"""Claims: judged from the rows, by a stated rule, and never from what is not there."""

import itertools
import math
from dataclasses import replace

import pandas as pd
import pytest
from tests.analysis.claim_helpers import papers_point

from oso_dp.accounting.search_accounting import RANDOM_STOPPING
from oso_dp.analysis import claims
from oso_dp.analysis.claim_tests import (
    CELLS,
    FAILS,
    HOLDS,
    NOT_APPLICABLE,
    NOT_RUN,
    RUNS,
    UNDECIDED,
    ClaimData,
)
from oso_dp.analysis.claims import CLAIMS, FROZEN_THRESHOLD, judge_claims
from oso_dp.analysis.side_measurements import UPDATE_NORMS, WHOLE
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.reporting.tables.claims import (
    claims_count,
    claims_sentence,
    claims_tables,
    in_short,
)


@pytest.mark.parametrize("dataset", ["ag_news_partial", "patients"])
def test_judge_claims_questions_cover_other_data(dataset, store, study):
    for seed in range(2):
        more = {"dataset": dataset, "k": 1, "seed": seed}
        store.add(**more, values=(0.9 + 0.001 * seed,))
        for method in (FROZEN_THRESHOLD, "fixed_threshold"):
            store.add(**more, method=method, values=(0.8 + 0.001 * seed,))
    data = judge_claims(study(store))
    others = data[data["dataset"] == dataset]
    assert others[["claim", "verdict_best"]].to_numpy().tolist() == [["Q2", HOLDS]]
    assert (data.loc[data["claim"].str.startswith("C"), "verdict_best"] == NOT_RUN).all()


def test_judge_claims_without_runs_not_run(store, study):
    store.add(dataset="glyphs", k=3)
    data = judge_claims(study(store))
    ours = data["claim"].str.startswith("C")
    assert set(data["verdict_best"]) == {NOT_RUN}
    assert set(data["verdict_cross"]) <= {NOT_RUN, NOT_APPLICABLE}
    # By its own numbers the paper's claims about its values hold.
    paper = data[ours].set_index(["claim", "dataset"])["verdict_paper"]
    assert paper[paper == HOLDS].count() == 12
    assert UNDECIDED not in set(paper)
    assert set(data.loc[~ours, "verdict_paper"]) == {NOT_APPLICABLE}
    said = "of its 16 claims, each data set counted, 0 hold, 0 do not, 0 are undecided, 16 not run"
    assert claims_sentence(data).startswith(f"By our rows, {said}. C9 follows from a formula")
    assert claims_sentence(data).endswith("(0 of 3 data sets were run).")


def test_judge_claims_cross_selection_reverses_verdict(store, study):
    """C1 holds by the best checkpoint and fails by cross-selection."""
    for epsilon in (3.0, 5.0, 7.0, 9.0):
        for k in (5, 9):
            for seed in range(3):
                chance = 0.002 * seed
                for method, best, half in (
                    ("online", 0.95, 0.85),
                    ("fixed_threshold", 0.9, 0.9),
                ):
                    more = {"seed": seed, "values": (best + chance,)}
                    point = papers_point(method, k, epsilon)
                    store.add(**point, **more, halves=((half + chance, half + chance),))
    data = judge_claims(study(store)).set_index(["claim", "dataset"]).loc[("C1", "mnist")]
    assert (data["verdict_best"], data["verdict_cross"]) == (HOLDS, FAILS)
    assert (data["advantage"], data["grids"]) == (pytest.approx(5.0), 8)


@pytest.mark.parametrize("whole", ["online", "fixed_threshold", "neither"])
def test_judge_claims_incomplete_uses_paper_points(whole, store, study):
    """A complete and an incomplete grid are compared at the paper's points, not by their best."""
    sizes = {"online": 9, "fixed_threshold": 81, "neither": 0}
    for epsilon, k, seed in itertools.product((3.0, 5.0, 7.0, 9.0), (9, 5), range(3)):
        halves = ((0.8 + 0.001 * seed, 0.8 + 0.001 * seed),)
        more = {"seed": seed, "values": (0.9 + 0.001 * seed,), "halves": halves}
        for method in ("online", "fixed_threshold"):
            own = papers_point(method, k, epsilon)
            store.add(**own, **more)
            if method == whole and k == 9:
                better = more | {"values": (0.97,), "halves": ((0.97, 0.97),)}
                for place in range(1, sizes[whole]):
                    rho = own["learning_rate"] * 1.1**place
                    store.add(**own | {"learning_rate": rho}, **better)
    data = judge_claims(study(store)).set_index(["claim", "dataset"]).loc[("C1", "mnist")]
    assert (data["advantage"], data["grids"]) == (pytest.approx(0), 8)
    assert "8 of 12 grids (8 at the paper's best points)" in data["evidence"]
    assert (data["verdict_best"], data["verdict_cross"]) == (HOLDS, HOLDS)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("end", "verdict"), [(0.95, HOLDS), (0.85, FAILS), (0.99, FAILS)])
def test_judge_claims_last_step_reverses_verdict(end, verdict, whole: bool, store, study):
    """C3 holds by the best checkpoint, and by the last step only where both methods end equal."""
    for k, epsilon, seed in itertools.product((5, 9), (3.0, 5.0, 7.0, 9.0), range(3)):
        for method, last in (("online", end), ("adam_wosm", 0.95)):
            own = papers_point(method, k, epsilon)
            axis = "threshold" if method == "adam_wosm" else "learning_rate"
            for place in range(k if whole else 1):
                values = (0.99 + 1e-3 * seed, last + 1e-3 * seed)
                store.add(**own | {axis: own[axis] * 1.5**place}, seed=seed, values=values)
    data = judge_claims(study(store)).set_index(["claim", "dataset"]).loc[("C3", "mnist")]
    assert (data["verdict_best"], data["verdict_last"]) == (HOLDS, verdict)
    assert data["at_paper"] == (0 if whole else 8)


@pytest.mark.parametrize("rule", ["last", "cross"])
def test_judge_by_rule_takes_rule_columns(rule: str) -> None:
    """Mean, std and seeds, also at the paper's point, are those of the given rule."""
    names = [*CELLS, *RUNS]
    numbers = ("mean", "std", "seeds")
    of_rules = [f"{other}_{name}" for other in ("last", "cross") for name in numbers]
    at_paper = [f"at_paper{other}_{n}" for other in ("", "_last", "_cross") for n in numbers]
    columns = [*names, *of_rules, *at_paper]
    frame = pd.DataFrame([dict(zip(columns, range(len(columns)), strict=True))])
    found = claims._judge_by_rule(frame, rule).iloc[0]
    for name in numbers:
        assert found[name] == frame[f"{rule}_{name}"].item()
        assert found[f"at_paper_{name}"] == frame[f"at_paper_{rule}_{name}"].item()


@pytest.mark.parametrize("whole", [False, True])
def test_in_short_mentions_paper_points(whole: bool, store, study):
    """The table and the count mention the paper's points only where grids are incomplete."""
    for k, epsilon, seed in itertools.product((5, 9), (3.0, 5.0, 7.0, 9.0), range(3)):
        for method in ("online", "adam_wosm"):
            own = papers_point(method, k, epsilon)
            axis = "threshold" if method == "adam_wosm" else "learning_rate"
            for place in range(k if whole else 1):
                point = own | {axis: own[axis] * 1.5**place}
                store.add(**point, seed=seed, values=(0.9 + 1e-3 * seed,))
    data = judge_claims(study(store))
    words = in_short(data, "C").set_index("")["MNIST"]
    assert words["C3"] == (HOLDS if whole else "holds at the paper's points")
    assert words["C1"] == NOT_RUN
    assert ("1 holds (1 at the paper's points)" in claims_count(data)) == (not whole)


def test_judge_claims_missing_paper_point_undecided(store, study):
    for seed in range(2):
        store.add(**papers_point("online", 9, 9.0), seed=seed)
        store.add(**papers_point("fixed_threshold", 9, 9.0) | {"threshold": 77.0}, seed=seed)
    data = judge_claims(study(store)).set_index(["claim", "dataset"]).loc[("C1", "mnist")]
    assert data["verdict_best"] == UNDECIDED
    assert data["evidence"] == "1 incomplete, without the paper's point"


def test_judge_claims_q4_uses_random_stopping(store, study):
    """Q4 fails by random stopping, although Online leads under composition."""
    shared = {"epsilon": 9.0}
    for seed in range(2):
        for i in range(9):
            online = {"seed": seed, "learning_rate": 2.0**i, **shared}
            store.add(
                **online,
                values=(0.5 + 0.05 * (i == 0) + 0.001 * seed,),
                search_accounting=RANDOM_STOPPING,
            )
            for j in range(9):
                more = {
                    "method": "fixed_threshold",
                    "threshold": 2.0**j,
                    "search_accounting": RANDOM_STOPPING,
                }
                store.add(**online, **more, values=(0.54 + 0.001 * seed,))
        store.add(**papers_point("online", 9, 9.0), seed=seed, values=(0.9 + 0.001 * seed,))
        store.add(**papers_point("fixed_threshold", 9, 9.0), seed=seed, values=(0.8,))
    data = judge_claims(study(store)).set_index(["claim", "dataset"])
    found = data.loc[("Q4", "mnist")]
    assert found["verdict_best"] == FAILS
    assert -4 < found["advantage"] < 0
    assert (found["grids"], found["of_grids"]) == (1, 4)
    assert data.loc[("Q4", "ag_news"), "verdict_best"] == NOT_RUN
    assert data.loc[("C1", "mnist"), "advantage"] == pytest.approx(10.05)


def test_claims_tables_has_line_per_dataset(paper_store, study):
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    claims, questions = claims_tables(judge_claims(study(paper_store)))
    of_paper = [claim for claim in CLAIMS if not claim.name.startswith("U")]
    assert len(claims.printed) + len(questions.printed) == sum(len(c.datasets) for c in of_paper)
    assert set(claims.printed[""]) - {""} == {c.name for c in CLAIMS if c.name.startswith("C")}
    assert "by the paper's numbers" not in questions.printed


_USERS = {
    "dataset": "mnist_writers",
    "unit": "user",
    "local": "epochs=1",
    "k": 1,
    "epsilon": 8.0,
}


def user_verdicts(study, store) -> dict[str, str]:
    data = judge_claims(study(store))
    users = data[data["claim"].str.startswith("U")].set_index("claim")
    assert set(users["dataset"]) == {"mnist_writers"}
    return users["verdict_best"].to_dict()


@pytest.mark.parametrize(
    ("median", "others", "verdict"),
    [(0.85, 0.95, HOLDS), (0.795, 0.2, HOLDS), (0.7, 0.95, FAILS)],
)
def test_judge_claims_u1_median_decides(store, study, median, others, verdict) -> None:
    """U1 compares the median alone, with the margin, whatever other quantiles reach."""
    noise = {"noise_multiplier": 4.0, "query_noise_multiplier": 5.0}
    for seed in range(3):
        spread = 0.001 * seed
        store.add(**_USERS, method="online", seed=seed, values=(0.9 + spread,))
        point = {"threshold": 1.0, "seed": seed}
        store.add(**_USERS, method="fixed_threshold", **point, values=(0.8 + spread,))
        for quantile in (0.1, 0.3, 0.5, 0.7, 0.9):
            value = median if quantile == 0.5 else others
            point = {"quantile": quantile, "seed": seed, **noise}
            store.add(**_USERS, method="fixed_quantile", **point, values=(value + spread,))
    data = judge_claims(study(store))
    users = data[data["claim"].str.startswith("U")].set_index("claim")
    assert set(users["dataset"]) == {"mnist_writers"}
    best = max(median, others)
    online = HOLDS if best <= 0.9 else FAILS
    assert users["verdict_best"].to_dict() == {"U1": verdict, "U2": online, "U4": FAILS}
    assert users.loc["U4", "advantage"] == pytest.approx(1 / 0.6 - 1)
    tables = claims_tables(data)
    assert [table.name for table in tables] == ["claims", "questions", "user_level_claims"]


@pytest.mark.parametrize(("falling", "verdict"), [(0.82, HOLDS), (0.8, UNDECIDED), (0.79, FAILS)])
def test_judge_claims_u6_compares_falling_threshold(store, study, falling, verdict) -> None:
    for seed in range(4):
        for method, value in (("fixed_threshold", 0.8), ("fixed_threshold_falling", falling)):
            point = {"threshold": 1.0, "seed": seed, "grid_runs": 1}
            store.add(**_USERS | point, method=method, values=(value + 0.0003 * (seed % 3),))
    assert user_verdicts(study, store)["U6"] == verdict


@pytest.mark.parametrize(
    ("usual_steps", "small_steps", "verdict"),
    [
        ((0.75, 0.85, 0.7), (0.8, 0.7, 0.6), HOLDS),
        ((0.75, 0.85, 0.7), (0.7, 0.8, 0.6), FAILS),
        ((0.75, 0.85, 0.7), (0.8, 0.7999, 0.6), UNDECIDED),
        ((0.85, 0.75, 0.7), (0.8, 0.7, 0.6), UNDECIDED),  # an end of the grid
        ((0.7, 0.75, 0.85), (0.6, 0.7, 0.8), UNDECIDED),  # the other end
        ((0.7, 0.75, 0.85), (0.8, 0.7, 0.6), HOLDS),
    ],
)
def test_judge_claims_u5_compares_best_thresholds(
    store, study, usual_steps, small_steps, verdict
) -> None:
    for local, values in (("learning_rate=0.1", usual_steps), ("learning_rate=0.01", small_steps)):
        for threshold, value in zip((0.1, 1.0, 10.0), values, strict=True):
            for seed in range(3):
                point = {"threshold": threshold, "local": local, "seed": seed, "grid_runs": 3}
                store.add(
                    **_USERS | point, method="fixed_threshold", values=(value + 0.001 * seed,)
                )
    assert user_verdicts(study, store)["U5"] == verdict


@pytest.mark.parametrize(
    ("geometric", "linear", "verdict"),
    [(1.2, 95.0, HOLDS), (3.0, 95.0, FAILS), (1.0, 1.0, FAILS), (0.5, 95.0, FAILS)],
)
def test_judge_claims_u3_compares_quantile_updates(
    store, study, geometric, linear, verdict
) -> None:
    store.add(**_USERS, method="online")
    rows = [
        {
            **dict.fromkeys(UPDATE_NORMS.columns, 1.0),
            "dataset": "mnist_writers",
            "method": method,
            "layer": WHOLE,
            "quantile": 0.5,
            "run_id": method,
            "step": step,
            "threshold": 100.0 if step == 1 else end,
        }
        for method, end in (("fixed_quantile", geometric), ("fixed_quantile_linear", linear))
        for step in (1, 26, 51, 96)
    ]
    made = replace(study(store), update_norms=pd.DataFrame(rows))
    data = judge_claims(made)
    assert data.set_index("claim").loc["U3", "verdict_best"] == verdict
    near = made.update_norms.assign(threshold=made.update_norms["threshold"].clip(upper=40))
    data = judge_claims(replace(made, update_norms=near))
    assert "U3" not in data["claim"].tolist()  # it did not begin far away


@pytest.mark.parametrize(("apart", "verdict"), [(0.001, HOLDS), (0.05, UNDECIDED)])
def test_judge_claims_cross_uses_halves_std(apart, verdict, store, study):
    """By cross-selection, a claim uses the std of the halves, not of the best checkpoints."""
    for k, epsilon, seed in itertools.product((5, 9), (3.0, 5.0, 7.0, 9.0), range(3)):
        for method, value in (("online", 0.92), ("fixed_threshold", 0.90)):
            half = value + apart * (seed - 1)
            more = {"seed": seed, "values": (0.95 + 1e-4 * seed,), "halves": ((half, half),)}
            store.add(**papers_point(method, k, epsilon), **more)
    data = judge_claims(study(store)).set_index(["claim", "dataset"]).loc[("C1", "mnist")]
    assert (data["verdict_best"], data["verdict_cross"]) == (HOLDS, verdict)


@pytest.mark.parametrize("halved", [0, 2, 3])
def test_judge_claims_cross_requires_both_halves(halved, store, study, monkeypatch) -> None:
    """By cross-selection, only seeds with values on both halves count."""
    for place, seed in itertools.product(range(9), range(4)):
        for method in ("online", "adam_wosm"):
            own = papers_point(method, 9, 9.0)
            axis = "threshold" if method == "adam_wosm" else "learning_rate"
            halves = ((0.9 + 0.001 * seed,) * 2,) if seed < halved else ((0.9, math.nan),)
            point = own | {axis: own[axis] * 1.5**place}
            store.add(**point, seed=seed, values=(0.9 + 0.001 * seed,), halves=halves)
    made = study(store)
    frame = judge_cells(made, "mnist", 9).query("status == 'run'")
    assert frame["seeds"].tolist() == [4, 4]
    assert frame["cross_seeds"].fillna(0).tolist() == [halved] * 2
    seen = []
    monkeypatch.setattr(
        claims, "ClaimData", lambda cells, *_: seen.append(cells) or ClaimData(cells)
    )
    judge_claims(made)
    ours, last, crossed = (set(cells.query("status == 'run'")["seeds"]) for cells in seen[:3])
    assert (ours, last, crossed) == ({4}, {4}, {halved})
