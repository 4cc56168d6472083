"""Claims: judged from the rows, by a stated rule, and never from what is not there."""

import itertools
import math

import pandas as pd
import pytest

from oso_dp import labels
from oso_dp.accounting.tuning import RANDOM_STOPPING
from oso_dp.analysis.cell_verdicts import judged_cells
from oso_dp.analysis.claims import CLAIMS, FROZEN_THRESHOLD, judged
from oso_dp.analysis.evidence import (
    FAILS,
    HOLDS,
    NOT_RUN,
    NOTHING,
    RANGES,
    UNDECIDED,
    Evidence,
    Finding,
    diverges,
    every,
    gradient_noise,
    relation,
    step_time,
    within,
)
from oso_dp.analysis.measured import STEP_TIME_COLUMNS, read_step_times
from oso_dp.analysis.verdicts import Difference
from oso_dp.errors import OsoError
from oso_dp.paper.best_points import all_points
from oso_dp.paper.tables import paper_results
from oso_dp.reporting.tables.claims import claims_sentence, claims_tables


def cells(*rows, dataset="mnist", k=9):
    """A cell per (method, epsilon, mean, std[, seeds])."""
    metric = "mse" if dataset == "fashion_mnist" else "accuracy"
    return pd.DataFrame(
        [
            {
                "dataset": dataset,
                "k": k,
                "epsilon": float(epsilon),
                "method": method,
                "metric": metric,
                "status": "diverged" if math.isnan(mean) else "run",
                "mean": mean,
                "std": std,
                "seeds": seeds[0] if seeds else 5,
            }
            for method, epsilon, mean, std, *seeds in rows
        ]
    )


def papers_point(method, k, epsilon):
    """MNIST's, as arguments of a store's row."""
    (point,) = (
        vars(one)
        for one in all_points()
        if (one.dataset, one.method, one.k, one.epsilon) == ("mnist", method, k, epsilon)
    )
    names = ("method", "k", "epsilon", "learning_rate", *labels.tuned(method))
    return {name: point[name] for name in names}


def both(online, rival, std=0.3, **more):
    """Online and FixedThreshold at each of MNIST's budgets, at all k."""
    rows = [
        (m, e, v, std)
        for e in (3, 5, 7, 9)
        for m, v in (("online", online), ("fixed_threshold", rival))
    ]
    return Evidence(pd.concat([cells(*rows, k=k, **more) for k in (5, 7, 9)]))


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
def test_a_claim_is_a_range_and_an_interval_decides(difference, low, high, verdict):
    assert within(difference, low, high) == verdict


def claimed(online, rival, std=0.3, **more):
    """What each kind of claim makes of Online against FixedThreshold."""
    evidence = both(online, rival, std, **more)
    dataset = more.get("dataset", "mnist")
    return {
        words: relation("online", words, "fixed_threshold")(evidence, dataset).verdict
        for words in RANGES
    }


def test_clearly_better_is_also_at_least_as_good_and_not_on_a_par():
    assert claimed(95.0, 90.0) == {
        "at least as good as": HOLDS,
        "on a par with": FAILS,
        "better than": HOLDS,
        "no better than": FAILS,
    }


def test_clearly_worse():
    assert claimed(90.0, 95.0) == {
        "at least as good as": FAILS,
        "on a par with": FAILS,
        "better than": FAILS,
        "no better than": HOLDS,
    }


def test_a_small_difference_is_on_a_par_and_not_better():
    found = claimed(90.0, 90.05)
    assert (found["on a par with"], found["at least as good as"]) == (HOLDS, HOLDS)
    assert found["better than"] == UNDECIDED


def test_lower_is_better_for_mse():
    evidence = [
        cells(
            ("online", e, 0.7, 0.1), ("fixed_threshold", e, 1.5, 0.1), dataset="fashion_mnist", k=k
        )
        for k in (5, 7, 9)
        for e in (1, 2, 3, 4)
    ]
    found = relation("online", "better than", "fixed_threshold")(
        Evidence(pd.concat(evidence)), "fashion_mnist"
    )
    assert found.verdict == HOLDS
    assert found.numbers["advantage"] == pytest.approx(0.8)
    assert (found.numbers["grids"], found.numbers["of_grids"]) == (12, 12)


