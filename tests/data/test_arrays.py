"""Prepared data files: what is written is read, and nothing else."""

import dataclasses
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oso_dp.data import arrays as arrays_module
from oso_dp.data import prepare_dataset
from oso_dp.data.arrays import Arrays, load_arrays, save_arrays
from oso_dp.data.validation import check_provenance, load_prepared
from oso_dp.errors import OsoError

NAMES = ["train_inputs", "train_targets", "test_inputs", "test_targets"]
PROVENANCE = {"files": {"a": {"sha256": "00"}}, "title": "Ziffern – 数字", "seed": 3}


def make(train=5, test=2, shape=(1, 4, 3)):
    rng = np.random.default_rng(1)
    return Arrays(
        rng.random((train, *shape), dtype=np.float32),
        rng.integers(10, size=train),
        rng.random((test, *shape), dtype=np.float32),
        rng.integers(10, size=test),
    )


def assert_equal(one, other):
    for name in NAMES:
        assert getattr(one, name).dtype == getattr(other, name).dtype
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_arrays_changed_content_changes_digest():
    arrays = make()
    reshaped = {
        name: np.swapaxes(getattr(arrays, name), 2, 3).reshape(-1, 1, 4, 3) for name in NAMES[::2]
    }
    narrow = {name: getattr(arrays, name).reshape(-1, 1, 3, 4) for name in NAMES[::2]}
    moved = Arrays(
        *(np.concatenate([arrays.train_inputs, arrays.test_inputs[:1]]), np.arange(6)),
        *(arrays.test_inputs[1:], np.arange(1)),
    )
    others = [dataclasses.replace(arrays, **new) for new in (reshaped, narrow)]
    for name in NAMES:
        changed = getattr(arrays, name).copy()
        changed[-1] += 1
        others.append(dataclasses.replace(arrays, **{name: changed}))
    digests = [one.digest for one in (arrays, moved, *others)]
    assert len(set(digests)) == len(digests)
    assert make().digest == arrays.digest


@pytest.mark.parametrize("shape", [(1, 4, 3), (7,)])
def test_save_arrays_loaded_unchanged(tmp_path, shape):
    path, arrays = tmp_path / "new" / "x.data", make(shape=shape)
    save_arrays(path, arrays, PROVENANCE)
    loaded, provenance = load_arrays(path)
    assert_equal(loaded, arrays)
    assert provenance == PROVENANCE
    assert list(path.parent.iterdir()) == [path]


def test_save_arrays_failure_keeps_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    save_arrays(path, make(), PROVENANCE)
    before = path.read_bytes()

    def full(handle, **entries):
        handle.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrays_module.np, "savez", full)
    with pytest.raises(OsoError, match=rf"^{path}: cannot write .*No space left"):
        save_arrays(path, make(train=9), {})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_inputs": np.zeros((5, 1, 4, 3))}, "train_inputs: float64"),
        ({"test_targets": np.zeros(2, np.int32)}, "test_targets: int32"),
        ({"train_targets": np.zeros(4, np.int64)}, "5 examples, train_targets: 4"),
        ({"test_inputs": np.zeros((2, 1, 4, 4), np.float32)}, "train_inputs: shape"),
        (
            {"train_inputs": np.full((5, 1, 4, 3), np.inf, np.float32)},
            "train_inputs: contains NaN or infinity",
        ),
        (
            {"test_inputs": np.zeros((0, 1, 4, 3), np.float32), "test_targets": np.zeros(0, int)},
            "must be equal and >= 1",
        ),
    ],
)
def test_arrays_wrong_shape_or_type_rejected(tmp_path, change, message):
    good = {name: getattr(make(), name) for name in NAMES}
    with pytest.raises(OsoError, match=message):
        dataclasses.replace(make(), **change)
    path = tmp_path / "x.npz"
    np.savez(path, **(good | change), provenance=np.array("{}"))
    with pytest.raises(OsoError, match=f"^{path}: damaged data file .*{message}"):
        load_arrays(path)


@pytest.mark.parametrize("provenance", ["[1]", "{", ""])
def test_load_arrays_invalid_provenance_rejected(tmp_path, provenance):
    path = tmp_path / "x.npz"
    np.savez(path, **{name: getattr(make(), name) for name in NAMES}, provenance=provenance)
    with pytest.raises(OsoError, match=f"^{path}: damaged data file"):
        load_arrays(path)


