"""When two means differ: Welch's interval, and what one seed can say."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_ind_from_stats

from oso_dp.analysis.verdicts import (
    SEEDS_NEEDED,
    Comparison,
    Sample,
    difference,
    judge,
    judge_cells,
    make_comparison,
    margin_of,
    p_value,
)
from oso_dp.data.catalogue import DATASETS
from oso_dp.paper.tables import paper_results

ALONE = math.nan  # the deviation of one seed


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Sample(93.62, 0.91, 5), Sample(92.53, 0.33, 5)),
        (Sample(1.0, 0.2, 2), Sample(1.5, 0.01, 9)),
        (Sample(5.0, 0.0, 3), Sample(4.0, 1.0, 4)),
    ],
)
def test_difference_pair_matches_welch(a, b):
    welch = ttest_ind_from_stats(a.mean, a.std, a.seeds, b.mean, b.std, b.seeds, equal_var=False)
    error = (a.mean - b.mean) / welch.statistic
    found = difference([(a, b)])
    assert found.mean == pytest.approx(a.mean - b.mean)
    # The interval ends where the test's p-value is 5 %.
    edge = ttest_ind_from_stats(found.half, a.std, a.seeds, 0.0, b.std, b.seeds, equal_var=False)
    assert error > 0
    assert edge.pvalue == pytest.approx(0.05)


def test_difference_many_pairs_narrow_interval():
    pair = (Sample(1.0, 0.5, 5), Sample(0.5, 0.5, 5))
    one, many = difference([pair]), difference([pair] * 12)
    assert many.mean == one.mean
    # A twelfth of the variance, and more degrees of freedom.
    assert one.half / many.half > math.sqrt(12)
    assert one.half / many.half == pytest.approx(math.sqrt(12), rel=0.2)


def test_difference_interval_covers_95_percent():
    draw = np.random.default_rng(3)
    covered = 0
    for _ in range(2000):
        a, b = draw.normal(0, 1.0, 5), draw.normal(0, 3.0, 5)
        samples = (Sample(x.mean(), x.std(ddof=1), 5) for x in (a, b))
        found = difference([tuple(samples)])
        covered += found.low <= 0 <= found.high
    assert 0.93 < covered / 2000 < 0.97


@pytest.mark.parametrize("printed", [0.25, 1.0, 12.0])
@pytest.mark.parametrize(("factor", "verdict"), [(1.1, "consistent"), (0.9, "consistent"),
                                                 (1.4, "worse"), (0.6, "better")])  # fmt: skip
def test_judge_errors_compared_by_ratio(printed, factor, verdict):
    theirs = Sample(printed, 0.05 * printed, 5)
    ours = Sample(factor * printed, 0.05 * printed, 5)
    assert judge([make_comparison("fashion_mnist", ours, theirs, False)]) == [verdict]


def one(ours, theirs, margin=1.3, higher=True):
    """The verdict on a value that is judged alone."""
    return judge([Comparison(ours, theirs, margin, higher)])[0]


def test_margin_of_matches_half_paper_gain():
    """The margin is half of Online's median gain over FixedThreshold in the paper, rounded."""
    cells = paper_results().dropna(subset="mean").set_index(["dataset", "k", "epsilon", "method"])
    mean = cells["mean"].unstack("method")
    gain = (mean["online"] - mean["fixed_threshold"]).abs().groupby("dataset").median() / 2
    points = gain.drop(index="fashion_mnist")
    assert {name: margin_of(name) for name in points.index} == points.round(1).to_dict()
    assert all(margin_of(name) > 0 for name in DATASETS)
    assert margin_of("patients") == 0


def test_margin_of_mse_scaled_by_deviations():
    """The factor for errors has as many of the paper's stds as the margin on MNIST."""
    cells = paper_results().dropna(subset="std")
    spread = (
        cells.assign(ratio=cells["std"] / cells["mean"])
        .groupby("dataset")[["std", "ratio"]]
        .median()
    )
    deviations = margin_of("mnist") / spread.loc["mnist", "std"]
    factor = 1 + deviations * spread.loc["fashion_mnist", "ratio"]
    assert math.exp(margin_of("fashion_mnist")) == pytest.approx(round(factor, 1))