def test_a_few_grids_decide_nothing_and_no_grid_is_not_run():
    judge = relation("online", "better than", "fixed_threshold")
    few = cells(
        *[(m, e, v, 0.1) for e in (3, 5) for m, v in (("online", 95), ("fixed_threshold", 90))]
    )
    found = judge(Evidence(few), "mnist")
    assert found.verdict == UNDECIDED
    assert found.text.endswith("2 of 12 grids; too few grids: 6 would decide")
    assert judge(Evidence(few), "ag_news").verdict == NOT_RUN
    alone = judge(Evidence(few[few["method"] == "online"]), "mnist")
    assert (alone.verdict, alone.text) == (NOT_RUN, "no grid of FixedThreshold")


def test_one_seed_and_divergence_are_told_apart_and_left_out():
    judge = relation("online", "better than", "fixed_threshold")
    rows = cells(
        ("online", 3, 95.0, math.nan, 1),
        ("fixed_threshold", 3, 90.0, 0.2),
        ("online", 5, 95.0, 0.2),
        ("fixed_threshold", 5, math.nan, math.nan, 0),
    )
    found = judge(Evidence(rows), "mnist")
    assert found.verdict == UNDECIDED
    assert found.text == "FixedThreshold diverged in 1 more; 1 grid with one seed only"


def test_budgets_that_the_paper_does_not_have_bear_on_no_claim():
    rows = cells(("online", 2, 95.0, 0.1), ("fixed_threshold", 2, 90.0, 0.1))
    assert (
        relation("online", "better than", "fixed_threshold")(Evidence(rows), "mnist").verdict
        == NOT_RUN
    )


def test_several_claims_hold_only_together():
    good = relation("online", "better than", "fixed_threshold")
    bad = relation("fixed_threshold", "better than", "online")
    absent = relation("online", "better than", "adam_wosm")
    evidence = both(95.0, 90.0)
    assert every(good, good)(evidence, "mnist").verdict == HOLDS
    assert every(good, bad, absent)(evidence, "mnist").verdict == FAILS
    assert every(good, absent)(evidence, "mnist").verdict == NOT_RUN


def evidence_of(study, store, dataset, k):
    made = study(store)
    return Evidence(judged_cells(made, dataset, k), made.runs)


def test_divergence_needs_every_run_of_every_grid(make_store, study):
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
        return diverges("fixed_quantile", 1.0)(evidence, "fashion_mnist")

    part = found(7)
    assert (part.verdict, part.text) == (UNDECIDED, "7 of 7 runs diverged, of a part only")
    # One k of two: the paper has this budget at k = 7, too.
    assert found(45).verdict == UNDECIDED
    trains = found(7, metric="mse", quantile=0.1, learning_rate=7.0)
    assert (trains.verdict, trains.text) == (FAILS, "7 of 8 runs diverged")
    # A grid of another k than the paper's bears on no claim of it.
    beside = found(7, metric="mse", quantile=0.1, learning_rate=7.0, k=1)
    assert (beside.verdict, beside.text) == (part.verdict, part.text)


def times(ratio, low, high, **other):
    row = {"dataset": "mnist", "model": "cnn", "device": "a cpu", "precision": "float32"}
    row |= {"method": "online", "rival": "fixed_threshold", "turns": 12}
    return {**row, "ratio": ratio, "low": low, "high": high, **other}


