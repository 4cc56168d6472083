"""Guess or search: what guesses give, which of them beat a search, over how many decades."""

import math

import numpy as np
import pytest
from scipy import stats

from oso_dp.analysis.claim_tests import FAILS, HOLDS, NOT_RUN, UNDECIDED
from oso_dp.analysis.claims import judge_claims
from oso_dp.analysis.untuned_runs import untuned_runs, win_ranges, with_alternatives
from oso_dp.reporting.figures import every_figure
from oso_dp.reporting.figures import untuned_runs as untuned_runs_figure
from oso_dp.reporting.tables.budget_strategies import untuned_runs_table

RHO = [10.0**exponent for exponent in (-2, -1, 0, 1)]


def fill(store, alone, searched, method="online", **more):
    """values[point][seed] of guesses and of the search's runs, over rho."""
    for search_accounting, values in (("single", alone), ("composition", searched)):
        noise = 500.0 if search_accounting == "single" else 900.0
        for rho, seeds in zip(RHO, values, strict=False):
            for seed, value in enumerate(seeds):
                known = {
                    "search_accounting": search_accounting,
                    "noise_multiplier": noise,
                    "k": 4,
                } | more
                store.add(method=method, learning_rate=rho, seed=seed, values=(value,), **known)
    return store


CLEAR = [[0.80, 0.81, 0.79], [0.90, 0.91, 0.89], [0.95, 0.94, 0.96], [0.60, 0.60, 0.61]]
SEARCH = [[0.70, 0.71, 0.69], [0.84, 0.85, 0.86], [0.80, 0.81, 0.80], [0.30, 0.31, 0.30]]


def test_untuned_runs_compared_with_best_search(store, study):
    found = untuned_runs(study(fill(store, CLEAR, SEARCH)))
    assert found["learning_rate"].tolist() == RHO
    assert found["mean"].tolist() == pytest.approx([80, 90, 95, 60.33333])
    assert found["own_mean"].tolist() == pytest.approx([85] * 4)
    assert found["own_gain"].tolist() == pytest.approx([-5, 5, 10, -24.66667])
    assert (found["noise_multiplier"] == 500).all()
    assert (found["own_noise_multiplier"] == 900).all()
    one, other = 100 * np.array(CLEAR[1]), 100 * np.array(SEARCH[1])
    interval = stats.ttest_ind(one, other, equal_var=False).confidence_interval()
    assert found["own_gain_half"][1] == pytest.approx((interval.high - interval.low) / 2)


def test_win_ranges_counts_wins_and_decades(store, study):
    noisy = [*CLEAR[:3], [0.84, 0.99, 0.60]]
    (row,) = win_ranges(study(fill(store, noisy, SEARCH))).to_dict("records")
    assert (row["guesses"], row["own_points"], row["own_grid_size"]) == (4, 4, 4)
    assert (row["own_beat"], row["own_surely"], row["own_possibly"]) == (2, 2, 3)
    assert row["own_learning_rate_decades_beat"] == pytest.approx(2)
    assert row["own_learning_rate_decades_possibly"] == pytest.approx(3)
    assert (row["best_mean"], row["best_learning_rate"]) == (pytest.approx(95), 1.0)


@pytest.mark.parametrize("ahead", [0.01, 0.1, 0.5])
def test_win_ranges_one_seed_never_sure(store, study, ahead):
    """A guess of one seed never wins surely, however far it is ahead."""
    fill(store, [[0.4 + ahead], [0.1]], [[0.4], [0.2]], k=2)
    (row,) = win_ranges(study(store)).to_dict("records")
    assert (row["own_beat"], row["own_surely"], row["own_possibly"]) == (1, 0, 2)


def test_win_ranges_mse_prefers_lowest(store, study):
    fill(store, CLEAR, SEARCH, dataset="fashion_mnist", metric="mse")
    (row,) = win_ranges(study(store)).to_dict("records")
    assert row["own_beat"] == 0  # the search has a run at 0.30
    assert row["best_mean"] == pytest.approx(100 * np.mean(CLEAR[3]))


