"""Tables: cells equal to a hand computation, honest about what was not run."""

import pytest
from tests.reporting.conftest import comparison_tables

from oso_dp.analysis import verdicts
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.paper.tables import find_table
from oso_dp.reporting.tables.cells import paper_table
from oso_dp.reporting.tables.search_cost import noise_table
from oso_dp.reporting.tables.study import runs_table


def row_of(frame, method, epsilon=9.0):
    rows = frame[(frame["method"] == method) & (frame["epsilon"] == epsilon)]
    assert len(rows) == 1
    return rows.iloc[0]


def test_judge_cells_matches_hand_computation(store, study):
    # Two seeds at the paper's point (rho = 1), one elsewhere; the paper has 93.62 here.
    store.add(seed=0, learning_rate=1.0, values=(0.90, 0.95, 0.93))
    store.add(seed=1, learning_rate=1.0, values=(0.94, 0.93, 0.91))
    store.add(seed=0, learning_rate=10.0, values=(0.94, 0.94, 0.94))
    cell = row_of(judge_cells(study(store), "mnist", 9), "online")
    assert cell["status"] == "run"
    assert cell["mean"] == pytest.approx(94.5)  # of 95 and 94
    assert cell["std"] == pytest.approx(0.5**0.5)  # n - 1
    assert (cell["seeds"], cell["grid_points"], cell["grid_size"]) == (2, 2, 9)
    assert cell["difference"] == pytest.approx(94.5 - 93.62)
    assert cell["at_paper_mean"] == pytest.approx(94.5)
    # The last step picks its own grid point.
    assert (cell["last_mean"], cell["last_learning_rate"]) == (pytest.approx(94.0), 10.0)


def test_judge_cells_paper_point_within_rounding(store, study):
    # Table 8, epsilon = 3: printed 0.316, on the grid 0.316228.
    store.add(epsilon=3.0, learning_rate=0.316228, values=(0.8,))
    store.add(epsilon=3.0, learning_rate=1.0, values=(0.9,))
    cell = row_of(judge_cells(study(store), "mnist", 9), "online", 3.0)
    assert (cell["learning_rate"], cell["mean"]) == (1.0, pytest.approx(90))
    assert cell["at_paper_mean"] == pytest.approx(80)
    assert cell["at_paper_seeds"] == 1


@pytest.mark.parametrize(
    ("at_papers_point", "value", "said"),
    [
        (False, 0.80, verdicts.UNDECIDED),
        (True, 0.80, verdicts.WORSE),
        (False, 0.99, verdicts.BETTER),
    ],
)
def test_judge_cells_incomplete_grid_not_worse(store, study, at_papers_point, value, said) -> None:
    """An incomplete grid without the paper's point (rho = 1) is undecided, not worse."""
    for seed in range(4):
        store.add(seed=seed, learning_rate=0.01, values=(value + 0.001 * seed,))
        if at_papers_point:
            store.add(seed=seed, learning_rate=1.0, values=(value - 0.01 + 0.001 * seed,))
    cell = row_of(judge_cells(study(store), "mnist", 9), "online")
    assert cell["verdict"] == said


def test_judge_cells_mse_times_100(store, study):
    shared = {"dataset": "fashion_mnist", "k": 5, "epsilon": 4.0, "metric": "mse"}
    store.add(**shared, values=(0.05, 0.007), learning_rate=3.16)
    store.add(**shared, values=(0.05, 0.02), learning_rate=0.3)
    cell = row_of(judge_cells(study(store), "fashion_mnist", 5), "online", 4.0)
    assert (cell["mean"], cell["unit"]) == (pytest.approx(0.7), "mse × 100")
    assert cell["difference"] == pytest.approx(0.7 - 0.64)


def table_of(study, dataset="mnist", k=9):
    return paper_table(study, find_table(dataset, k))


def lines_of(table):
    """epsilon -> paper, ours, verdict, each a line of the paper's layout."""
    return {
        epsilon: [line for _, line in lines.iterrows()]
        for epsilon, lines in table.printed.groupby(("", "ε"), sort=False)
    }


def test_paper_table_layout_matches_paper(paper_store, study):
    table = table_of(study(paper_store))
    columns = [c for c in table.printed.columns if c[0]]
    assert columns == [
        *(("Online", "ρ"), ("Online", "%")),
        *(("FixedThreshold", "ρ"), ("FixedThreshold", "C"), ("FixedThreshold", "%")),
        *(("FixedQuantile", "ρ"), ("FixedQuantile", "γ"), ("FixedQuantile", "%")),
        *(("AdamWOSM", "C"), ("AdamWOSM", "%")),
    ]
    assert list(lines_of(table)) == ["3", "5", "7", "9"]
    paper, ours, verdict = lines_of(table)["9"]
    assert paper["Online"].tolist() == ["1", "93.62 ± 0.91"]
    assert ours["FixedThreshold"].tolist()[:2] == ["0.003162", "10"]
    assert "±" not in ours["Online", "%"]  # one seed
    assert verdict["Online", "%"].endswith("(1 seed, ±2.77)")
    assert len(table.data) == 17  # NoDP, too