def test_time_is_judged_from_paired_measurements_only(make_store, study):
    def found(*rows):
        table = pd.DataFrame(rows, columns=STEP_TIME_COLUMNS)
        evidence = Evidence(pd.DataFrame(columns=["dataset"]), None, table)
        return step_time("online", "fixed_threshold", at_most=1.25)(evidence, "mnist")

    assert found(times(1.1, 1.05, 1.15)).verdict == HOLDS
    assert found(times(1.1, 1.05, 1.15)).numbers["advantage"] == 1.1
    assert found(times(1.5, 1.4, 1.6)).verdict == FAILS
    assert found(times(1.2, 1.1, 1.3)).verdict == UNDECIDED
    assert found(times(1.1, 1.0, 1.2), times(1.5, 1.4, 1.6, device="a gpu")).verdict == FAILS
    assert found(times(1.1, 1.0, 1.2, dataset="ag_news")).verdict == NOT_RUN
    assert found().verdict == NOT_RUN
    store = make_store()  # wall times say nothing, whatever they are
    for method, seconds in (("online", 900.0), ("fixed_threshold", 100.0)):
        for seed in range(3):
            store.add(method=method, seed=seed, wall_seconds=seconds)
    table = judged(study(store)).set_index(["claim", "dataset"])
    assert table.loc[("C8", "mnist"), "verdict_best"] == NOT_RUN


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("x,y\n1,2\n", "not a table of step times"), ("", "not a table"), (None, "are missing")],
)
def test_a_foreign_table_of_step_times_is_named(tmp_path, text, complaint):
    path = tmp_path / "step_times.csv"
    if text is None:
        pd.DataFrame([times(1.1, 0.0, 1.2)]).to_csv(path, index=False)
    else:
        path.write_text(text)
    with pytest.raises(OsoError, match=complaint):
        read_step_times(path)


def test_the_second_query_s_price_follows_from_the_rows(make_store, study):
    def found(ratio):
        store = make_store()
        store.add(noise_multiplier=2.0, query_noise_multiplier=2.0 * ratio)
        return gradient_noise("online", at_most=0.01)(
            evidence_of(study, store, "mnist", 9), "mnist"
        )

    assert found(7.124).verdict == HOLDS
    assert found(7.124).text.startswith("1.00 % more")
    for dearer in (7.0, 6.0, 5.0, 3.0):  # from 1.04 % on
        assert found(dearer).verdict == FAILS


def test_divergence_under_another_price_does_not_count(store, study):
    more = {"dataset": "fashion_mnist", "method": "fixed_quantile", "epsilon": 1.0}
    more |= {"metric": "mse", "k": 9}
    for i in range(25):
        store.add(**more, learning_rate=2.0**i, quantile=0.1, values=(), diverged_at=3)
    store.add(**more, learning_rate=1.0, quantile=0.1, values=(0.1,), selection=RANDOM_STOPPING)
    data = judged(study(store)).set_index(["claim", "dataset"])
    assert data.loc[("C6", "fashion_mnist"), "evidence"].startswith("25 of 25 runs diverged")


def test_what_the_paper_does_not_ask_is_judged_on_other_data_too(store, study):
    for seed in range(2):
        more = {"dataset": "ag_news_partial", "k": 1, "seed": seed}
        store.add(**more, values=(0.9 + 0.001 * seed,))
        for method in (FROZEN_THRESHOLD, "fixed_threshold"):
            store.add(**more, method=method, values=(0.8 + 0.001 * seed,))
    data = judged(study(store))
    others = data[data["dataset"] == "ag_news_partial"]
    assert others[["claim", "verdict_best"]].to_numpy().tolist() == [["Q2", HOLDS]]
    assert (data.loc[data["claim"].str.startswith("C"), "verdict_best"] == NOT_RUN).all()


def test_nothing_but_the_paper_s_numbers_is_known_before_anything_is_run(store, study):
    store.add(dataset="glyphs", k=3)
    data = judged(study(store))
    ours = data["claim"].str.startswith("C")
    assert set(data["verdict_best"]) == {NOT_RUN}
    assert set(data["verdict_cross"]) <= {NOT_RUN, NOTHING}
    # By its own numbers the paper's claims about its values hold.
    paper = data[ours].set_index(["claim", "dataset"])["verdict_paper"]
    assert paper[paper == HOLDS].count() == 12
    assert UNDECIDED not in set(paper)
    assert set(data.loc[~ours, "verdict_paper"]) == {NOTHING}
    said = "of its 16 claims, each data set counted, 0 hold, 0 do not, 0 are undecided, 16 not run"
    assert claims_sentence(data).startswith(f"By our rows, {said}. C9 follows from a formula")


def test_the_paper_s_advantage_is_the_mean_of_what_it_prints(store, study):
    paper = paper_results().dropna(subset=["mean"])
    paper = paper[paper["dataset"] == "ag_news"]
    mean = paper.pivot(index=["k", "epsilon"], columns="method", values="mean")
    found = relation("online", "on a par with", "adam_wosm")(
        Evidence(paper.assign(status="run", seeds=5)), "ag_news"
    )
    assert found.numbers["advantage"] == pytest.approx((mean["online"] - mean["adam_wosm"]).mean())
    assert found.numbers["grids"] == 8


