"""Which default is the surest: by its worst place, in units of what matters there."""

import math

import pytest

from oso_dp.analysis.budget_strategies import max_regret
from oso_dp.analysis.verdicts import margin_of
from oso_dp.reporting.update_docs import budgets

ALONE = {"search_accounting": "single", "noise_multiplier": 500.0, "k": 1}
POINTS = {
    "online": {"learning_rate": 1.0},
    "adam_wosm": {"learning_rate": 1e-3, "threshold": 1.0},
    "auto_s": {"learning_rate": 0.316228, "threshold": 1.0},
}


def default(store, method, mean, dataset="mnist", epsilon=3.0, seeds=3, **more):
    for seed in range(seeds):
        where = {"dataset": dataset, "epsilon": epsilon, "seed": seed}
        store.add(method=method, values=(mean,), **ALONE, **POINTS[method], **where, **more)


@pytest.fixture
def filled(store):
    """Two places. Online loses 0.6 points on AG News, AdamWOSM 1.2 on MNIST."""
    for method, on_mnist, on_news in (("online", 0.94, 0.81), ("adam_wosm", 0.928, 0.816)):
        default(store, method, on_mnist)
        default(store, method, on_news, dataset="ag_news_partial", epsilon=9.0)
    return store


def test_max_regret_scales_by_margin(filled, study):
    """Losses are divided by margins: 1.2 points on MNIST are less than 0.6 on AG News."""
    rows = max_regret(study(filled))
    assert rows["method"].tolist() == ["adam_wosm", "online"]
    assert rows["loss"].tolist() == pytest.approx(
        [1.2 / margin_of("mnist"), 0.6 / margin_of("ag_news_partial")]
    )
    assert rows["dataset"].tolist() == ["mnist", "ag_news_partial"]
    assert rows["epsilon"].tolist() == [3, 9]
    assert rows["places"].tolist() == [2, 2]


def test_max_regret_takes_worst_place(filled, study):
    for epsilon in (5.0, 7.0):
        default(filled, "online", 0.93, epsilon=epsilon)
        default(filled, "adam_wosm", 0.93, epsilon=epsilon)
    rows = max_regret(study(filled))
    assert rows["loss"].tolist() == pytest.approx([1.2 / 1.3, 1.5])


@pytest.mark.parametrize("method", ["online", "adam_wosm"])
def test_max_regret_lone_default_ignored(method, filled, study):
    """A default that is the only one at a budget changes no regret."""
    before = max_regret(study(filled))
    default(filled, method, 0.2, epsilon=5.0)
    assert max_regret(study(filled)).equals(before)


def test_max_regret_mse_prefers_lowest(store, study):
    default(store, "online", 0.02, dataset="fashion_mnist", metric="mse")
    default(store, "adam_wosm", 0.03, dataset="fashion_mnist", metric="mse")
    rows = max_regret(study(store))
    assert rows["method"].tolist() == ["online", "adam_wosm"]
    assert rows["loss"].tolist() == pytest.approx([0, math.log(1.5) / margin_of("fashion_mnist")])


def test_max_regret_incomplete_default_omitted(filled, study):
    """A default with too few seeds at one place has no row, but others are compared with it."""
    default(filled, "auto_s", 0.99)
    default(filled, "auto_s", 0.99, dataset="ag_news_partial", epsilon=9.0, seeds=2)
    rows = max_regret(study(filled))
    assert rows["method"].tolist() == ["online", "adam_wosm"]
    assert rows["loss"].tolist() == pytest.approx([5 / 1.3, 6.2 / 1.3])


def test_max_regret_separates_variants(filled, study):
    for dataset, epsilon in (("mnist", 3.0), ("ag_news_partial", 9.0)):
        default(filled, "auto_s", 0.5, dataset=dataset, epsilon=epsilon)
        default(filled, "auto_s", 0.95, dataset=dataset, epsilon=epsilon, schedule="linear")
    rows = max_regret(study(filled))
    named = list(zip(rows["method"], rows["variant"], strict=True))
    assert named[0] == ("auto_s", "rate falling")
    assert named[-1] == ("auto_s", "")


def test_max_regret_two_seeds_omitted(store, study):
    default(store, "online", 0.9, seeds=2)
    assert max_regret(study(store)).empty
    assert "largest loss" not in budgets(study(store))


def test_budgets_lists_smallest_regret_first(filled, study):
    *_, text, table = budgets(study(filled)).split("\n\n")
    assert "over the 2 pairs" in text
    first, second = table.splitlines()[2:]
    assert first == "| AdamWOSM | 0.9 | MNIST, ε = 3 |"
    assert second == "| Online | 1.5 | AG News subset, ε = 9 |"


@pytest.mark.parametrize("method", ["online", "adam_wosm", "auto_s"])
def test_max_regret_own_dataset_ignored(method, filled, study):
    """Data sets outside the paper are ignored, because they have no margin."""
    before = max_regret(study(filled))
    default(filled, method, 0.99, dataset="patients")
    after = max_regret(study(filled))
    assert after.to_dict("records") == before.to_dict("records")
    assert after["places"].tolist() == [2, 2]


@pytest.mark.parametrize(
    "other",
    [{"precision": "bfloat16"}, {"epochs": 20}, {"delta": 1e-6}],
    ids=lambda other: next(iter(other)),
)
@pytest.mark.parametrize("first", [True, False])
def test_max_regret_incomparable_default_omitted(first, other, store, study):
    """A default that differs from the others in precision, length or delta is omitted."""
    for dataset, epsilon in (("mnist", 3.0), ("ag_news_partial", 9.0)):
        for method, mean in (("online", 0.90), ("adam_wosm", 0.89), ("auto_s", 0.99)):
            default(store, method, mean, dataset=dataset, epsilon=epsilon)
    before = max_regret(study(store))
    assert before["method"].tolist() == ["auto_s", "online", "adam_wosm"]
    store = type(store)()
    for dataset, epsilon in (("mnist", 3.0), ("ag_news_partial", 9.0)):
        where = {"dataset": dataset, "epsilon": epsilon}
        usual = [("online", 0.90), ("adam_wosm", 0.89)]
        for method, mean in [("auto_s", 0.99), *usual] if first else [*usual, ("auto_s", 0.99)]:
            default(store, method, mean, **where, **(other if method == "auto_s" else {}))
    after = max_regret(study(store))
    assert after["method"].tolist() == ["online", "adam_wosm"]
    assert after["loss"].iloc[0] == 0
