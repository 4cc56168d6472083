"""The sentences say what the numbers say."""

import csv
import re
from collections import Counter
from importlib.resources import files

import pytest

from oso_dp.analysis.claims import judge_claims
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.labels import method_label
from oso_dp.reporting.page.summary_text import (
    agreement_text,
    best_method_text,
    coverage_text,
    noise_cost_text,
    paper_ranking_text,
    run_summary_text,
    verdict_text,
)


@pytest.mark.parametrize("seeds", [1, 3])
def test_best_method_text_one_seed_undecided(store, study, seeds):
    """A lead is undecided if one of the two methods has a single seed."""
    for rate in (0.1, 1.0):
        for seed in range(seeds):
            store.add(k=2, seed=seed, learning_rate=rate, values=(0.92,))
        store.add(k=2, method="adam_wosm", threshold=rate, values=(0.91,))
    text = best_method_text(judge_cells(study(store), "mnist", 2))
    assert "undecided (one seed): Online has" in text
    assert text.endswith("1.00 points ahead of AdamWOSM.")


def test_best_method_text_single_method_unranked(store, study):
    store.add(values=(0.9,))
    store.add(method="no_dp", values=(0.99,))  # no contest: it pays no budget
    text = best_method_text(judge_cells(study(store), "mnist", 9))
    assert text == "MNIST, k = 9: at ε = 9 only Online was run, 90.00 %."


def test_best_method_text_nonprivate_returns_none(store, study):
    store.add(method="no_dp", values=(0.99,))
    assert best_method_text(judge_cells(study(store), "mnist", 9)) is None


def test_coverage_text_counts_incomplete_grids(store, study):
    for i in range(9):
        store.add(learning_rate=10.0 ** (i / 2 - 2.5))
    store.add(method="adam_wosm", threshold=0.1)
    assert coverage_text([judge_cells(study(store), "mnist", 9)])[0].startswith(
        "1 of 2 grids are incomplete"
    )
    complete = judge_cells(study(store), "mnist", 9)
    assert coverage_text([complete[complete["method"] == "online"]]) == []


def test_agreement_text_names_largest_difference(store, study):
    for seed, more in ((0, -0.001), (1, 0.0), (2, 0.001)):
        store.add(seed=seed, values=(0.9402 + more,))  # the paper has 93.62 ± 0.91
        lower = {"method": "adam_wosm", "threshold": 31.6, "values": (0.9013 + more,)}
        store.add(seed=seed, **lower)  # and 92.53 ± 0.33
    point = {"learning_rate": 0.00316228, "threshold": 10.0}
    store.add(method="fixed_threshold", **point, values=(0.9072,))  # one seed says nothing
    # A part without the paper's own point may be far off: its best was not run.
    store.add(method="fixed_quantile", learning_rate=1e-5, values=(0.10,))
    (line,) = agreement_text(study(store))
    start, _, rest = line.partition(" is 0.40, the largest −2.40 (AdamWOSM, MNIST")
    assert start == "In % the median absolute difference from the paper's values"
    assert rest
    assert line.endswith("The paper's are means of 5 seeds, ours of as few as 1.")


@pytest.mark.parametrize("word", ["consistent", "better", "worse"])
def test_verdict_text_counts_by_dataset(word, store, study):
    """Verdicts are counted for each data set separately."""
    error = {"consistent": 0.0076, "better": 0.002, "worse": 0.05}[word]  # the paper has 0.76
    for seed, more in ((0, -0.001), (1, 0.0), (2, 0.001)):
        store.add(seed=seed, values=(0.9362 + more,))
        known = {"dataset": "fashion_mnist", "metric": "mse", "epsilon": 4.0, "seed": seed}
        store.add(**known, learning_rate=3.162, values=(error * (1 + more),))
    one = study(store)
    said = verdict_text(one, judge_claims(one))
    assert f"2 were run: on MNIST 1 consistent; on Fashion-MNIST 1 {word}; of its" in said


def test_run_summary_text_counts_runs_seeds(store, study):
    store.add(seed=0)
    store.add(seed=1)
    store.add(method="adam_wosm", threshold=1.0, diverged_at=70)
    store.add(method="fixed_threshold", values=(), diverged_at=3)  # no value, so a mean of none
    assert run_summary_text(study(store)) == (
        "4 runs of 3 methods on MNIST: 2 finished, 2 diverged. Values are means of 1 to 2 seeds."
    )


def test_paper_ranking_text_matches_best_points():
    text = (files("oso_dp.paper") / "best_points.csv").read_text(encoding="utf-8")
    rows = [r for r in csv.DictReader(text.splitlines()) if r["printed_mean"] not in ("", "-")]
    wins = Counter()
    for row in rows:
        rivals = [
            float(r["printed_mean"])
            for r in rows
            if (r["table"], r["epsilon"]) == (row["table"], row["epsilon"])
        ]
        best = min(rivals) if row["table"] in ("9", "12") else max(rivals)  # Fashion-MNIST: mse
        wins[row["method"]] += float(row["printed_mean"]) == best
    said = re.findall(r"(\w+) in (\d+)", paper_ranking_text())
    assert said == [(method_label(method), str(n)) for method, n in wins.most_common() if n]