def test_paper_table_missing_runs_marked(paper_store, study):
    table = table_of(study(paper_store))
    _, ours, verdict = lines_of(table)["3"]
    assert ours["Online"].tolist() == ["–", "–"]
    assert verdict["Online", "%"] == "not run"
    details = table.details.set_index(["ε", "method"])
    assert details.loc[
        ("3", "Online"), ["verdict", "grid points", "ours − paper [95 %]"]
    ].tolist() == [*("not run", "0 of 9", "–")]
    assert "1 of 2 runs diverged" in details.loc[("9", "FixedThreshold"), "grid points"]
    assert any("ours may have fewer" in note for note in table.notes)


def test_paper_table_no_dp_in_notes(paper_store, study):
    (note,) = [n for n in table_of(study(paper_store)).notes if n.startswith("NoDP")]
    assert note.startswith("NoDP: the paper's best is at ρ = 0.003162, without a value; ours is at")
    other = table_of(study(paper_store), "fashion_mnist", 7)
    assert (
        "NoDP: the paper's best is at ρ = 0.01467, without a value; ours: not run." in other.notes
    )


def test_cells_table_counts_diverged_runs(store, study):
    store.add(dataset="glyphs", seed=0, values=(0.9,))
    store.add(dataset="glyphs", seed=1, values=(0.3,), diverged_at=60)
    worse = {"learning_rate": 10.0, "values": (0.2,)}  # another point, of which more is lost
    for seed in (0, 1, 2):
        store.add(dataset="glyphs", seed=seed, **worse, diverged_at=60)
    store.add(dataset="glyphs", method="fixed_quantile", quantile=0.5, values=(), diverged_at=2)
    (table,) = comparison_tables(study(store))
    shown = table.printed.set_index(["ε", "method"])
    assert shown.loc[("9", "Online"), "ours, %"].endswith("(1 of its 2 runs diverged)")
    assert shown.loc[("9", "Online"), "grid points"] == "2 of 9 (4 of 5 runs diverged)"
    assert shown.loc[("9", "FixedQuantile"), "ours, %"] == "diverged"
    assert shown.loc[("9", "FixedQuantile"), "our best"] == "–"


def test_comparison_tables_include_all_paper_tables(paper_store, study):
    names = [t.name for t in comparison_tables(study(paper_store))]
    assert names == [f"table_{n:02d}" for n in (2, 3, 4, 8, 9, 10, 11, 12, 13)]


def test_comparison_tables_demo_own_table_only(glyphs_store, study):
    (table,) = comparison_tables(study(glyphs_store))
    assert table.name == "glyphs_k3"
    assert not any("paper" in column for column in table.printed.columns)
    assert any("not MNIST" in note for note in table.notes)


def test_comparison_tables_ag_news_subset_separate(store, study):
    for method, more in (("online", {}), ("adam_wosm", {"threshold": 0.01})):
        store.add(dataset="ag_news_partial", method=method, values=(0.86,), **more)
    store.add(dataset="mnist", values=(0.9,))
    tables = {t.name: t for t in comparison_tables(study(store))}
    assert (tables["table_10"].data["status"] == "not run").all()
    partial = tables["ag_news_partial_k9"]
    assert partial.data["mean"].tolist() == pytest.approx([86, 86])
    assert partial.data["paper_mean"].isna().all()
    assert not any("paper" in column for column in partial.printed.columns)
    assert any("not comparable" in note for note in partial.notes)


def test_other_methods_table_new_methods_compared(store, study):
    for seed, plus in ((0, 0.0), (1, 0.001), (2, 0.0005)):
        store.add(k=1, seed=seed, values=(0.9 + plus,))
        store.add(k=1, method="my_clipping", seed=seed, threshold=2.0, values=(0.95 + plus,))
        store.add(k=1, method="worse", seed=seed, values=(0.85 + plus,))
    store.add(values=(0.9,))
    store.add(epsilon=1.0, values=(0.8,))
    tables = {t.name: t for t in comparison_tables(study(store))}
    assert set(tables["table_08"].data["method"]) == {
        *("online", "fixed_threshold", "fixed_quantile", "adam_wosm", "no_dp")
    }
    assert 1.0 not in set(tables["table_08"].data["epsilon"])
    shown = tables["other_methods"].printed.set_index(["ε", "method"])
    assert len(shown) == 4
    assert shown.loc[("1", "Online"), "ours"] == "80.00"
    mine = shown.loc[("9", "my_clipping")]
    assert mine["our best"] == "ρ 1, C 2"
    assert mine["grid points"] == "1 of 1"
    assert (mine["against Online"], mine[""]) == ("+5.00 ± 0.11", "better")
    assert shown.loc[("9", "worse"), ["against Online", ""]].tolist() == ["−5.00 ± 0.11", "worse"]


