"""What a report shows of prepared texts goes into the store; paths of a machine do not."""

import json

import numpy as np
import pytest

from oso_dp.data.arrays import Arrays, save_arrays
from oso_dp.results.vocabulary_coverage import COVERAGE_FILE, store_coverage


@pytest.fixture
def prepared(tmp_path):
    """Write a data file with this provenance."""

    def write(name, **provenance):
        inputs, targets = np.zeros((1, 3), np.float32), np.zeros(1, np.int64)
        path = tmp_path / f"{name}.npz"
        save_arrays(path, Arrays(inputs, targets, inputs, targets), provenance)
        return path

    return write


def texts(dataset, share):
    origin = "/home/me/glove.6B.50d.txt"
    return {
        "dataset": dataset,
        "files": {"train.csv": {"origin": "/home/me/train.csv"}},
        "known_words": {"train": share, "test": share},
        "preparation": {"words": 15, "oov_words": "zeros"},
        "vectors": {"origin": origin, "words": 4, "sha256": "00", "complete": False},
    }


def test_store_coverage_merges_with_stored(prepared, tmp_path) -> None:
    store = tmp_path / "store"
    files = [prepared("a", **texts("ag_news", 0.9)), prepared("m", dataset="mnist")]
    store_coverage(store, files)
    store_coverage(store, [prepared("b", **texts("ag_news_partial", 0.8))])
    stored = json.loads((store / COVERAGE_FILE).read_text())
    assert {name: facts["known_words"]["test"] for name, facts in stored.items()} == {
        "ag_news": 0.9,
        "ag_news_partial": 0.8,
    }
    assert stored["ag_news"]["vectors"] == {"words": 4, "sha256": "00", "complete": False}
    assert "/home" not in (store / COVERAGE_FILE).read_text()


def test_store_coverage_omits_training_share(prepared, tmp_path) -> None:
    facts = texts("ag_news", 0.9)
    facts["known_words"]["train"] = 0.123456
    store_coverage(tmp_path, [prepared("a", **facts)])
    assert json.loads((tmp_path / COVERAGE_FILE).read_text())["ag_news"]["known_words"] == {
        "test": 0.9
    }


@pytest.mark.parametrize("order", [1, -1])
def test_store_coverage_several_datasets_stored(prepared, tmp_path, order: int) -> None:
    shares = {"ag_news": 0.9, "ag_news_partial": 0.8}
    files = [prepared(name, **texts(name, share)) for name, share in shares.items()]
    store_coverage(tmp_path, [files[0], prepared("m", dataset="mnist"), files[1]][::order])
    stored = json.loads((tmp_path / COVERAGE_FILE).read_text())
    assert {name: facts["known_words"]["test"] for name, facts in stored.items()} == shares