def test_cross_selection_can_overturn_a_claim(store, study):
    """Online's lead is luck on the test set: the halves that did not choose see none of it."""
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
    data = judged(study(store)).set_index(["claim", "dataset"]).loc[("C1", "mnist")]
    assert (data["verdict_best"], data["verdict_cross"]) == (HOLDS, FAILS)
    assert (data["advantage"], data["grids"]) == (pytest.approx(5.0), 8)


@pytest.mark.parametrize("whole", ["online", "fixed_threshold", "neither"])
def test_a_whole_grid_and_a_part_are_compared_at_the_papers_points(whole, store, study):
    """The best of nine points, or of 81, beside one: larger by the number of points alone."""
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
    data = judged(study(store)).set_index(["claim", "dataset"]).loc[("C1", "mnist")]
    assert (data["advantage"], data["grids"]) == (pytest.approx(0), 8)
    assert "8 of 12 grids (8 at the paper's best points)" in data["evidence"]
    assert (data["verdict_best"], data["verdict_cross"]) == (HOLDS, HOLDS)


def test_what_ran_in_part_without_the_papers_point_is_compared_with_nothing(store, study):
    for seed in range(2):
        store.add(**papers_point("online", 9, 9.0), seed=seed)
        store.add(**papers_point("fixed_threshold", 9, 9.0) | {"threshold": 77.0}, seed=seed)
    data = judged(study(store)).set_index(["claim", "dataset"]).loc[("C1", "mnist")]
    assert data["verdict_best"] == UNDECIDED
    assert data["evidence"] == "1 ran in part, without the paper's point"


def test_random_stopping_is_judged_by_its_own_outcome(store, study):
    """Under composition Online leads; of a random number of random draws it is the worse one."""
    shared = {"epsilon": 9.0}
    for seed in range(2):
        for i in range(9):
            online = {"seed": seed, "learning_rate": 2.0**i, **shared}
            store.add(
                **online, values=(0.5 + 0.05 * (i == 0) + 0.001 * seed,), selection=RANDOM_STOPPING
            )
            for j in range(9):
                more = {
                    "method": "fixed_threshold",
                    "threshold": 2.0**j,
                    "selection": RANDOM_STOPPING,
                }
                store.add(**online, **more, values=(0.54 + 0.001 * seed,))
        store.add(**papers_point("online", 9, 9.0), seed=seed, values=(0.9 + 0.001 * seed,))
        store.add(**papers_point("fixed_threshold", 9, 9.0), seed=seed, values=(0.8,))
    data = judged(study(store)).set_index(["claim", "dataset"])
    found = data.loc[("Q4", "mnist")]
    assert found["verdict_best"] == FAILS
    assert -4 < found["advantage"] < 0
    assert (found["grids"], found["of_grids"]) == (1, 4)
    assert data.loc[("Q4", "ag_news"), "verdict_best"] == NOT_RUN
    assert data.loc[("C1", "mnist"), "advantage"] == pytest.approx(10.05)


def test_every_claim_has_a_name_of_its_own_and_a_line_per_data_set(paper_store, study):
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    claims, questions = claims_tables(judged(study(paper_store)))
    assert len(claims.printed) + len(questions.printed) == sum(len(c.datasets) for c in CLAIMS)
    assert set(claims.printed[""]) - {""} == {c.name for c in CLAIMS if c.name.startswith("C")}
    assert "by the paper's numbers" not in questions.printed


def test_grids_of_one_seed_are_none_that_decide():
    """Six grids were run, and two of them with more seeds than one."""
    both = (("online", 95), ("fixed_threshold", 90))
    many = cells(*[(m, e, v, 0.1) for e in (3, 5) for m, v in both])
    single = [
        cells(*[(m, e, v, math.nan, 1) for e in (3, 5) for m, v in both], k=k) for k in (5, 7)
    ]
    judge = relation("online", "better than", "fixed_threshold")
    found = judge(Evidence(pd.concat([many, *single])), "mnist")
    assert found.verdict == UNDECIDED
    assert "2 of 12 grids" in found.text
    assert "too few grids: 6 would decide" in found.text