def test_load_arrays_foreign_file_rejected(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").write_bytes(b"")
    for path in list(tmp_path.iterdir()):
        before = path.read_bytes()
        with pytest.raises(OsoError, match=f"^{path}: truncated, or not a data file"):
            load_arrays(path)
        assert path.read_bytes() == before


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    save_arrays(folder / "x.npz", make(), PROVENANCE)
    return folder, (folder / "x.npz").read_bytes()


@settings(max_examples=60)
@given(data=st.data())
def test_load_arrays_truncated_file_rejected(saved, data):
    folder, content = saved
    path = folder / "cut.npz"
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(OsoError, match=f"^{path}: ") as caught:
        load_arrays(path)
    assert "\n" not in str(caught.value)


def test_load_arrays_understated_shape_rejected(tmp_path):
    path = tmp_path / "x.npz"
    save_arrays(path, make(train=2000, test=2000), {})  # more than is read ahead
    content = path.read_bytes()
    assert content.count(b" 4, 3)") == 2  # the inputs' shapes, in training and test
    path.write_bytes(content.replace(b" 4, 3)", b" 4, 2)"))
    with pytest.raises(OsoError, match=f"^{path}: damaged data file"):
        load_arrays(path)


@settings(max_examples=300)
@given(data=st.data())
def test_load_arrays_flipped_bit_not_misread(saved, data):
    folder, content = saved
    path, flipped = folder / "flipped.npz", bytearray(content)
    flipped[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(flipped)
    refusal, loaded = None, None
    try:
        loaded = load_arrays(path)
    except OsoError as error:
        refusal = str(error)
    if loaded is None:
        assert refusal.startswith(f"{path}: ")
        assert "\n" not in refusal
    else:  # a bit without meaning, such as one of a time stamp
        assert_equal(loaded[0], make())
        assert loaded[1] == PROVENANCE


def test_load_arrays_out_of_memory_reported(tmp_path, monkeypatch):
    path = tmp_path / "data.npz"
    save_arrays(path, make(), {})

    def too_large(_):
        raise MemoryError

    monkeypatch.setattr(arrays_module, "_entries", too_large)
    with pytest.raises(OsoError, match=r"data\.npz: not enough memory for its arrays$"):
        load_arrays(path)


def rewritten(path: Path, provenance: dict | None = None, **changed) -> Path:
    """The file with other arrays, written by numpy, as a user's script would; else as it was."""
    with np.load(path) as file:
        entries = {name: file[name] for name in file.files} | changed
    if provenance is not None:
        entries["provenance"] = np.array(json.dumps(provenance))
    np.savez(path, **entries)
    return path


@pytest.mark.parametrize("name", ["train_targets", "test_targets", "train_inputs", "test_inputs"])
def test_load_arrays_digest_mismatch_rejected(name, tmp_path) -> None:
    path = tmp_path / "x.npz"
    arrays = make(train=9, test=9)
    save_arrays(path, arrays, PROVENANCE)
    assert load_arrays(rewritten(path))[1] == PROVENANCE
    values = getattr(arrays, name)
    other = values[::-1].copy() if name.endswith("inputs") else (values + 1) % 10
    with pytest.raises(
        OsoError, match=r"x\.npz: .*do not match the digest.*prepare the data set again"
    ):
        load_arrays(rewritten(path, **{name: other}))


def test_load_arrays_without_digest_warns(tmp_path, caplog) -> None:
    path = tmp_path / "x.npz"
    save_arrays(path, make(), PROVENANCE)
    load_arrays(path)
    assert not caplog.records
    assert load_arrays(rewritten(path, PROVENANCE))[1] == PROVENANCE
    (record,) = caplog.records
    assert "x.npz: no digest (written by an older version)" in record.getMessage()


def test_check_provenance_other_preparation_rejected() -> None:
    want = {"words": 15, "oov_words": "zeros"}
    check_provenance("x.npz", {"dataset": "ag_news", "preparation": want}, "ag_news", want)
    check_provenance("x.npz", {"dataset": "mnist"}, "mnist", {})
    for dataset, words in (("ag_news_partial", 15), ("ag_news", 25)):
        found = {"dataset": dataset, "preparation": {**want, "words": words}}
        with pytest.raises(OsoError, match=r"^x\.npz: (data set|prepared with)"):
            check_provenance("x.npz", found, "ag_news", want)
    for dataset, asked in (("ag_news", want), ("mine", {"data_version": "1"})):
        with pytest.raises(OsoError, match="prepared with options none; must be"):
            check_provenance("x.npz", {"dataset": dataset}, dataset, asked)


@pytest.fixture(scope="module")
def glyphs(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("prepared") / "glyphs.npz"
    prepare_dataset("glyphs", path)
    return path


def set_first(array, value):
    changed = array.copy()
    changed.reshape(-1)[0] = value
    return changed


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("train_targets", lambda a: set_first(a, 10), "largest target: 10"),
        ("test_targets", lambda a: set_first(a, -1), "smallest target: -1"),
        ("train_inputs", lambda a: a * 255, "pixels from 0 to 255"),
        ("train_inputs", lambda a: set_first(a, -0.5), "pixels from -0.5 to 1"),
        ("both_inputs", lambda a: a.reshape(len(a), -1), r"input shape: \(196,\)"),
        ("train", lambda a: a[:-1], "training examples: 5999"),
    ],
)
def test_load_prepared_catalogue_mismatch_rejected(name, change, says, glyphs, tmp_path) -> None:
    arrays, provenance = load_arrays(glyphs)
    both = {"both_inputs": ("train_inputs", "test_inputs")}
    names = both.get(name) or ([name] if "_" in name else [f"{name}_inputs", f"{name}_targets"])
    changed = {one: np.ascontiguousarray(change(getattr(arrays, one))) for one in names}
    path = tmp_path / "glyphs.npz"
    save_arrays(path, replace(arrays, **changed), provenance)
    with pytest.raises(OsoError, match=rf"glyphs\.npz: glyphs: {says}.*remove it, and prepare"):
        load_prepared(path, "glyphs", {})
    assert len(load_prepared(glyphs, "glyphs", {}).test_targets) == 1000