def test_cells_table_new_k_states_length(store, study):
    store.add(k=1, epochs=1, steps=1, values=(0.6,))
    store.add(k=9, epochs=10, steps=10, values=(0.9,))
    tables = {t.name: t for t in comparison_tables(study(store))}
    assert tables["mnist_k1"].data["mean"].tolist() == pytest.approx([60])
    assert "Runs of 1 epoch; the paper's have 10." in tables["mnist_k1"].notes
    assert tables["other_methods"].printed["epochs"].tolist() == ["1"]


def test_paper_table_shorter_runs_noted(store, study):
    store.add(k=9, epochs=1, steps=1, values=(0.6,))
    store.add(k=5, epochs=10, steps=10, values=(0.6,))
    s = study(store)
    shorter, whole = (" ".join(table_of(s, k=k).notes) for k in (9, 5))
    assert "Runs of 1 epoch; the paper's have 10." in shorter
    assert "the paper's have 10." not in whole


def test_other_methods_table_paper_methods_excluded(store, study):
    more = {"dataset": "ag_news_partial", "k": 5}
    store.add(**more, values=(0.8,))
    store.add(**more, method="fixed_threshold", values=(0.7,))
    store.add(**more, method="auto_s", values=(0.75,))
    tables = {t.name: t for t in comparison_tables(study(store))}
    shown = tables["other_methods"].printed
    assert shown[["method", "against Online"]].to_numpy().tolist() == [["AUTO-S", "−5.00"]]


@pytest.mark.parametrize(("lead", "verdict"), [(0.05, verdicts.BETTER), (0.0, verdicts.UNDECIDED)])
def test_other_methods_table_no_equivalence_margin(lead, verdict, store, study):
    """Data sets outside the paper have no margin: without a clear lead, methods are undecided."""
    for seed in range(3):
        more = {"dataset": "patients", "k": 1, "seed": seed}
        store.add(**more, values=(0.8 + 0.001 * seed,))
        store.add(**more, method="auto_s", values=(0.8 + lead + 0.001 * seed,))
    tables = {t.name: t for t in comparison_tables(study(store))}
    assert tables["other_methods"].data["verdict"].tolist() == [verdict]


def test_judge_cells_random_stopping_excluded(store, study):
    """Runs of random stopping do not count as runs of the paper's cells."""
    for seed in range(2):
        store.add(seed=seed, values=(0.9 + 0.001 * seed,))
        for rate in (0.1, 1.0):
            more = {"learning_rate": rate, "threshold": 1.0, "search_accounting": "random_stopping"}
            store.add(method="fixed_threshold", seed=seed, values=(0.99,), **more)
    s = study(store)
    cells = judge_cells(s, "mnist", 9).set_index("method")
    assert cells.loc["fixed_threshold", "status"].tolist() == ["not run"] * 4
    assert (cells.loc["online", "status"] == "run").sum() == 1
    assert len(runs_table(s).data) == 2  # but they were run


def test_paper_table_differing_budgets_noted(paper_store, study):
    """Only Table 12 has a note that its budgets differ from those of Tables 3 and 9."""
    tables = {t.name: " ".join(t.notes) for t in comparison_tables(study(paper_store))}
    for name, notes in tables.items():
        assert ("The paper prints ε" in notes) == (name == "table_12")
    assert "prints ε = 3, 5, 7, 9 here, and 1 to 4 in Tables 3 and 9" in tables["table_12"]
    assert "are those of ε = 1, 2, 3, 4:" in tables["table_12"]


def test_runs_table_counts(paper_store, study):
    data = runs_table(study(paper_store)).data.set_index("method")
    threshold = data.loc["fixed_threshold"]
    assert threshold[["runs", "finished", "diverged", "grid_points", "seeds"]].tolist() == [
        *(2, 1, 1, 2, 1)
    ]
    assert data.loc["online", "wall_seconds"] == 25.0
    assert data["runs"].sum() == len(paper_store.runs)


@pytest.mark.parametrize(("times", "said"), [((None, None), "–"), ((None, 25.0), "25 s")])
def test_runs_table_missing_time_not_zero(times, said, store, study):
    for seed, seconds in enumerate(times):
        store.add(seed=seed, wall_seconds=seconds)
    assert runs_table(study(store)).printed["time"].tolist() == [said]


def test_noise_table_plan_overrides_rows(store, study):
    store.add(method="online", noise_multiplier=0.8)
    store.add(method="fixed_threshold", threshold=1.0, noise_multiplier=2.0)
    data = noise_table(study(store)).data.set_index("method")
    assert data.loc["fixed_threshold", ["grid_size", "ratio_to_online", "source"]].tolist() == [
        *(81, pytest.approx(2.5), "rows")
    ]
    entry = {"dataset": "mnist", "method": "online", "k": 9, "runs": 9}
    grids = [
        entry | {"epsilon": 9, "noise_multiplier": 0.5},
        entry | {"epsilon": 3, "noise_multiplier": 1.5},
    ]
    data = noise_table(study(store, grids)).data
    data = data.set_index(["epsilon", "method"])["noise_multiplier"]
    assert data.to_dict() == {
        (3.0, "online"): 1.5,
        (9.0, "online"): 0.5,
        (9.0, "fixed_threshold"): 2.0,
    }
