"""Table 1: counted, not typed."""

import json
from dataclasses import replace

import pytest

from oso_dp.analysis.side_measurements import read_vocabulary_coverage
from oso_dp.data.catalogue import DATASETS
from oso_dp.errors import OsoError
from oso_dp.reporting.tables.study import QUANTITIES, data_table


def lines(table):
    """(quantity, side) -> data set -> text."""
    shown = table.printed.copy()
    shown[""] = shown[""].where(shown[""] != "").ffill()
    return shown.set_index(["", " "]).T.to_dict()


def test_data_table_sizes_match_paper(store, study):
    store.add(batch_size=512)
    table = data_table(study(store))
    cells = lines(table)
    assert list(table.printed.columns[2:]) == ["AG News", "MNIST", "Fashion-MNIST"]
    assert cells["Model Size", "ours"] == {
        "AG News": "113156",
        "MNIST": "551322",
        "Fashion-MNIST": "48705",
    }
    for quantity in ("Dataset Size", "Batch Size", "Model Size"):
        assert set(cells[quantity, "verdict"].values()) == {"same"}


def test_data_table_shows_used_batch_size(store, study):
    store.add(batch_size=256)
    cells = lines(data_table(study(store)))
    assert cells["Batch Size", "ours"]["MNIST"] == "256"
    assert cells["Batch Size", "verdict"]["MNIST"] == "differs by −256"
    assert cells["Batch Size", "ours"]["AG News"] == "512"  # not run: the configuration's default


@pytest.mark.parametrize("sizes", [(256, 256, 512), (256, 64, 256), (32, 256, 256)])
def test_data_table_most_frequent_batch_size(sizes, store, study):
    """Of several batch sizes and data set sizes, the table shows the most frequent."""
    for seed, size in enumerate(sizes):
        store.add(seed=seed, batch_size=size)
        store.add(dataset="mine", seed=seed, batch_size=size, examples=1000 + size)
    cells = lines(data_table(study(store)))
    assert [cells["Batch Size", "ours"][name] for name in ("MNIST", "mine")] == ["256"] * 2
    assert cells["Dataset Size", "ours"]["mine"] == "1256"


@pytest.mark.parametrize(
    ("models", "sizes"),
    [(["softmax_regression"], "7850"), (["tanh_cnn", "softmax_regression"], "7850, 26010")],
)
def test_data_table_counts_users_and_networks(models, sizes, store, study):
    for model in models:
        store.add(
            dataset="mnist_writers", model=model, unit="user", local="FedSGD", examples=539,
            batch_size=54,
        )  # fmt: skip
    table = data_table(study(store))
    ours = {quantity: lines(table)[quantity, "ours"] for quantity in QUANTITIES.values()}
    assert {name: cells["MNIST by writer"] for name, cells in ours.items()} == {
        "Dataset Size": "539 users",
        "Batch Size": "54",
        "Model Size": sizes,
    }
    assert lines(table)["Model Size", "verdict"]["MNIST by writer"] == "–"


def test_data_table_other_network_size_differs(store, study):
    store.add(model="tanh_cnn")
    cells = lines(data_table(study(store)))
    assert cells["Model Size", "verdict"]["MNIST"] == "differs by −525,312"


def test_data_table_ag_news_subset_column(store, study, tmp_path):
    store.add(dataset="ag_news_partial")
    (tmp_path / "vocabulary_coverage.json").write_text(
        json.dumps({"ag_news_partial": {"known_words": {"train": 0.901, "test": 0.8998}}})
    )
    table = data_table(replace(study(store), known_words=read_vocabulary_coverage(tmp_path)))
    cells = lines(table)
    assert cells["Dataset Size", "ours"]["AG News"] == "120000"
    mine = {key: values["AG News subset"] for key, values in cells.items()}
    assert mine["Dataset Size", "ours"] == str(DATASETS["ag_news_partial"].examples)
    assert (mine["Dataset Size", "paper"], mine["Dataset Size", "verdict"]) == ("–", "–")
    assert mine["Words with a vector, train", "ours"] == "90.1 %"
    assert mine["Words with a vector, test", "ours"] == "90.0 %"
    assert cells["Words with a vector, test", "ours"]["AG News"] == "–"


def test_read_vocabulary_coverage_missing_file_empty(tmp_path):
    assert read_vocabulary_coverage(tmp_path) == {}


@pytest.mark.parametrize(
    ("content", "culprit"),
    [
        ("{", "must map each data set to an object"),
        ("[]", "must map each data set to an object"),
        ('{"ag_news": {"known_words": {"train": "many"}}}', "must map each data set to an object"),
        ('{"ag_news": {"known_words": {"train": 90.1}}}', "ag_news, known_words train: 90.1"),
    ],
)
def test_read_vocabulary_coverage_invalid_file_raises(tmp_path, content, culprit):
    (tmp_path / "vocabulary_coverage.json").write_text(content)
    with pytest.raises(OsoError) as error:
        read_vocabulary_coverage(tmp_path)
    assert str(tmp_path / "vocabulary_coverage.json") in str(error.value)
    assert culprit in str(error.value)
    assert "\n" not in str(error.value)
