"""Who is called best, by how much, and against whom: leads, and runs of one length."""

import pytest
from scipy.stats import ttest_ind_from_stats
from tests.analysis.claim_helpers import cells

from oso_dp.reporting.page.summary_text import best_method_text
from oso_dp.reporting.tables.cells import other_methods_table

ALL = {"epochs": 10, "precision": "float32", "delta": 1e-5, "variant": ""}


@pytest.mark.parametrize("lead", [0.5, 1.0, 1.35, 1.45, 2.0, 3.0])
@pytest.mark.parametrize(("one", "other"), [(0.8, 0.6), (1.0, 1.0), (0.3, 1.4), (1.4, 0.3)])
@pytest.mark.parametrize(("seeds", "others"), [(3, 3), (2, 5), (5, 5)])
def test_best_method_text_lead_matches_welch(one, other, lead, seeds, others):
    rows = cells(("online", 9, 90 + lead, one, seeds), ("adam_wosm", 9, 90.0, other, others))
    text = best_method_text(rows.assign(unit="%", grid_points=9, grid_size=9, **ALL))
    assert f"{lead:.2f} points ahead of AdamWOSM" in text
    chance = ttest_ind_from_stats(90 + lead, one, seeds, 90, other, others, equal_var=False).pvalue
    said = "Online is best with" if chance < 0.05 else "undecided (within chance): Online has"
    assert said in text


@pytest.mark.parametrize(("dataset", "said"), [("fashion_mnist", "undecided"), ("glyphs", "best")])
def test_best_method_text_mse_uses_ratio(dataset, said):
    """On Fashion-MNIST the ratio's interval contains 1; on Glyphs the difference excludes 0."""
    made = cells(("online", 4, 0.1, 0.08, 3), ("adam_wosm", 4, 0.3, 0.05, 3), dataset=dataset)
    made = made.assign(metric="mse", unit="mse", grid_points=9, grid_size=9, **ALL)
    assert said in best_method_text(made)


@pytest.mark.parametrize(
    ("parts", "at_paper", "said"),
    [
        ((9, 9, 9), (91.0, 92.0, 80.0), "Online is best with 95.00 ± 0.10 %, 2.00 points ahead"),
        ((9, 1, 9), (91.0, 92.0, 80.0), "the paper's points, AdamWOSM is best with 92.00 ± 0.10 %"),
        (
            (9, 9, 1),
            (91.0, 92.0, None),
            "undecided (incomplete grid of FixedThreshold): Online has",
        ),
    ],
)
def test_best_method_text_ranks_paper_points(parts, at_paper, said):
    """Beside an incomplete grid, methods are ranked at the paper's points if all were run."""
    methods = ("online", "adam_wosm", "fixed_threshold")
    made = cells(*zip(methods, (9, 9, 9), (95.0, 93.0, 92.0), (0.1,) * 3, (3,) * 3, strict=True))
    paper = {"at_paper_mean": at_paper, "at_paper_std": 0.1, "at_paper_seeds": 3}
    made = made.assign(unit="%", grid_points=parts, grid_size=9, **ALL, **paper)
    assert said in best_method_text(made)


def test_best_method_text_names_missing_methods():
    made = cells(
        ("online", 9, 95.0, 0.1), ("adam_wosm", 9, 93.0, 0.1), ("fixed_threshold", 9, 0.0, 0.0)
    )
    made["status"] = ["run", "run", "not run"]
    text = best_method_text(made.assign(unit="%", grid_points=9, grid_size=9, **ALL))
    assert text.endswith("2.00 points ahead of AdamWOSM; not run: FixedThreshold.")


@pytest.mark.parametrize(("online", "other"), [(1, 10), (10, 1), (10, 10)])
def test_other_methods_table_shorter_runs_unranked(online, other, store, study):
    """Runs of one epoch are shown without a verdict, on either side."""
    for seed in range(3):
        more = {"k": 1, "seed": seed}
        store.add(**more, epochs=online, values=(0.8 + 0.001 * seed,))
        store.add(**more, method="auto_s", epochs=other, values=(0.9 + 0.001 * seed,))
    (table,) = other_methods_table(study(store))
    row = table.printed.set_index("method").loc["AUTO-S"]
    assert row[""] == ("better" if online == other == 10 else "–")
    assert row["ours"] == "90.10 ± 0.10"


@pytest.mark.parametrize(("lead", "verdict"), [(0.05, "better"), (-0.05, "worse")])
@pytest.mark.parametrize("online", [2, 1])
@pytest.mark.parametrize("other", [2, 1])
def test_other_methods_table_reversible_verdict_omitted(online, other, lead, verdict, store, study):
    """A verdict is omitted where a missing point of a grid could reverse it."""
    for seed in range(3):
        for method, points, value in (("online", online, 0.8), ("auto_s", other, 0.8 + lead)):
            for rho in (0.1, 1.0)[:points]:
                more = {"learning_rate": rho, "values": (value + 0.001 * seed,)}
                store.add(method=method, k=2, seed=seed, **more)
    (table,) = other_methods_table(study(store))
    row = table.printed.set_index("method").loc["AUTO-S"]
    whole = (other if verdict == "worse" else online) == 2
    assert row[""] == (verdict if whole else "–")
    assert row["against Online"].startswith("+5.00" if lead > 0 else "−5.00")


@pytest.mark.parametrize(
    ("online", "other"),
    [("float32", "bfloat16"), ("bfloat16", "float32"), ("bfloat16", "bfloat16")],
)
def test_other_methods_table_mixed_precision_unranked(online, other, store, study):
    """Methods of different precision get no verdict."""
    for seed in range(3):
        more = {"dataset": "fashion_mnist", "metric": "mse", "k": 1, "seed": seed}
        store.add(**more, precision=online, values=(0.02 + 0.001 * seed,))
        store.add(**more, method="auto_s", precision=other, values=(0.002 + 0.0001 * seed,))
    (table,) = other_methods_table(study(store))
    row = table.printed.set_index("method").loc["AUTO-S"]
    assert row[""] == ("better" if online == other else "–")