def test_win_ranges_compares_with_online_search(store, study):
    fill(store, CLEAR, SEARCH)
    fill(store, [[0.86]] * 4, [[0.99]] * 4, method="adam_wosm")
    rows = win_ranges(study(store)).set_index("method")
    assert rows.loc["adam_wosm", "own_beat"] == 0
    assert rows.loc["adam_wosm", "online_beat"] == 4
    assert rows.loc["adam_wosm", "online_surely"] == 0  # by one point, of one seed
    assert rows.loc["adam_wosm", "online_possibly"] == 4
    assert rows.loc["online", "online_beat"] == rows.loc["online", "own_beat"] == 2


def test_win_ranges_decades_at_best_slice(store, study):
    won = {(0.1, 0.1), (0.1, 1.0), (1.0, 1.0), (10.0, 1.0), (10.0, 10.0)}
    for rho in RHO[1:]:
        for threshold in (0.1, 1.0, 10.0):
            value = 0.9 if (rho, threshold) in won else 0.5
            known = {"k": 3, "learning_rate": rho, "threshold": threshold}
            store.add(
                method="fixed_threshold", search_accounting="single", values=(value,), **known
            )
            store.add(method="fixed_threshold", values=(0.7,), noise_multiplier=900.0, **known)
    (row,) = win_ranges(study(store)).to_dict("records")
    assert (row["guesses"], row["own_beat"]) == (9, 5)
    assert row["own_learning_rate_decades_beat"] == pytest.approx(3)  # at C = 1
    assert row["own_threshold_decades_beat"] == pytest.approx(2)  # at rho = 0.1 or 10


def test_win_ranges_diverged_guess_never_beats(store, study):
    fill(store, CLEAR[:3], SEARCH[:3])
    known = {"k": 4, "search_accounting": "single", "noise_multiplier": 500.0}
    store.add(learning_rate=10.0, values=(), diverged_at=3, **known)
    (row,) = win_ranges(study(store)).to_dict("records")
    assert (row["guesses"], row["own_beat"], row["own_possibly"]) == (4, 2, 2)


def test_win_ranges_separates_variants(store, study):
    fill(store, CLEAR, SEARCH)
    fill(store, [[0.99, 0.98, 0.99]] * 4, [], schedule="linear", averaging=0.99)
    one = study(store)
    rows = win_ranges(one).set_index("variant")
    assert rows.index.tolist() == ["", "rate falling, averaged, 0.99"]
    assert rows["own_beat"].tolist() == [2, 4]
    assert rows["own_mean"].tolist() == pytest.approx([85, 85])
    names = untuned_runs_table(one).printed.iloc[:, 3].tolist()
    assert names == ["Online", "Online, rate falling, averaged, 0.99"]
    verdicts = judge_claims(one).set_index(["claim", "dataset"])
    assert verdicts.loc[("Q5", "mnist"), "evidence"].count("decades") == 1  # the plain one's
    drawn = {plan.name: plan for plan in every_figure(one)}["untuned_runs_mnist_k4"].draw()
    (panel,) = drawn.axes  # one for the method, plain and laid over
    assert panel.get_title() == "Online"
    lines = {
        tuple(np.round(np.asarray(line.get_ydata(), dtype=float), 6)): line for line in panel.lines
    }
    plain = lines[tuple(rows_of(one, ""))]
    falling = lines[tuple(rows_of(one, "rate falling, averaged, 0.99"))]
    assert plain.get_linestyle() == "-"
    assert plain.get_markerfacecolor() != "white"
    assert falling.get_linestyle() != "-"
    assert falling.get_markerfacecolor() == "white"
    said = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert said[1] == "the same, rate falling, averaged, 0.99"


def rows_of(study, variant):
    """The means of these guesses, over rho."""
    every = untuned_runs(study)
    every = every[every["variant"] == variant].sort_values("learning_rate")
    return np.round(every["mean"].astype(float), 6)


def test_win_ranges_without_search_gives_nan(store, study):
    fill(store, CLEAR, [])
    (row,) = win_ranges(study(store)).to_dict("records")
    assert math.isnan(row["own_mean"])
    assert math.isnan(row["own_beat"])
    shown = untuned_runs_table(study(store)).printed.to_numpy()[0].tolist()
    assert shown[4:7] == ["500.000", "95.00 ± 1.00", "ρ 1"]
    assert set(shown[7:]) == {"–"}
    assert win_ranges(study(type(store)())).empty


