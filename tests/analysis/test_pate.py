"""PATE's comparison, costs and claims from made-up rows, and the published numbers."""

import gzip
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from oso_dp.analysis.claim_tests import FAILS, HOLDS, UNDECIDED
from oso_dp.analysis.pate import (
    compare_students,
    judge_pate_claims,
    recompute_published,
    summarize_epsilons,
)
from oso_dp.analysis.side_measurements import PATE_PUBLISHED
from oso_dp.data.mnist import parse_idx
from oso_dp.errors import OsoError
from oso_dp.reporting.figures.pate import figures
from oso_dp.reporting.table import ReportContext
from oso_dp.reporting.tables.pate import tables
from oso_dp.results.pate_rows import COLUMNS


def student(seed: int = 0, **known) -> dict:
    return {
        **dict.fromkeys(COLUMNS, 1.0),
        "dataset": "mnist",
        "model": "tanh_cnn",
        "teachers": 250,
        "aggregator": "confident",
        "epsilon": 2.0,
        "learning": "pseudo_labels",
        "seed": seed,
        "queries": 640,
        "student_accuracy": 0.95 + 0.001 * seed,
        "epsilon_exact": 1.9,
        "epsilon_data_dependent": 1.2,
        **known,
    }


def make(study, store, *rows: dict):
    return replace(study(store), pate=pd.DataFrame(rows, columns=COLUMNS))


@pytest.fixture
def peers(store):
    """Untuned runs beside the students, at their last step on the odd test examples."""

    def add(value: float, **known):
        for seed in range(3):
            row = {
                "dataset": "mnist",
                "model": "tanh_cnn",
                "k": 1,
                "epsilon": 2.0,
                "search_accounting": "single",
                "method": "online",
                "seed": seed,
            }
            half = value + 0.001 * seed
            store.add(**row | known, values=(0.5, 0.6), halves=((0.1, 0.1), (0.2, half)))
        return store

    return add


def test_compare_students_selects_matching_peers(study, peers) -> None:
    peers(0.97)
    peers(0.10, model="cnn")
    peers(0.10, epsilon=3.0)
    store = peers(0.10, dataset="fashion_mnist_labels")
    rows = [student(seed) for seed in range(3)]
    found = compare_students(make(study, store, *rows)).set_index("approach")
    assert found.index.tolist() == ["PATE, confident", "Online"]
    assert found["mean"].tolist() == pytest.approx([0.951, 0.971])
    assert found["seeds"].tolist() == [3, 3]


@pytest.mark.parametrize(("peer", "verdict"), [(0.97, FAILS), (0.955, HOLDS), (0.9, HOLDS)])
def test_judge_pate_claims_compares_best_peer(study, peers, peer, verdict) -> None:
    """A7 compares students with the best peer, within the margin of 1.3 points on MNIST."""
    peers(0.5, method="auto_s")
    store = peers(peer)
    rows = [student(seed, student_accuracy=0.95 + 0.0001 * seed) for seed in range(3)]
    rows += [student(seed, learning="supervised", student_accuracy=0.8) for seed in range(3)]
    data = judge_pate_claims(make(study, store, *rows)).set_index("claim")
    assert data.loc["A7", "verdict"] == verdict
    assert "PATE, confident, pseudo-labels" in data.loc["A7", "evidence"]


@pytest.mark.parametrize(
    ("accuracies", "epsilon", "verdict"),
    [((0.981, 0.982), 2.0, HOLDS), ((0.95, 0.96), 2.0, FAILS), ((0.99,), 3.0, "not run")],
)
def test_judge_pate_claims_checks_printed_accuracy(
    study, peers, accuracies, epsilon, verdict
) -> None:
    rows = [
        student(seed, student_accuracy=one, epsilon=epsilon) for seed, one in enumerate(accuracies)
    ]
    data = judge_pate_claims(make(study, peers(0.5), *rows)).set_index("claim")
    assert data.loc["A4", "verdict"] == verdict


@pytest.mark.parametrize(
    ("dependent", "verdict"), [((1.2, 1.8), HOLDS), ((2.0, 2.1), FAILS), ((1.2, 2.0), UNDECIDED)]
)
def test_judge_pate_claims_compares_both_epsilons(study, peers, dependent, verdict) -> None:
    rows = [student(seed, epsilon_data_dependent=one) for seed, one in enumerate(dependent)]
    rows.append(student(0, aggregator="laplace", epsilon_exact=np.nan, epsilon_data_dependent=9.0))
    data = judge_pate_claims(make(study, peers(0.5), *rows)).set_index("claim")
    assert data.loc["A5", "verdict"] == verdict


def test_summarize_epsilons_averages_over_seeds(study, store) -> None:
    rows = [
        student(seed, learning=learning, epsilon_data_dependent=1.0 + seed)
        for seed in range(2)
        for learning in ("supervised", "pseudo_labels")
    ]
    (row,) = summarize_epsilons(pd.DataFrame(rows)).to_dict("records")
    assert row["epsilon_data_dependent"] == 1.5
    assert row["queries"] == 640


def test_tables_and_figures_require_students(study, peers) -> None:
    store = peers(0.97)
    with_students = make(study, store, *[student(seed) for seed in range(3)])
    context = ReportContext(with_students, [], pd.DataFrame(), [])
    assert [table.name for table in tables(context)] == [
        *("pate_students", "pate_epsilons", "pate_claims"),
    ]
    (figure,) = figures(with_students)
    assert figure.draw() is not None
    without = ReportContext(study(store), [], pd.DataFrame(), [])
    assert tables(without) == []
    assert [*figures(study(store))] == []


def test_recompute_published_matches_known_values(shared, tmp_path, study, store) -> None:
    store.add()
    raw = gzip.decompress((shared / "data/mnist/t10k-labels-idx1-ubyte.gz").read_bytes())
    truth = parse_idx(raw, "labels")
    table = recompute_published(shared / "data/pate_votes", truth.astype(np.int64))
    agrees = dict(zip(table["quantity"], table["agrees"], strict=True))
    assert [*agrees.values()] == [True, True, False, False, True, True, False]
    ours = dict(zip(table["quantity"], table["ours"], strict=True))
    assert ours["LNMax, scale 20: epsilon of 100 queries"] == pytest.approx(2.043, abs=1e-3)
    assert ours["LNMax, scale 20: labels that are right, in %"] == pytest.approx(93.1, abs=0.3)
    made = replace(study(store), pate=pd.DataFrame([student()]), pate_published=table)
    verdicts = judge_pate_claims(made).set_index("claim")["verdict"].to_dict()
    found = {name: verdicts[name] for name in ("A1", "A2", "A3", "A6")}
    assert found == {"A1": HOLDS, "A2": FAILS, "A3": HOLDS, "A6": HOLDS}
    table.to_csv(tmp_path / "published.csv", index=False)
    assert len(PATE_PUBLISHED.read(tmp_path / "published.csv")) == 7


def test_recompute_published_bad_votes_rejected(tmp_path) -> None:
    with pytest.raises(OsoError, match=r"250_teachers\.npy: cannot read votes"):
        recompute_published(tmp_path, np.zeros(10_000, dtype=np.int64))
    np.save(tmp_path / "mnist_250_teachers.npy", np.ones((3, 10)))
    with pytest.raises(OsoError, match=r"votes \[3, 10\]; must be \[9000, 10\]"):
        recompute_published(tmp_path, np.zeros(10_000, dtype=np.int64))