@pytest.mark.parametrize("seeds", [1, 2])
def test_judge_few_seeds_undecided(seeds):
    std = ALONE if seeds == 1 else 0.01
    for value in (0.0, 93.62, 100.0):
        assert one(Sample(value, std, seeds), Sample(93.62, 0.91, 5)) == "undecided"
    assert SEEDS_NEEDED == 3


def test_judge_consistent_requires_margin():
    theirs = Sample(90.0, 0.3, 5)
    assert one(Sample(90.2, 0.3, 3), theirs) == "consistent"
    assert one(Sample(90.2, 3.0, 3), theirs) == "undecided"  # as much noise as that shows nothing
    # Surely different, and by less than matters.
    sharp = Sample(90.4, 0.01, 5), Sample(90.0, 0.01, 5)
    assert p_value(*sharp) < 1e-6
    assert one(*sharp) == "consistent"


def test_judge_consistency_matches_tost():
    """A value is consistent exactly where both one-sided tests at 5 % reject the margin."""
    theirs = Sample(90.0, 0.4, 5)
    for shift in np.linspace(0, 1.3, 40):
        ours = Sample(90.0 + shift, 0.3, 3)
        tests = [
            ttest_ind_from_stats(
                *(ours.mean + edge, ours.std, 3), *(theirs.mean, theirs.std, 5), False, side
            ).pvalue
            for edge, side in ((1.3, "greater"), (-1.3, "less"))
        ]
        assert (one(ours, theirs) == "consistent") == (max(tests) < 0.05), shift


def test_judge_respects_metric_direction():
    theirs = Sample(2.0, 0.1, 5)
    assert one(Sample(1.0, 0.1, 3), theirs, 0.4, higher=False) == "better"
    assert one(Sample(3.0, 0.1, 3), theirs, 0.4, higher=False) == "worse"
    assert one(Sample(3.0, 0.1, 3), theirs, 0.4) == "better"
    assert one(Sample(1.0, 0.1, 3), theirs, 0.4) == "worse"


def test_judge_corrects_for_multiple_comparisons():
    """A difference is significant alone, but not among 93 comparisons without a difference."""
    odd = Comparison(Sample(91.9, 0.5, 5), Sample(90.0, 1.3, 5), 0.4, True)
    assert p_value(odd.compared, odd.reference) < 0.03
    assert judge([odd]) == ["better"]
    wide = Comparison(Sample(90.0, 1.0, 5), Sample(90.0, 1.0, 5), 0.4, True)
    assert judge([odd] + [wide] * 93) == ["undecided"] * 94
    assert judge([odd] * 94) == ["better"] * 94


def test_judge_few_seeds_excluded_from_correction():
    odd = Comparison(Sample(91.9, 0.5, 5), Sample(90.0, 1.3, 5), 0.4, True)
    few = Comparison(Sample(90.0, ALONE, 1), Sample(90.0, 1.0, 5), 0.4, True)
    assert judge([few] * 50 + [odd] + [few] * 43)[50] == "better"


def drawn(draw, count, shift, std=0.3, seeds=3, margin=0.4):
    """As many comparisons of two draws that differ by `shift` in truth."""
    found = []
    for _ in range(count):
        a, b = draw.normal(shift, std, seeds), draw.normal(0, std, 5)
        samples = (Sample(x.mean(), x.std(ddof=1), len(x)) for x in (a, b))
        found.append(Comparison(*samples, margin, True))
    return found


def test_judge_equal_values_rarely_differ():
    """Under 9 % of 200 sets of 94 equal comparisons contain a false difference."""
    draw = np.random.default_rng(5)
    wrong = [
        sum(verdict in ("better", "worse") for verdict in judge(drawn(draw, 94, 0.0)))
        for _ in range(200)
    ]
    assert np.mean([count > 0 for count in wrong]) < 0.09
    assert np.mean(wrong) < 0.3


