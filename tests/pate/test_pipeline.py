"""A study of PATE: parts, votes, labels, students and rows, on a tiny problem."""

import json
import math
from copy import deepcopy
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.analysis.pate import account_rows, check_pate_budgets
from oso_dp.errors import OsoError
from oso_dp.pate.config import load_pate_config, parse_pate_config
from oso_dp.pate.labels import label_pool, read_labels, write_labels
from oso_dp.pate.networks import NetworkTraining, _shifted, train_network
from oso_dp.pate.partition import assign_parts, check_no_shared_rows
from oso_dp.pate.students import train_students
from oso_dp.pate.teachers import POOL, TEST, read_votes, vote, write_votes
from oso_dp.privacy.ledger import Ledger
from oso_dp.results.pate_rows import FILE, KEY, collect_rows, read_rows, write_rows

CONFIG = {
    "name": "tiny",
    "datasets": {"glyphs": {"model": "small_cnn"}},
    "teachers": {
        "count": [6],
        "epochs": 2,
        "batch_size": 8,
        "learning_rate": 0.1,
        "shards": 2,
        "shift": 1,
    },
    "epsilons": [20, 50],
    "aggregators": {
        "laplace": {"queries": 20},
        "gaussian": {"queries": 20},
        "confident": {"queries": 25, "answers": 9, "threshold": 0.4, "selection_noise": 1.0},
    },
    "student": {
        "learning": ["supervised", "pseudo_labels"],
        "epochs": 2,
        "batch_size": 8,
        "learning_rate": 0.1,
        "rounds": 1,
        "round_epochs": 1,
    },
    "seeds": [0, 3],
}
rows = st.integers(2, 40)


def changed(**keys):
    """The configuration with values at dotted keys."""
    made = deepcopy(CONFIG)
    for key, value in keys.items():
        *path, last = key.split("__")
        section = made
        for part in path:
            section = section[part]
        section[last] = value
    return made


@pytest.fixture(scope="module")
def config():
    return parse_pate_config(CONFIG, "tiny.yaml")


@pytest.fixture(scope="module")
def ballots(config, arrays):
    return [vote(config, "glyphs", 6, 0, arrays, shard) for shard in range(2)]


@pytest.fixture(scope="module")
def voted(config, arrays, ballots):
    facts = {name: value for name, value in ballots[0].facts.items() if name != "numbers"}
    return ballots[0].votes + ballots[1].votes, facts


@settings(max_examples=50)
@given(count=rows, parts=st.integers(2, 9), seed=st.integers(0, 3), data=st.data())
def test_assign_parts_ignores_other_rows(count, parts, seed, data) -> None:
    rng = np.random.default_rng(count)
    inputs, targets = rng.random((count, 3), dtype=np.float32), rng.integers(0, 4, count)
    parts = min(parts, count)
    found = assign_parts(inputs, targets, parts, seed)
    assert ((found >= 0) & (found < parts)).all()
    kept = data.draw(st.permutations(range(count)))[: data.draw(st.integers(parts, count))]
    assert (assign_parts(inputs[kept], targets[kept], parts, seed) == found[kept]).all()


def test_assign_parts_balanced_and_seeded() -> None:
    inputs = np.random.default_rng(0).random((20_000, 4), dtype=np.float32)
    targets = np.zeros(20_000, dtype=np.int64)
    first, second = (assign_parts(inputs, targets, 10, seed) for seed in (0, 1))
    sizes = np.bincount(first, minlength=10)
    assert abs(sizes - 2000).max() < 6 * np.sqrt(2000 * 0.9)
    assert (first == second).mean() == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("parts", [1, 0, 21])
def test_assign_parts_invalid_count_rejected(parts) -> None:
    with pytest.raises(OsoError, match=f"teachers: {parts}; must be >= 2 and <= the 20"):
        assign_parts(np.zeros((20, 2)), np.zeros(20), parts, 0)


def test_check_no_shared_rows_duplicates_rejected() -> None:
    private = np.random.default_rng(0).random((50, 4), dtype=np.float32)
    check_no_shared_rows(private, private + 1, "pool")
    with pytest.raises(OsoError, match="pool: 3 rows are training rows, the first is row 7"):
        check_no_shared_rows(private, np.concatenate([private[:7] + 1, private[10:13]]), "pool")


