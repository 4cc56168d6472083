"""MNIST with users: its writers, and users that are dealt."""

import dataclasses
import gzip
import hashlib

import numpy as np
import pytest

from oso_dp.data import mnist, prepare_dataset
from oso_dp.data.arrays import Arrays, load_arrays
from oso_dp.data.catalogue import DATASETS
from oso_dp.data.download import DatasetSource, SourceFile
from oso_dp.data.validation import load_prepared
from oso_dp.errors import OsoError

from .conftest import encode_idx

WRITERS = [7, 3, 7, 9, 3]  # of the tiny source's training digits


@pytest.fixture
def folder(tiny, monkeypatch, tmp_path):
    """Tiny sources in MNIST's and QMNIST's place, in one folder."""
    monkeypatch.setattr(mnist.build, "__defaults__", (tiny.source,))
    for name, users in (("mnist_writers", 3), ("mnist_dealt", 2)):
        info = dataclasses.replace(
            DATASETS[name], examples=5, test_examples=2, input_shape=(1, 4, 3), users=users
        )
        monkeypatch.setitem(DATASETS, name, info)
    return tiny.write(tmp_path / "raw")


def write_table(folder, monkeypatch, labels, writers) -> None:
    table = np.zeros((len(labels), 8), dtype=np.int32)
    table[:, 0], table[:, 2] = labels, writers
    content = encode_idx(table)
    (folder / "writers.gz").write_bytes(gzip.compress(content))
    file = SourceFile("writers", len(content), hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(mnist, "QMNIST", DatasetSource("qmnist", (file,), ()))


def labels_of(folder, tmp_path) -> list[int]:
    prepare_dataset("mnist_dealt", tmp_path / "dealt.npz", folder)
    return load_arrays(tmp_path / "dealt.npz")[0].train_targets.tolist()


def test_mnist_writers_users_kept_in_file(folder, monkeypatch, tmp_path) -> None:
    labels = labels_of(folder, tmp_path)
    write_table(folder, monkeypatch, labels, WRITERS)
    provenance = prepare_dataset("mnist_writers", tmp_path / "x.npz", folder)
    arrays = load_prepared(tmp_path / "x.npz", "mnist_writers", {})
    assert arrays.train_users.tolist() == WRITERS
    assert "writers" in provenance["files"]
    # They are part of the digest: rows of another writer are other data.
    other = dataclasses.replace(arrays, train_users=arrays.train_users[::-1].copy())
    none = dataclasses.replace(arrays, train_users=None)
    assert len({one.digest for one in (arrays, other, none)}) == 3


def test_mnist_writers_mismatched_table_rejected(folder, monkeypatch, tmp_path) -> None:
    labels = labels_of(folder, tmp_path)
    write_table(folder, monkeypatch, labels[::-1], WRITERS)
    with pytest.raises(OsoError, match="its labels are not MNIST's"):
        prepare_dataset("mnist_writers", tmp_path / "x.npz", folder)
    write_table(folder, monkeypatch, labels, [1] * 5)
    with pytest.raises(OsoError, match="users: 1; must be 3"):
        prepare_dataset("mnist_writers", tmp_path / "x.npz", folder)
    write_table(folder, monkeypatch, labels[:-1], WRITERS[:-1])
    with pytest.raises(OsoError, match=r"shape \[4, 8\]; must be"):
        prepare_dataset("mnist_writers", tmp_path / "x.npz", folder)
    assert not (tmp_path / "x.npz").exists()


def test_load_prepared_other_dataset_rejected(folder, tmp_path) -> None:
    prepare_dataset("mnist_dealt", tmp_path / "x.npz", folder)
    with pytest.raises(OsoError, match="mnist_writers"):
        load_prepared(tmp_path / "x.npz", "mnist_writers", {})


@pytest.mark.parametrize("users", [[1, 2], [1.0] * 5, [[1]] * 5])
def test_arrays_invalid_user_ids_rejected(users) -> None:
    inputs, targets = np.zeros((5, 2), dtype=np.float32), np.zeros(5, dtype=np.int64)
    with pytest.raises(OsoError, match=r"train_users: .*; must be int64 \[5\], one id for each"):
        Arrays(inputs, targets, inputs, targets, np.array(users))


def test_mnist_writers_official_counts_match(shared, tmp_path) -> None:
    prepare_dataset("mnist_writers", tmp_path / "x.npz", shared / "data")
    arrays = load_prepared(tmp_path / "x.npz", "mnist_writers", {})
    (tmp_path / "x.npz").unlink()  # 220 MB
    counts = np.unique(arrays.train_users, return_counts=True)[1]
    assert (len(counts), counts.min(), counts.max(), np.median(counts)) == (539, 19, 131, 116)


def test_mnist_dealt_users_have_ten_digits(shared, tmp_path) -> None:
    prepare_dataset("mnist_dealt", tmp_path / "x.npz", shared / "data")
    arrays = load_prepared(tmp_path / "x.npz", "mnist_dealt", {})
    (tmp_path / "x.npz").unlink()
    counts = np.unique(arrays.train_users, return_counts=True)[1]
    assert (len(counts), counts.min(), counts.max()) == (6000, 10, 10)
    own = [len({*arrays.train_targets[arrays.train_users == user]}) for user in range(50)]
    assert 5 < np.mean(own) < 8  # 6.5 distinct digits among ten