def test_judge_false_discovery_rate_bounded():
    draw = np.random.default_rng(6)
    shares, found = [], 0
    for _ in range(100):
        verdicts = judge(drawn(draw, 47, 0.0, margin=0.01) + drawn(draw, 47, 2.0, margin=0.01))
        different = [at for at, verdict in enumerate(verdicts) if verdict == "better"]
        different += [at for at, verdict in enumerate(verdicts) if verdict == "worse"]
        shares.append(sum(at < 47 for at in different) / max(1, len(different)))
        found += sum(at >= 47 for at in different)
    assert np.mean(shares) < 0.06
    assert found > 0.9 * 47 * 100  # and what differs is found


def test_judge_margin_difference_rarely_consistent():
    draw = np.random.default_rng(7)
    verdicts = [one(c.compared, c.reference, 0.4) for c in drawn(draw, 2000, 0.4, std=0.15)]
    assert 0.02 < verdicts.count("consistent") / 2000 < 0.065


@pytest.mark.parametrize(("dataset", "std"), [("mnist", 0.5), ("ag_news", 0.12)])
def test_judge_three_seeds_mostly_consistent(dataset, std):
    """At the paper's median std, over 70 % of equal values are consistent with three seeds."""
    draw = np.random.default_rng(8)
    found = judge(drawn(draw, 1000, 0.0, std, 3, margin_of(dataset)))
    assert found.count("consistent") > 700


def verdicts(study, store, dataset, k, epsilon):
    cells = judge_cells(study(store), dataset, k)
    cells = cells[cells["epsilon"] == epsilon].set_index("method")
    return cells[["verdict", "point_verdict"]].agg(tuple, axis=1).to_dict()