RANK = [FAILS, NOT_RUN, UNDECIDED, NOTHING, HOLDS]


@pytest.mark.parametrize("one", RANK)
@pytest.mark.parametrize("other", RANK)
def test_of_several_claims_the_least_certain_speaks(one, other) -> None:
    """One that does not hold, is not run or undecided is no more so for what stands beside it."""
    judges = [lambda *_, verdict=verdict: Finding(verdict) for verdict in (one, other)]
    found = every(*judges)(Evidence(pd.DataFrame()), "mnist").verdict
    assert found == min(one, other, key=RANK.index)


def diverging(lost=45, sizes=(49, 81, 25), points=(49, 81, 25)) -> Evidence:
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
    return Evidence(rows, pd.DataFrame(runs))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_that_a_method_diverges_needs_every_grid_whole(part) -> None:
    judge = diverges("fixed_quantile", 1.0)
    assert judge(diverging(), "fashion_mnist").verdict == HOLDS
    assert judge(diverging(44), "fashion_mnist").verdict == FAILS
    points = [49, 81, 25]
    points[part] -= 1
    found = judge(diverging(points=points), "fashion_mnist")
    assert (found.verdict, found.text) == (UNDECIDED, "135 of 135 runs diverged, of a part only")


@pytest.mark.parametrize("lost", [0, 44, 45])
def test_a_grid_whose_runs_had_values_before_they_diverged_has_diverged(lost) -> None:
    """Where cells alone are known, as by cross-selection."""
    found = diverges("fixed_quantile", 1.0)(Evidence(diverging(lost).cells), "fashion_mnist")
    assert found.verdict == (HOLDS if lost == 45 else FAILS)
    assert found.text == f"diverged in {3 * (lost == 45)} of 3 grids"


@pytest.mark.parametrize("turned", [False, True])
def test_the_device_on_which_a_step_may_cost_most_speaks(turned) -> None:
    """Not the one whose ratio is the highest: of the other less is known."""
    rows = [times(1.2, 1.18, 1.22), times(1.1, 0.9, 1.3, device="a gpu")]
    table = pd.DataFrame(rows[:: -1 if turned else 1], columns=STEP_TIME_COLUMNS)
    evidence = Evidence(pd.DataFrame(columns=["dataset"]), None, table)
    found = step_time("online", "fixed_threshold", at_most=1.25)(evidence, "mnist")
    assert (found.verdict, found.numbers["high"]) == (UNDECIDED, 1.3)


@pytest.mark.parametrize("ratios", [(7.124, 5.0), (5.0, 7.124), (7.124, 7.2, 3.0)])
def test_the_dearest_second_query_counts(ratios, store, study) -> None:
    for epsilon, ratio in zip((3.0, 5.0, 9.0), ratios, strict=False):
        store.add(epsilon=epsilon, noise_multiplier=200.0, query_noise_multiplier=200.0 * ratio)
    evidence = evidence_of(study, store, "mnist", 9)
    found = gradient_noise("online", at_most=0.01)(evidence, "mnist")
    assert found.verdict == FAILS
    assert found.numbers["advantage"] == pytest.approx((1 - min(ratios) ** -2) ** -0.5 - 1)


@pytest.mark.parametrize(("apart", "verdict"), [(0.001, HOLDS), (0.05, UNDECIDED)])
def test_by_cross_selection_a_claim_has_the_spread_of_the_halves(apart, verdict, store, study):
    """However close to each other the seeds' values by the paper's rule are."""
    for k, epsilon, seed in itertools.product((5, 9), (3.0, 5.0, 7.0, 9.0), range(3)):
        for method, value in (("online", 0.92), ("fixed_threshold", 0.90)):
            half = value + apart * (seed - 1)
            more = {"seed": seed, "values": (0.95 + 1e-4 * seed,), "halves": ((half, half),)}
            store.add(**papers_point(method, k, epsilon), **more)
    data = judged(study(store)).set_index(["claim", "dataset"]).loc[("C1", "mnist")]
    assert (data["verdict_best"], data["verdict_cross"]) == (HOLDS, verdict)
