"""How much the paper's checkpoint rule contributes."""

import pytest

from oso_dp.reporting.tables.study import rules_sentence, rules_table


def test_rules_table_gain_over_other_rules(store, study):
    store.add(values=(0.95, 0.90), halves=((0.95, 0.93), (0.90, 0.90)))
    store.add(
        dataset="fashion_mnist",
        metric="mse",
        values=(0.010, 0.014),
        halves=((0.010, 0.012), (0.014, 0.014)),
    )
    table = rules_table(study(store))
    data = table.data.set_index("dataset")
    assert data.loc["mnist", "cross_mean"] == pytest.approx((93 + 95) / 2)
    assert data.loc["mnist", "adds_over_cross"] == pytest.approx(95 - 94)
    assert data.loc["mnist", "adds_over_last"] == pytest.approx(5)
    # Lower is better: 1.1 by cross-selection, so 1.0 flatters by 0.1.
    assert data.loc["fashion_mnist", "adds_over_cross"] == pytest.approx(0.1)
    assert table.printed["adds over cross-selection"].tolist() == ["+1.00", "+0.10"]
    assert "adds 1.00 % over cross-selection and 5.00 over the last step" in rules_sentence(
        study(store)
    )


def test_rules_sentence_counts_changed_winners(store, study):
    for epsilon, online in ((9.0, 0.80), (7.0, 0.95)):
        one = {"epsilon": epsilon, "k": 1}
        store.add(values=(0.95,), halves=((online, online),), **one)
        store.add(method="adam_wosm", threshold=1.0, values=(0.9,), halves=((0.9, 0.9),), **one)
    store.add(method="no_dp", values=(0.99,))  # no contest: it pays no budget
    assert "another private method would be best in 1 of 2 comparisons" in rules_sentence(
        study(store)
    )


def test_rules_table_grids_without_value_omitted(store, study):
    store.add(values=(), diverged_at=3)
    assert rules_table(study(store)).data.empty
    assert rules_sentence(study(store)) == "No grid has a value by every checkpoint rule."


def test_rules_sentence_mse_lowest_wins(store, study):
    """The method with the lowest error wins, so that the best of three methods changes."""
    for method, best, other in (
        ("online", 0.010, 0.014),
        ("adam_wosm", 0.012, 0.012),
        ("fixed_threshold", 0.030, 0.030),
    ):
        known = {"dataset": "fashion_mnist", "metric": "mse", "method": method, "k": 1}
        store.add(**known, values=(best,), halves=((other, other),))
    assert "another private method would be best in 1 of 1 comparison" in rules_sentence(
        study(store)
    )


def test_rules_sentence_incomplete_grid_excluded(store, study):
    """A comparison at k = 2 counts only after both methods have run two points."""
    for k in (1, 2):
        store.add(k=k, values=(0.95,), halves=((0.8, 0.8),))
        store.add(k=k, method="adam_wosm", values=(0.9,), halves=((0.9, 0.9),))
    said = "another private method would be best in {} of {} comparison"
    assert said.format(1, 1) in rules_sentence(study(store))
    store.add(k=2, learning_rate=2.0, values=(0.7,), halves=((0.7, 0.7),))
    assert said.format(1, 1) in rules_sentence(study(store))
    store.add(k=2, method="adam_wosm", learning_rate=2.0, values=(0.7,), halves=((0.7, 0.7),))
    assert said.format(2, 2) in rules_sentence(study(store))
    assert rules_table(study(store)).data["whole"].all()


SAID = "another private method would be best in {} of {} comparison"


def contest(store, one, other, **more):
    """Online by the paper's rule, the other one by cross-selection."""
    store.add(k=1, values=(0.95,), halves=((0.8, 0.8),), **more, **one)
    known = {"method": "adam_wosm", "threshold": 1.0, "k": 1}
    store.add(**known, values=(0.9,), halves=((0.9, 0.9),), **more, **other)


@pytest.mark.parametrize(
    "other",
    [{"precision": "bfloat16"}, {"epochs": 20}, {"delta": 1e-6}, {"epochs": 2}],
    ids=lambda other: "-".join(map(str, *other.items())),
)
def test_rules_sentence_differing_runs_excluded(other, store, study):
    contest(store, {}, {}, epsilon=3.0)
    contest(store, {}, other, epsilon=7.0)
    contest(store, other, {}, epsilon=9.0)
    assert SAID.format(1, 1) in rules_sentence(study(store))


@pytest.mark.parametrize(("epochs", "contests"), [(1, 0), (9, 0), (10, 1), (11, 1)])
@pytest.mark.parametrize("dataset", ["mnist", "glyphs"])
def test_rules_sentence_shorter_runs_excluded(epochs, contests, dataset, store, study):
    """On the paper's data sets, comparisons of runs under ten epochs do not count."""
    contest(store, {}, {}, dataset=dataset, epochs=epochs)
    told = rules_sentence(study(store))
    counted = 1 if dataset == "glyphs" else contests
    assert ("another private method" in told) == bool(counted)
    assert not counted or SAID.format(1, 1) in told
