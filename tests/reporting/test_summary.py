"""The summary in a terminal."""

import io
import re

import pytest
from rich.console import Console
from tests.planned_rows import rows_of

from oso_dp.errors import OsoError
from oso_dp.labels import method_label
from oso_dp.reporting.summary import summary_table
from oso_dp.results.write import write_table
from oso_dp.study.config import load_config
from oso_dp.study.plan import make_plan, write_plan


def printed(results, width=80):
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system="standard", force_terminal=True)
    console.print(summary_table(results))
    return stream.getvalue()


def test_summary_table_80_columns_not_truncated(glyphs_store, tmp_path):
    text = printed(glyphs_store.write(tmp_path))
    assert "…" not in text
    lines = [line for line in text.splitlines() if "FixedThreshold" in line]
    assert len(lines) == 2
    assert all("ρ 0.003162, C 10" in line and "±" in line for line in lines)
    assert "not MNIST" in text


@pytest.mark.parametrize("best", ["online", "adam_wosm"])
def test_summary_table_highest_accuracy_bold(best, store, tmp_path):
    for method in ("online", "adam_wosm", "no_dp"):
        value = 0.9 if method == best else 0.99 if method == "no_dp" else 0.8
        store.add(dataset="glyphs", k=1, method=method, values=(value,))
    bold = [line for line in printed(store.write(tmp_path)).splitlines() if "\x1b[1m" in line]
    names = [name for name in ("Online", "AdamWOSM", "NoDP") if any(name in one for one in bold)]
    assert names == [method_label(best)]


def test_summary_table_incomplete_grid_marked(store, tmp_path):
    for epsilon, k_points in ((3.0, (1, 2)), (9.0, (2, 2))):
        for method, points in zip(("online", "adam_wosm"), k_points, strict=True):
            for rate in (0.1, 1.0)[:points]:
                known = {"k": 2, "epsilon": epsilon, "method": method, "learning_rate": rate}
                store.add(dataset="glyphs", values=(0.7 + 0.1 * (method == "online"),), **known)
    text = printed(store.write(tmp_path))
    lines = [line for line in text.splitlines() if "%" in line]
    assert ["\x1b[1m" in line for line in lines] == [False, False, True, False]
    assert ["*" in line for line in lines] == [True, False, False, False]
    assert "* incomplete grid" in text


def test_summary_table_plan_mismatch_raises(repo, tmp_path):
    plan = make_plan(load_config(repo / "config/ci/smoke.yaml"))
    for kind, rows in rows_of(plan).items():
        rows = [row | ({"seed": 3} if kind == "runs" else {}) for row in rows]
        write_table(tmp_path / f"{kind}.parquet", kind, rows)
    with pytest.raises(OsoError, match="run_id: not the identity of its values"):
        summary_table(tmp_path)
    write_plan(plan, tmp_path / "plan.json")
    with pytest.raises(OsoError, match="seed: 3; must be 0, as in the plan"):
        summary_table(tmp_path)


def test_summary_table_lowest_mse_bold(store, tmp_path):
    for method, value in (("online", 0.02), ("adam_wosm", 0.01), ("no_dp", 0.001)):
        store.add(dataset="fashion_mnist", k=1, method=method, metric="mse", values=(value,))
    bold = [line for line in printed(store.write(tmp_path)).splitlines() if "\x1b[1m" in line]
    rows = [line for line in bold if "× 100" in line]
    assert len(rows) == 1
    assert "AdamWOSM" in rows[0]


def test_summary_table_several_datasets_named(store, tmp_path):
    store.add(dataset="mnist", k=5)
    store.add(dataset="glyphs", k=3, epsilon=1.0, values=(), diverged_at=1)
    text = printed(store.write(tmp_path), width=100)
    assert "MNIST, 5" in text
    assert "Glyphs, 3" in text
    assert "diverged" in text


def test_summary_table_missing_results_raises(tmp_path):
    with pytest.raises(OsoError, match="no such results folder"):
        summary_table(tmp_path / "nowhere")


@pytest.mark.parametrize("seeds", [2, 3])
def test_summary_table_seeds_of_best_point(store, tmp_path, seeds):
    """The table counts the seeds of the best point that have a value."""
    for seed in range(seeds):
        for rate, value in ((0.1, 0.7), (1.0, 0.8), (10.0, 0.5)):
            store.add(dataset="glyphs", seed=seed, learning_rate=rate, values=(value,))
    store.add(dataset="glyphs", seed=9, learning_rate=1.0, values=(), diverged_at=3)
    for seed in (7, 8):  # of another point, which is not the one that is shown
        store.add(dataset="glyphs", seed=seed, learning_rate=10.0, values=(), diverged_at=3)
    (line,) = [line for line in printed(store.write(tmp_path)).splitlines() if "Online" in line]
    assert re.search(rf"1 diverged +{seeds} +\d", line)


