"""Budgets that are no whole numbers are told as they are, wherever one stands."""

import itertools

import pytest
from tests.analysis.test_budget_strategies import SEARCH, default, searched

from oso_dp.analysis.budget_strategies import max_regret
from oso_dp.analysis.claims import judge_claims
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.reporting.figures import every_figure
from oso_dp.reporting.figures.metric_over_epsilon import incomplete_note
from oso_dp.reporting.tables.cells import anchor, tooltip
from oso_dp.reporting.update_docs import budgets

EPSILONS = (0.5, 2.25)


@pytest.fixture
def made(store, study):
    """A way of each kind, a whole grid of two hyperparameters, guesses, and two evaluations."""
    for epsilon in EPSILONS:
        searched(store, SEARCH, epsilon=epsilon)
        default(store, [0.90, 0.91, 0.92], epsilon=epsilon)
        other = {"k": 1, "learning_rate": 1e-3, "threshold": 1.0, "search_accounting": "single"}
        for seed in range(3):  # ahead at the first, behind at the second
            value = 0.95 if epsilon == EPSILONS[0] else 0.90
            run = {"epsilon": epsilon, "seed": seed, "noise_multiplier": 400.0, **other}
            store.add(method="adam_wosm", values=(value,), **run)
        known = {"k": 4, "epsilon": epsilon, "noise_multiplier": 400.0}
        for rate, threshold in itertools.product((0.01, 0.1, 1.0, 10.0), repeat=2):
            point = {"learning_rate": rate, "threshold": threshold}
            store.add(method="fixed_threshold", **known, **point, values=(0.5, 0.6))
        for rate in (0.01, 0.1, 1.0, 10.0):
            more = {"search_accounting": "single", "learning_rate": rate}
            store.add(**known, **more, values=(0.8, 0.85))
        store.add(method="adam_wosm", **known, learning_rate=1.0, values=(0.7, 0.8))
    return study(store)


@pytest.mark.parametrize("kind", ["budget_strategies", "untuned_runs", "grid", "training"])
def test_figures_panel_names_fractional_budget(kind: str, made) -> None:
    plan = next(plan for plan in every_figure(made) if plan.kind == kind and plan.k in (None, 4))
    said = "\n".join(
        text for axes in plan.draw().axes for text in (axes.get_title(), axes.get_ylabel())
    )
    for epsilon in EPSILONS:
        assert f"ε = {epsilon}" in said


def test_report_text_fractional_budgets_exact(made) -> None:
    caption = next(
        plan.caption for plan in every_figure(made) if plan.kind == "metric" and plan.measured
    )
    assert "AdamWOSM (ε = 0.5, 2.25)" in caption
    (question,) = judge_claims(made).query("claim == 'Q5' and dataset == 'mnist'")["evidence"]
    for epsilon in EPSILONS:
        assert f"k = 4, ε = {epsilon}:" in question
    assert max_regret(made)["epsilon"].tolist() == [*reversed(EPSILONS)]
    for epsilon in EPSILONS:
        assert f"| MNIST, ε = {epsilon} |" in budgets(made).split("largest loss, in margins")[1]


def test_incomplete_note_lists_all_budgets(made) -> None:
    assert "ε = 0.5, 2.25" in incomplete_note(judge_cells(made, "mnist", 4))


@pytest.mark.parametrize(("one", "other"), [(2.25, 2.4), (0.5, 0.25), (3.0, 3.25)])
def test_anchor_differs_by_budget(one: float, other: float) -> None:
    known = {"dataset": "mnist", "k": 9, "method": "online"}
    names = [anchor({**known, "epsilon": epsilon}) for epsilon in (one, other)]
    assert names == [f"mnist-k9-eps{epsilon:g}-online" for epsilon in (one, other)]


@pytest.mark.parametrize("seeds", [1, 5, 7, 12])
def test_tooltip_names_all_runs(seeds: int, store, study) -> None:
    for seed in range(seeds):
        store.add(seed=seed, values=(0.9,))
    cell = {"dataset": "mnist", "k": 9, "epsilon": 9.0, "method": "online"}
    lines = tooltip(study(store), cell).splitlines()
    assert [line.split(":")[0] for line in lines] == [f"seed {seed}" for seed in range(seeds)]