@pytest.mark.parametrize("part", [0, 3, 5])
def test_vote_row_moves_at_most_one(config, arrays, part) -> None:
    """Removing a row that dominates its teacher's training changes at most one vote per query."""
    inputs, targets = arrays.train_inputs.copy(), arrays.train_targets
    inputs *= np.where(np.arange(200) % 10 == 0, 50, 1)[:, None, None, None].astype(np.float32)
    of_row = assign_parts(inputs, targets, 6, 0)
    removed = next(row for row in range(0, 200, 10) if of_row[row] == part)
    inputs[np.delete(np.arange(0, 200, 10), removed // 10)] /= 50
    arrays = replace(arrays, train_inputs=inputs)
    kept = np.delete(np.arange(200), removed)
    fewer = replace(
        arrays,
        train_inputs=arrays.train_inputs[kept],
        train_targets=arrays.train_targets[kept],
    )
    votes, without = (
        sum(vote(config, "glyphs", 6, 0, data, shard).votes for shard in range(2))
        for data in (arrays, fewer)
    )
    moved = np.abs(votes - without).sum(axis=1)
    assert set(moved) <= {0, 2}
    assert moved.any()  # the row matters


def test_vote_counts_teachers_once(config, arrays, ballots) -> None:
    assert [ballot.facts["numbers"] for ballot in ballots] == [[0, 2, 4], [1, 3, 5]]
    for ballot in ballots:
        assert ballot.votes.shape == (30, 10)
        assert (ballot.votes.sum(axis=1) == 3).all()
    others = deepcopy(arrays.test_inputs)
    others[TEST] = 0
    same = vote(config, "glyphs", 6, 0, replace(arrays, test_inputs=others))
    assert (same.votes == ballots[0].votes).all()
    assert (vote(config, "glyphs", 6, 3, arrays).votes != ballots[0].votes).any()


def test_read_votes_other_study_rejected(config, arrays, ballots, voted, tmp_path):
    paths = [tmp_path / f"{shard}.npz" for shard in range(2)]
    for path, ballot in zip(paths, ballots, strict=True):
        write_votes(path, ballot)
    votes, facts = read_votes(paths, config, "glyphs", 6, 0, arrays)
    assert (votes == voted[0]).all()
    assert facts == voted[1]
    for some, message in (
        (paths[:1], "votes of 3 teachers, 3 in all; must be one vote of each of 6"),
        ([*paths, paths[0]], "votes of 6 teachers, 9 in all"),
    ):
        with pytest.raises(OsoError, match=message):
            read_votes(some, config, "glyphs", 6, 0, arrays)
    with pytest.raises(OsoError, match=r"0\.npz: votes of seed 0; must be 3"):
        read_votes(paths, config, "glyphs", 6, 3, arrays)
    other = replace(arrays, train_targets=9 - arrays.train_targets)
    with pytest.raises(OsoError, match=r"0\.npz: votes of data"):
        read_votes(paths, config, "glyphs", 6, 0, other)
    longer = parse_pate_config(changed(teachers__epochs=3), "")
    with pytest.raises(OsoError, match="votes of epochs 2; must be 3"):
        read_votes(paths, longer, "glyphs", 6, 0, arrays)
    paths[0].write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(OsoError, match=r"0\.npz: not a file of votes"):
        read_votes(paths, config, "glyphs", 6, 0, arrays)


@pytest.mark.parametrize("aggregator", ["laplace", "gaussian", "confident"])
@pytest.mark.parametrize("epsilon", [20, 50])
def test_label_pool_epsilon_within_budget(config, arrays, voted, aggregator, epsilon) -> None:
    labels, facts = label_pool(config, aggregator, epsilon, *voted, arrays)
    queries = config.find_aggregator(aggregator).queries
    assert (labels[queries:] == -1).all()
    assert (labels[:queries] >= 0).sum() == facts["answered"] <= facts["answers"]
    planned = Ledger.from_json(facts["planned_ledger"])
    assert compute_epsilon([planned], 1e-5) == pytest.approx(epsilon, rel=1e-6)
    assert facts["epsilon_rdp"] <= epsilon
    assert compute_epsilon([Ledger.from_json(facts["ledger"])], 1e-5) <= facts["epsilon_rdp"]
    if aggregator == "laplace":
        assert facts["epsilon_exact"] is None is facts["epsilon_sanitized"]
    else:
        assert facts["epsilon_exact"] <= facts["epsilon_rdp"]
        assert facts["sanitized_deviation"] >= 0


def test_label_pool_ignores_true_labels(config, arrays, voted) -> None:
    """The pool's true labels affect the reported accuracies only, not the released labels."""
    labels, facts = label_pool(config, "gaussian", 50, *voted, arrays)
    other = replace(arrays, test_targets=9 - arrays.test_targets)
    same, others = label_pool(config, "gaussian", 50, *voted, other)
    assert (same == labels).all()
    assert others["label_accuracy"] != facts["label_accuracy"]
    truth = arrays.test_targets[POOL][:20]
    assert facts["label_accuracy"] == (labels[:20] == truth).mean()
    votes, truth = voted[0], arrays.test_targets[POOL]
    assert facts["ensemble_accuracy"] == (votes.argmax(axis=1) == truth).mean()
    assert facts["teacher_accuracy"] == pytest.approx(votes[np.arange(30), truth].mean() / 6)


def test_label_pool_noise_differs_per_labelling(config, arrays, voted) -> None:
    votes, facts = voted
    even = np.full_like(votes, 0)
    even[:, :2] = 3
    found = {
        (seed, epsilon): label_pool(
            config, "gaussian", epsilon, even, {**facts, "seed": seed}, arrays
        )
        for seed in (0, 3)
        for epsilon in (20, 50)
    }
    texts = {labels.tobytes() for labels, _ in found.values()}
    assert len(texts) == 4


def test_train_students_uses_labels_only(config, arrays, voted) -> None:
    labels, facts = label_pool(config, "gaussian", 50, *voted, arrays)
    found = train_students(config, labels, facts, arrays)
    assert [row["learning"] for row in found] == ["supervised", "pseudo_labels"]
    assert {row["test_examples"] for row in found} == {30}
    # Neither the training examples nor the pool's labels are read.
    blind = replace(
        arrays,
        train_inputs=arrays.train_inputs * 0,
        test_targets=np.where(np.arange(60) % 2, arrays.test_targets, 0),
    )
    again = train_students(config, labels, {**facts, "data": blind.digest}, blind)
    for row, same in zip(found, again, strict=True):
        assert row["student_accuracy"] == same["student_accuracy"]
    with pytest.raises(OsoError, match="labels: of data"):
        train_students(config, labels, facts, blind)
    unanswered = train_students(config, np.full(30, -1), facts, arrays)
    assert np.isnan([row["student_accuracy"] for row in unanswered]).all()


def test_collect_rows_stores_each_once(config, arrays, voted, tmp_path) -> None:
    parts = []
    for epsilon in (20, 50):
        labels, facts = label_pool(config, "confident", epsilon, *voted, arrays)
        write_labels(tmp_path / "labels.npz", labels, facts)
        read, same = read_labels(tmp_path / "labels.npz")
        assert (read == labels).all()
        assert same == facts
        parts.append(tmp_path / f"{epsilon}.parquet")
        write_rows(parts[-1], train_students(config, read, same, arrays))
    assert collect_rows(parts, tmp_path / "store") == 4
    assert collect_rows(parts[:1], tmp_path / "store") == 4
    other = parse_pate_config(changed(student__epochs=1), "")
    write_rows(parts[1], train_students(other, read, same, arrays))
    assert collect_rows(parts[1:], tmp_path / "store") == 6
    stored = read_rows(tmp_path / "store" / FILE)
    assert not stored.duplicated(KEY).any()
    accounts = account_rows(stored)
    assert len(accounts) == 2
    check_pate_budgets(accounts)
    for name in ("planned", "released"):
        spent = accounts.assign(**{name: 60.0})
        with pytest.raises(OsoError, match=f"{name} epsilon 60; must be <= "):
            check_pate_budgets(spent)


def test_read_rows_other_table_rejected(tmp_path) -> None:
    assert read_rows(tmp_path / "none").empty
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_text("text")
    for name in ("a.parquet", "b.parquet"):
        with pytest.raises(OsoError, match=f"{name}: not a table of PATE's students"):
            read_rows(tmp_path / name)


def test_train_network_seeded_by_name() -> None:
    inputs, targets = torch.rand(20, 1, 14, 14), torch.arange(20) % 10
    training = NetworkTraining(2, 6, 0.1, 1)
    state = torch.get_rng_state()
    first, again, other = (
        train_network("small_cnn", inputs, targets, training, name).state_dict()
        for name in ("a", "a", "b")
    )
    assert torch.equal(torch.get_rng_state(), state)  # of the caller
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize(("rows", "batch_size"), [(20, 6), (20, 5), (3, 6), (1, 1)])
def test_train_network_rate_falls_linearly(rows, batch_size, monkeypatch) -> None:
    rates, step = [], torch.optim.SGD.step

    def noting(self, closure=None):
        rates.append(self.param_groups[0]["lr"])
        return step(self, closure)

    monkeypatch.setattr(torch.optim.SGD, "step", noting)
    inputs, targets = torch.rand(rows, 1, 14, 14), torch.arange(rows) % 10
    train_network("small_cnn", inputs, targets, NetworkTraining(3, batch_size, 0.1), "a")
    assert len(rates) == 3 * math.ceil(rows / batch_size)
    assert rates == pytest.approx([0.1 * (1 - done / len(rates)) for done in range(len(rates))])


def test_train_network_without_rows_predicts() -> None:
    none = train_network(
        "small_cnn",
        torch.zeros(0, 1, 14, 14),
        torch.zeros(0).long(),
        NetworkTraining(2, 6, 0.1),
        "a",
    )
    assert none(torch.zeros(3, 1, 14, 14)).shape == (3, 10)


@pytest.mark.parametrize("most", [0, 1, 3])
def test_shifted_images_stay_in_frame(most) -> None:
    images = torch.zeros(2, 1, 9, 9)
    images[:, :, 4, 4] = 1
    seen = set()
    for _ in range(600):
        moved = _shifted(images, most)
        assert moved.shape == images.shape
        assert moved.sum() == 2
        seen.add(tuple(moved[0, 0].nonzero()[0].tolist()))
    assert seen == {(4 + i, 4 + j) for i in range(-most, most + 1) for j in range(-most, most + 1)}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"teachers__count": [1]}, "teachers.count.0: 1; must be greater than or equal to 2"),
        ({"teachers__count": [7000]}, "datasets.glyphs: 7000 teachers; must be <= 6000 examples"),
        ({"teachers__shard": 2}, "teachers.shard: unknown key"),
        ({"epsilons": []}, "epsilons: "),
        ({"aggregators": {}}, "aggregators: none; must be one or more"),
        ({"aggregators__votes": {}}, "aggregators.votes: unknown key"),
        (
            {"aggregators__laplace": {"queries": 501}},
            "laplace.queries 501; must be <= 500, the pool",
        ),
        (
            {"aggregators__confident__answers": 26},
            "aggregators.confident.answers: 26; must be <= queries, 25",
        ),
        (
            {"aggregators__stable": {"queries": 10, "unstable": 1, "epsilons": [1]}},
            "aggregators.stable at epsilon 1: unstable: 1; a query's winner would need a lead",
        ),
        ({"datasets__mnits": {"model": "cnn"}}, "datasets.mnits: data set 'mnits': unknown"),
        ({"datasets__glyphs": {"model": "cnn"}}, "glyphs: model 'cnn'; must be one of small_cnn"),
        (
            {"datasets__fashion_mnist": {"model": "autoencoder"}},
            "has metric mse; must have classes",
        ),
        ({"delta": 0.001}, "datasets.glyphs: delta 0.001; must be < 1 / 6000 examples"),
        ({"student__learning": ["gan"]}, "student.learning.0: 'gan'"),
    ],
)
def test_parse_pate_config_invalid_rejected(keys, message) -> None:
    with pytest.raises(OsoError) as error:
        parse_pate_config(changed(**keys), "tiny.yaml")
    assert str(error.value).startswith("tiny.yaml: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("mnist", 6, 0, 0), "dataset: 'mnist'; must be one of glyphs"),
        (("glyphs", 7, 0, 0), "teachers: 7; must be one of 6"),
        (("glyphs", 6, 1, 0), "seed: 1; must be one of 0, 3"),
        (("glyphs", 6, 0, 2), "shard: 2; must be one of 0, 1"),
    ],
)
def test_vote_unknown_arguments_rejected(config, arrays, given, message) -> None:
    dataset, teachers, seed, shard = given
    with pytest.raises(OsoError, match=message):
        vote(config, dataset, teachers, seed, arrays, shard)


def test_label_pool_unknown_arguments_rejected(config, arrays, voted) -> None:
    with pytest.raises(OsoError, match="epsilon: 21; must be one of 20, 50 for laplace"):
        label_pool(config, "laplace", 21, *voted, arrays)
    with pytest.raises(OsoError, match="aggregator: 'stable'; must be one of laplace, gauss"):
        label_pool(config, "stable", 20, *voted, arrays)


@pytest.mark.parametrize("name", ["pate.yaml", "ci/pate.yaml"])
def test_load_pate_config_project_files_accepted(repo, name) -> None:
    assert load_pate_config(repo / "config" / name).name in ("pate", "pate_smoke")


def test_load_pate_config_reads_standard_input(config, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(json.dumps(CONFIG)))
    assert load_pate_config(Path("-")) == config
    monkeypatch.setattr("sys.stdin", StringIO(json.dumps(CONFIG | {"seeds": []})))
    with pytest.raises(OsoError, match=r"^configuration: seeds: "):
        load_pate_config(Path("-"))
