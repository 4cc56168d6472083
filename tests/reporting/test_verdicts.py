"""When two means differ: Welch's interval, and what one seed can say."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_ind_from_stats

from oso.reporting.compare import compare
from oso.reporting.verdicts import Sample, compared, difference

ALONE = math.nan  # the deviation of one seed


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Sample(93.62, 0.91, 5), Sample(92.53, 0.33, 5)),
        (Sample(1.0, 0.2, 2), Sample(1.5, 0.01, 9)),
        (Sample(5.0, 0.0, 3), Sample(4.0, 1.0, 4)),
    ],
)
def test_one_pair_is_welch_s_interval(a, b):
    welch = ttest_ind_from_stats(a.mean, a.std, a.seeds, b.mean, b.std, b.seeds, equal_var=False)
    error = (a.mean - b.mean) / welch.statistic
    found = difference([(a, b)])
    assert found.mean == pytest.approx(a.mean - b.mean)
    # The interval ends where the test's p-value is 5 %.
    edge = ttest_ind_from_stats(found.half, a.std, a.seeds, 0.0, b.std, b.seeds, equal_var=False)
    assert error > 0
    assert edge.pvalue == pytest.approx(0.05)


def test_the_mean_of_many_pairs_is_surer_than_one():
    pair = (Sample(1.0, 0.5, 5), Sample(0.5, 0.5, 5))
    one, many = difference([pair]), difference([pair] * 12)
    assert many.mean == one.mean
    # A twelfth of the variance, and more degrees of freedom.
    assert one.half / many.half > math.sqrt(12)
    assert one.half / many.half == pytest.approx(math.sqrt(12), rel=0.2)


def test_intervals_cover_as_often_as_they_say():
    draw = np.random.default_rng(3)
    covered = 0
    for _ in range(2000):
        a, b = draw.normal(0, 1.0, 5), draw.normal(0, 3.0, 5)
        samples = (Sample(x.mean(), x.std(ddof=1), 5) for x in (a, b))
        found = difference([tuple(samples)])
        covered += found.low <= 0 <= found.high
    assert 0.93 < covered / 2000 < 0.97


def test_one_seed_is_taken_to_vary_as_the_other_side_does():
    # Student's t with 4 degrees of freedom: 2.776; the difference's deviation is s sqrt(1 + 1/5).
    half = 2.7764 * 0.91 * math.sqrt(1.2)
    found = difference([(Sample(93.0, ALONE, 1), Sample(93.62, 0.91, 5))])
    assert found.half == pytest.approx(half, rel=1e-4)
    swapped = difference([(Sample(93.62, 0.91, 5), Sample(93.0, ALONE, 1))])
    assert (swapped.mean, swapped.half) == pytest.approx((-found.mean, found.half))
    assert compared(Sample(93.62 + 0.99 * half, ALONE, 1), Sample(93.62, 0.91, 5)) == "reproduced"
    assert compared(Sample(93.62 + 1.01 * half, ALONE, 1), Sample(93.62, 0.91, 5)) == "higher"
    assert compared(Sample(93.62 - 1.01 * half, ALONE, 1), Sample(93.62, 0.91, 5)) == "lower"


def test_two_single_seeds_say_nothing():
    assert compared(Sample(1.0, ALONE, 1), Sample(2.0, ALONE, 1)) == "undecided"


def test_both_deviations_count():
    theirs = Sample(90.0, 0.1, 5)
    assert compared(Sample(91.0, 0.1, 5), theirs) == "higher"
    assert compared(Sample(91.0, 2.0, 5), theirs) == "reproduced"
    assert compared(Sample(91.0, 0.1, 5), Sample(90.0, 2.0, 5)) == "reproduced"


def verdicts(study, store, dataset, k, epsilon):
    cells = compare(study(store), dataset, k)
    cells = cells[cells["epsilon"] == epsilon].set_index("method")
    return cells[["verdict", "point_verdict"]].agg(tuple, axis=1).to_dict()


def test_a_grid_that_diverges_as_the_paper_s_does_reproduces_it(make_store, study):
    def of(last):
        store = make_store()
        for i in range(45):
            store.add(
                dataset="fashion_mnist",
                method="fixed_quantile",
                epsilon=1.0,
                metric="mse",
                learning_rate=10.0 ** (i // 5 / 2 - 2.5),
                quantile=(0.1, 0.3, 0.5, 0.7, 0.9)[i % 5],
                **(last if i == 44 else {"values": (), "diverged_at": 9}),
            )
        return verdicts(study, store, "fashion_mnist", 9, 1.0)["fixed_quantile"]

    assert of({"values": (), "diverged_at": 9}) == ("reproduced", "reproduced")
    assert of({"values": (0.1,)}) == ("trains", "trains")


def test_a_part_of_a_grid_that_diverges_decides_nothing(store, study):
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
        "fixed_quantile": ("part of the grid", "part of the grid"),
        "fixed_threshold": ("not run", "not run"),
        "adam_wosm": ("not run", "not run"),
    }


@pytest.mark.parametrize(
    ("elsewhere", "verdict"),
    [(0.80, "same point"), (0.901, "as good"), (0.95, "another point")],
)
def test_where_no_value_is_printed_the_hyperparameters_are_judged(store, study, elsewhere, verdict):
    """Table 2, epsilon = 9: rho = 1.467; our whole grid of k = 7 ran."""
    for i in range(7):
        for seed in range(3):
            value = {6: elsewhere, 4: 0.9}.get(i, 0.5) + 0.004 * seed
            store.add(k=7, seed=seed, learning_rate=10 ** (-2.5 + 4 * i / 6), values=(value,))
    assert verdicts(study, store, "mnist", 7, 9.0)["online"] == ("no value printed", verdict)


def test_hyperparameters_need_the_whole_grid(store, study):
    store.add(k=7, learning_rate=1.467, values=(0.9,))
    found = verdicts(study, store, "mnist", 7, 9.0)["online"]
    assert found == ("no value printed", "part of the grid")