@pytest.mark.parametrize(("metric", "said"), [("accuracy", "82.00 ± 2.00"), ("mse", "8.20 ± 0.20")])
def test_summary_table_shows_best_evaluation_mean(store, tmp_path, metric, said):
    """The value is the mean of each run's best evaluation, not of its last one."""
    for seed, off in enumerate((-1, 0, 1)):
        values = {
            "accuracy": (0.5, 0.82 + 0.02 * off, 0.7),
            "mse": (0.2, 0.082 + 0.002 * off, 0.1),
        }[metric]
        dataset = {"accuracy": "glyphs", "mse": "fashion_mnist"}[metric]
        store.add(dataset=dataset, metric=metric, seed=seed, values=values)
    (line,) = [line for line in printed(store.write(tmp_path)).splitlines() if "Online" in line]
    assert said in line


def test_summary_table_noise_of_best_point(store, tmp_path):
    """Noise and hyperparameters are those of the point with the best evaluation."""
    for rate, values in ((0.1, (0.9, 0.5)), (1.0, (0.6, 0.8))):
        store.add(dataset="glyphs", learning_rate=rate, values=values, noise_multiplier=400.0)
    store.add(dataset="glyphs", epsilon=3.0, learning_rate=10.0, noise_multiplier=900.0)
    lines = [line for line in printed(store.write(tmp_path)).splitlines() if "Online" in line]
    assert [re.search(r"(\d+\.000) +(ρ \S+)", line).groups() for line in lines] == [
        *(("900.000", "ρ 10"), ("400.000", "ρ 0.1"))
    ]


@pytest.mark.parametrize("epsilons", [(9.0,), (3.0, 9.0)])
def test_summary_table_no_dp_own_line(store, tmp_path, epsilons):
    """NoDP has one line without a budget, whatever the number of budgets."""
    for epsilon in epsilons:
        for method in ("online", "adam_wosm"):
            store.add(dataset="glyphs", k=1, epsilon=epsilon, method=method, values=(0.8,))
    store.add(dataset="glyphs", k=1, method="no_dp", values=(0.99,))
    text = printed(store.write(tmp_path))
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).split() for line in text.splitlines()]
    rows = [line for line in lines if "%" in line]
    assert len(rows) == 2 * len(epsilons) + 1
    (plain,) = [row for row in rows if "NoDP" in row]
    assert plain[:3] == ["none", "NoDP", "99.00"]


@pytest.mark.parametrize(
    "other",
    [{"precision": "bfloat16"}, {"epochs": 20, "steps": 20}, {"delta": 1e-6}],
    ids=lambda other: next(iter(other)),
)
def test_summary_table_differing_runs_not_bold(other, store, tmp_path):
    for epsilon, more in ((3.0, {}), (9.0, other)):
        for method, value, how in (("online", 0.9, {}), ("adam_wosm", 0.8, more)):
            known = {"dataset": "glyphs", "k": 1, "epsilon": epsilon, "method": method}
            store.add(**known, values=(value,), **how)
    text = printed(store.write(tmp_path))
    lines = [line for line in text.splitlines() if "%" in line]
    assert ["\x1b[1m" in line for line in lines] == [True, False, False, False]
    assert "None is bold where precision, length or delta differ" in text
    assert "incomplete grid" not in text


@pytest.mark.parametrize(
    "other", [{"precision": "bfloat16"}, {"epochs": 20, "steps": 20}, {"delta": 1e-6}, {}]
)
def test_summary_table_diverged_keeps_best_bold(other, store, tmp_path):
    """A method that diverged without a value leaves the best of the others bold."""
    for method, value in (("online", 0.9), ("adam_wosm", 0.8)):
        store.add(dataset="glyphs", k=1, method=method, values=(value,))
    lost = {"method": "auto_s", "values": (), "diverged_at": 3}
    store.add(dataset="glyphs", k=1, **lost, **other)
    text = printed(store.write(tmp_path))
    bold = [line for line in text.splitlines() if "\x1b[1m" in line and "%" in line]
    assert len(bold) == 1
    assert "Online" in bold[0]
    assert "None is bold" not in text


def test_summary_table_single_value_not_bold(store, tmp_path):
    store.add(dataset="glyphs", k=1, values=(0.9,))
    store.add(dataset="glyphs", k=1, method="auto_s", values=(), diverged_at=3)
    lines = [line for line in printed(store.write(tmp_path)).splitlines() if "Online" in line]
    assert ["\x1b[1m" in line for line in lines] == [False]