@pytest.mark.parametrize("seeds", [1, 2, 4, 5, 6])
def test_agreement_text_states_fewest_seeds(seeds, store, study):
    for seed in range(seeds):
        store.add(seed=seed, values=(0.93 + 0.001 * seed,))
    (line,) = agreement_text(study(store))
    few = f"The paper's are means of 5 seeds, ours of as few as {seeds}."
    assert line.endswith("Both are means of 5 seeds or more." if seeds >= 5 else few)


def test_best_method_text_incomplete_grid_undecided(store, study) -> None:
    """A lead over an incomplete grid is undecided without the paper's point."""
    for place in range(9):
        store.add(learning_rate=10.0 ** (place / 2 - 2.5), values=(0.9,))
    store.add(method="adam_wosm", threshold=0.1, values=(0.8,))  # not the paper's point
    text = best_method_text(judge_cells(study(store), "mnist", 9))
    assert "at ε = 9 undecided (incomplete grid of AdamWOSM): Online has 90.00 %" in text


def test_best_method_text_diverged_counts_run(store, study) -> None:
    store.add(values=(0.9,))
    store.add(method="adam_wosm", threshold=0.1, values=(), diverged_at=2)
    text = best_method_text(judge_cells(study(store), "mnist", 9))
    assert text == "MNIST, k = 9: at ε = 9 only Online has a value, 90.00 %."


def test_run_summary_text_counts_untuned_seeds(store, study) -> None:
    for seed in range(5):
        store.add(seed=seed, search_accounting="single", k=1, values=(0.9 + seed / 100,))
    assert run_summary_text(study(store)).endswith("Values are means of 5 seeds.")


def test_judge_cells_shorter_runs_undecided(store, study) -> None:
    """Runs of five epochs are undecided, although their value is far below the paper's."""
    for seed in range(3):
        for place in range(9):
            rho = 10.0 ** (place / 2 - 2.5)
            store.add(seed=seed, learning_rate=rho, values=(0.6,), epochs=5, steps=590)
    cells = judge_cells(study(store), "mnist", 9).set_index(["epsilon", "method"])
    assert cells.loc[(9.0, "online"), "verdict"] == "undecided"


OTHER_RUNS = [{"precision": "bfloat16"}, {"epochs": 20}, {"delta": 1e-6}]


@pytest.mark.parametrize("other", OTHER_RUNS, ids=lambda other: next(iter(other)))
@pytest.mark.parametrize("value", [0.99, 0.5])
def test_best_method_text_differing_runs_unranked(value, other, store, study) -> None:
    """Two of three methods are ranked; the one with differing runs is not comparable."""
    store.add(dataset="glyphs", values=(0.9,))
    store.add(dataset="glyphs", method="adam_wosm", threshold=1.0, values=(0.8,))
    store.add(dataset="glyphs", method="auto_s", values=(value,), **other)
    text = best_method_text(judge_cells(study(store), "glyphs", 9))
    assert "Online has 90.00 %, 10.00 points ahead of AdamWOSM" in text
    assert text.endswith("; not comparable (precision, length or delta): AUTO-S.")


@pytest.mark.parametrize("other", OTHER_RUNS, ids=lambda other: next(iter(other)))
def test_best_method_text_all_differing_unranked(other, store, study) -> None:
    store.add(values=(0.9,))
    store.add(method="adam_wosm", threshold=1.0, values=(0.8,), **other)
    text = best_method_text(judge_cells(study(store), "mnist", 9))
    assert text == "MNIST, k = 9: at ε = 9 no two have the same precision, length and delta."


@pytest.mark.parametrize("epsilon", [0.5, 2.25])
def test_best_method_text_fractional_budget_exact(epsilon, store, study) -> None:
    for method, nu in (("online", 300.0), ("adam_wosm", 600.0)):
        store.add(method=method, epsilon=epsilon, values=(0.9,), noise_multiplier=nu)
    made = study(store)
    assert f"at ε = {epsilon} " in best_method_text(judge_cells(made, "mnist", 9))
    (cost,) = noise_cost_text(made)
    assert f"(MNIST, k = 9, ε = {epsilon})" in cost


@pytest.mark.parametrize("dear", [3.0, 9.0])
def test_noise_cost_text_largest_noise_ratio(dear, store, study):
    """The text has the budget with the largest noise ratio, not with the largest noise."""
    for epsilon, online in ((3.0, 500.0), (9.0, 200.0)):
        times = 3.5 if epsilon == dear else 1.5
        known = {"dataset": "glyphs", "k": 5, "epsilon": epsilon}
        store.add(**known, noise_multiplier=online)
        store.add(**known, method="fixed_threshold", noise_multiplier=times * online)
    (sentence,) = noise_cost_text(study(store))
    assert f"ε = {dear:g}" in sentence
    assert "3.50 times the noise" in sentence


@pytest.mark.parametrize("leads", [(0.02, 0.05), (0.05, 0.02)])
def test_best_method_text_joins_budget_clauses(leads, store, study) -> None:
    for epsilon, lead in zip((3.0, 9.0), leads, strict=True):
        for seed in (0, 1):
            for method, value in (("online", 0.8 + lead), ("adam_wosm", 0.8)):
                known = {"dataset": "glyphs", "k": 2, "epsilon": epsilon, "seed": seed}
                for rate in (0.1, 1.0):
                    store.add(**known, method=method, learning_rate=rate, values=(value,))
    text = best_method_text(judge_cells(study(store), "glyphs", 2))
    assert (
        text
        == "Glyphs, k = 2: Online is best at ε = 3 and 9, 2.00 to 5.00 points ahead of the next."
    )