def add_quantile_grid(store, others, last):
    """FixedQuantile's whole grid on Fashion-MNIST, k = 9: 45 points, the last one as `last`."""
    for i in range(45):
        store.add(
            dataset="fashion_mnist",
            method="fixed_quantile",
            epsilon=1.0,
            metric="mse",
            learning_rate=10.0 ** (i // 5 / 2 - 2.5),
            quantile=(0.1, 0.3, 0.5, 0.7, 0.9)[i % 5],
            **(last if i == 44 else others),
        )


def test_judge_cells_diverged_grid_consistent(make_store, study):
    def of(last):
        store = make_store()
        add_quantile_grid(store, {"values": (), "diverged_at": 9}, last)
        return verdicts(study, store, "fashion_mnist", 9, 1.0)["fixed_quantile"]

    assert of({"values": (), "diverged_at": 9}) == ("consistent", "consistent")
    assert of({"values": (0.1,)}) == ("trains", "trains")


def test_judge_cells_diverged_part_incomplete(store, study):
    store.add(
        dataset="fashion_mnist",
        method="fixed_quantile",
        epsilon=1.0,
        quantile=0.1,
        values=(),
        diverged_at=9,
    )
    store.add(dataset="fashion_mnist", epsilon=1.0, values=(), diverged_at=9)
    assert verdicts(study, store, "fashion_mnist", 9, 1.0) == {
        "online": ("diverged", "diverged"),  # where the paper has 2.57
        "fixed_quantile": ("incomplete grid", "incomplete grid"),
        "fixed_threshold": ("not run", "not run"),
        "adam_wosm": ("not run", "not run"),
    }


@pytest.mark.parametrize("lost", [0, 1, 5])
@pytest.mark.parametrize(("had", "verdict"), [(2, "undecided"), (3, "worse")])
def test_judge_cells_seeds_require_value(had, verdict, lost, store, study):
    """A verdict needs three seeds with a value; seeds that diverged do not count."""
    for seed in range(had + lost):
        values = (0.5 + 0.001 * seed,) if seed < had else ()
        ended = {} if seed < had else {"diverged_at": 3}
        store.add(seed=seed, learning_rate=1.0, values=values, **ended)
    assert verdicts(study, store, "mnist", 9, 9.0)["online"][0] == verdict
    row = judge_cells(study(store), "mnist", 9).query("method == 'online' and epsilon == 9")
    assert row["seeds"].tolist() == [had]


@pytest.mark.parametrize(
    ("elsewhere", "verdict"),
    [(0.80, "same point"), (0.901, "as good"), (0.95, "another point")],
)
def test_judge_cells_unprinted_value_judges_point(store, study, elsewhere, verdict):
    """Where the paper prints no value, its point (rho = 1.467) is compared with our best."""
    for i in range(7):
        for seed in range(3):
            value = {6: elsewhere, 4: 0.9}.get(i, 0.5) + 0.004 * seed
            store.add(k=7, seed=seed, learning_rate=10 ** (-2.5 + 4 * i / 6), values=(value,))
    assert verdicts(study, store, "mnist", 7, 9.0)["online"] == ("no value printed", verdict)


def test_judge_cells_one_finished_run_trains(make_store, study):
    """A grid of which one run finishes trains, although a diverged run has the best value."""
    store = make_store()
    add_quantile_grid(store, {"values": (0.1,), "diverged_at": 9}, {"values": (0.2,)})
    said = verdicts(study, store, "fashion_mnist", 9, 1.0)["fixed_quantile"]
    assert said == ("trains", "trains")


def test_judge_cells_corrects_across_tables(make_store, study):
    """A value that is better alone is undecided among values of other tables that match."""

    def verdict(others: bool) -> str:
        store = make_store()
        for seed, off in enumerate((-0.6, 0.0, 0.6)):
            store.add(seed=seed, values=((95.2 + off) / 100,))  # the paper has 93.62 ± 0.91
            for epsilon, printed in ((3.0, 91.19), (9.0, 94.11)) if others else ():
                value = (printed + off) / 100
                store.add(k=5, epsilon=epsilon, seed=seed, values=(value,))
        return verdicts(study, store, "mnist", 9, 9.0)["online"][0]

    assert verdict(others=False) == "better"
    assert verdict(others=True) == "undecided"


def test_judge_cells_paper_point_excludes_neighbours(store, study):
    """Neighbours of the paper's point do not count, also at small learning rates."""
    for rho, value in ((0.001, 0.7), (0.00316228, 0.9), (0.01, 0.8)):
        store.add(method="fixed_threshold", learning_rate=rho, threshold=10.0, values=(value,))
    (cell,) = judge_cells(study(store), "mnist", 9).query("status == 'run'").to_dict("records")
    assert cell["at_paper_mean"] == pytest.approx(90)


PLACES = {axis: np.geomspace(10**low, 10**high, 7) for axis, low, high in
          (("learning_rate", -2.5, 1.5), ("threshold", -2, 2))}  # fmt: skip


@pytest.mark.parametrize(
    ("best", "verdict"),
    [((1, 3), "same point"), ((1, 5), "another point"), ((4, 3), "another point")],
)
def test_judge_cells_point_requires_all_axes(best, verdict, store, study):
    """The best point is the paper's only if rho and C match (Table 2: 0.01467 and 1)."""
    for at in np.ndindex(7, 7):
        for seed in range(3):
            value = {best: 0.95, (1, 3): 0.9}.get(at, 0.5) + 0.001 * seed
            point = {axis: float(PLACES[axis][i]) for axis, i in zip(PLACES, at, strict=True)}
            more = {"k": 7, "epsilon": 3.0, "seed": seed, "values": (value,)}
            if seed == 0 or value > 0.8:
                store.add(method="fixed_threshold", **more, **point)
    said = verdicts(study, store, "mnist", 7, 3.0)["fixed_threshold"]
    assert said == ("no value printed", verdict)


@pytest.mark.parametrize(("seeds", "verdict"), [(2, "as good"), (9, "another point")])
def test_judge_cells_point_uses_own_seeds(seeds, verdict, store, study):
    """The paper's point is compared with its own number of seeds, not that of our best."""
    for place in range(7):
        for seed in range({4: seeds, 6: 9}.get(place, 1)):
            value = {6: 0.91, 4: 0.90}.get(place, 0.5) + 0.003 * (-1) ** seed
            rho = 10 ** (-2.5 + 4 * place / 6)
            store.add(k=7, seed=seed, learning_rate=rho, values=(value,))
    assert verdicts(study, store, "mnist", 7, 9.0)["online"] == ("no value printed", verdict)


@pytest.mark.parametrize(("one", "like"), [("glyphs", "mnist"), ("ag_news_partial", "ag_news")])
def test_margin_of_similar_datasets_equal(one, like) -> None:
    assert margin_of(one) == margin_of(like)