def test_untuned_runs_table_shows_win_ranges(store, study):
    fill(store, CLEAR, SEARCH[:3])
    shown = untuned_runs_table(study(store)).printed.to_numpy()[0].tolist()
    assert shown[:4] == ["MNIST", "4", "9", "Online"]
    assert shown[7:11] == ["900.000", "85.00 ± 1.00*", "2 of 4 (2 to 2)", "ρ 2.0 (2.0 to 2.0)"]


def test_result_set_excludes_untuned_runs(store, study):
    """Single runs are missing from the points and figures of composition."""
    one = study(fill(store, CLEAR, SEARCH))
    assert one.best["mean"].tolist() == pytest.approx([0.85])
    assert one.last["mean"].max() == pytest.approx(0.85)
    assert (one.main_runs["search_accounting"] == "composition").all()
    drawn = {plan.name: plan for plan in every_figure(one)}
    over_noise = drawn["metric_over_noise_mnist"].data
    assert over_noise["mean"].max() < 86
    assert drawn["untuned_runs_mnist_k4"].draw() is not None


VERDICTS = {
    "wide": ([[0.95, 0.96, 0.95]] * 4, HOLDS),
    "none": ([[0.50, 0.51, 0.50]] * 4, FAILS),
    "perhaps": ([[0.80, 0.99, 0.90]] * 4, UNDECIDED),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_judge_claims_q5_decided_by_decades(store, study, case):
    alone, verdict = VERDICTS[case]
    rows = judge_claims(study(fill(store, alone, SEARCH, k=4))).set_index(["claim", "dataset"])
    assert rows.loc[("Q5", "mnist"), "verdict_best"] == verdict
    assert rows.loc[("Q5", "fashion_mnist"), "verdict_best"] == NOT_RUN


def test_judge_claims_q5_undecided_budget_prevails(store, study):
    fill(store, VERDICTS["wide"][0], SEARCH)
    fill(store, VERDICTS["perhaps"][0], SEARCH, epsilon=3.0)
    rows = judge_claims(study(store)).set_index(["claim", "dataset"])
    assert rows.loc[("Q5", "mnist"), "verdict_best"] == UNDECIDED


@pytest.mark.parametrize("case", ["wide", "none"])
@pytest.mark.parametrize("ran", [2, 3])
def test_judge_claims_q5_incomplete_guesses_undecided(case, ran, store, study):
    """Q5 is undecided if guesses are missing, unless another budget's complete guesses decide."""
    fill(store, VERDICTS[case][0][:ran], SEARCH)
    rows = judge_claims(study(store)).set_index(["claim", "dataset"])
    assert rows.loc[("Q5", "mnist"), "verdict_best"] == UNDECIDED
    assert rows.loc[("Q5", "mnist"), "evidence"].endswith(f", of {ran} guesses only")
    fill(store, VERDICTS["none"][0], SEARCH, epsilon=3.0)  # a whole grid beside it does
    rows = judge_claims(study(store)).set_index(["claim", "dataset"])
    assert rows.loc[("Q5", "mnist"), "verdict_best"] == FAILS


def test_win_ranges_single_guess_omitted(store, study):
    """A method with a single guess has neither a range of wins nor a figure."""
    fill(store, CLEAR, SEARCH)
    for method, rho in (("auto_dog", 0.1), ("auto_s", 0.3)):
        known = {"k": 1, "search_accounting": "single", "noise_multiplier": 500.0}
        store.add(method=method, learning_rate=rho, values=(0.9,), **known)
    one = study(store)
    assert len(untuned_runs(one)) == 6
    assert win_ranges(one)["method"].tolist() == ["online"]
    drawn = [plan.name for plan in every_figure(one) if plan.kind == "untuned_runs"]
    assert drawn == ["untuned_runs_mnist_k4"]


def test_untuned_runs_figure_matches_means_stds(store, study):
    """The dashed line is the best of the method's own search, the dotted one that of Online's."""
    fill(store, CLEAR, SEARCH)
    means = [np.mean(seeds) for seeds in SEARCH]  # five points lower, and three times as far apart
    lower = [
        [mean - 0.05 + 3 * (value - mean) for value in seeds]
        for mean, seeds in zip(means, SEARCH, strict=True)
    ]
    fill(store, CLEAR[::-1], lower, method="auto_s")
    one = study(store)
    (plan,) = untuned_runs_figure.figures(one)
    figure = plan.draw()
    panels = {panel.get_title(): panel for panel in figure.axes}
    every = untuned_runs(one)
    for method, title in (("online", "Online"), ("auto_s", "AUTO-S")):
        panel, mine = panels[title], every[every["method"] == method]
        drawn = [
            tuple(segment[:, 1].round(6))
            for container in panel.containers
            for bar in container.lines[2]
            for segment in bar.get_segments()
        ]
        pairs = zip(mine["mean"], mine["std"], strict=True)
        assert sorted(drawn) == sorted((round(m - s, 6), round(m + s, 6)) for m, s in pairs)
        level = {line.get_linestyle(): line.get_ydata()[0] for line in panel.lines
                 if len(set(line.get_ydata())) == 1 and len(line.get_ydata()) == 2}  # fmt: skip
        own = {"online": 85, "auto_s": 80}[method]
        expected = {"--": own} if method == "online" else {"--": own, ":": 85}
        assert level == {style: pytest.approx(value) for style, value in expected.items()}
        (band,) = panel.patches
        heights = band.get_patch_transform().transform(band.get_path().vertices)[:, 1]
        half = {"online": 1, "auto_s": 3}[method]
        assert (heights.min(), heights.max()) == pytest.approx((own - half, own + half))


def test_untuned_runs_figure_includes_best_guess(store, study):
    """The axis includes the best guess, also where it is far below the search."""
    fill(store, [[0.30, 0.31], [0.40, 0.41]], SEARCH)
    one = study(store)
    (plan,) = [plan for plan in every_figure(one) if plan.kind == "untuned_runs"]
    for axes in plan.draw().axes:
        low, high = axes.get_ylim()
        assert low <= 40.5 <= high


@pytest.mark.parametrize("momentum", [0.99])
def test_win_ranges_other_momentum_excluded(momentum, store, study):
    fill(store, CLEAR, SEARCH)
    fill(store, CLEAR, [], momentum=momentum)
    (row,) = win_ranges(study(store)).to_dict("records")
    assert (row["guesses"], row["own_learning_rate_decades_beat"]) == (4, pytest.approx(2))


@pytest.mark.parametrize("seeds", [(2, 5), (3, 2), (5, 3)])
def test_untuned_runs_unequal_seeds_match_welch(seeds: tuple[int, int], store, study) -> None:
    """The interval of the gain is Welch's, also for unequal numbers of seeds."""
    shift = [0.0, 0.02, -0.01, 0.005, -0.015]
    alone, searched = ([mean + s for s in shift[:n]] for mean, n in zip((0.9, 0.8), seeds,
                                                                       strict=True))  # fmt: skip
    fill(store, [alone, [0.5]], [searched, [0.4]], k=2)
    row = untuned_runs(study(store)).set_index("learning_rate").loc[RHO[0]]
    one, other = 100 * np.array(alone), 100 * np.array(searched)
    interval = stats.ttest_ind(one, other, equal_var=False).confidence_interval()
    assert row["own_gain_half"] == pytest.approx((interval.high - interval.low) / 2)
    assert (row["seeds"], row["own_seeds"]) == seeds


@pytest.mark.parametrize("plain", [1, 2, 3])
@pytest.mark.parametrize("variant", [0, 1, 2])
def test_with_alternatives_drops_single_guesses(plain: int, variant: int, store, study) -> None:
    """A variant counts if it has two guesses; guesses of another variant do not add up."""
    known = {"search_accounting": "single", "noise_multiplier": 500.0, "k": 4, "values": (0.9,)}
    for place in range(max(plain, variant)):
        if place < plain:
            store.add(learning_rate=RHO[place], **known)
        if place < variant:
            over = {"schedule": "linear"}
            store.add(learning_rate=RHO[place], **known, **over)
    expected = {"": plain} if plain > 1 else {}
    expected |= {"rate falling": variant} if variant > 1 else {}
    made = study(store)
    assert with_alternatives(made)["variant"].value_counts().to_dict() == expected
    assert win_ranges(made).set_index("variant")["guesses"].to_dict() == expected
