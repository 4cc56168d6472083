"""What training takes is the data set that was planned for, prepared as planned, and whole."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oso_dp.data import prepare_dataset
from oso_dp.data.arrays import load_arrays, save_arrays
from oso_dp.data.validation import check_provenance, load_prepared
from oso_dp.errors import OsoError


def test_a_file_that_was_prepared_otherwise_is_refused() -> None:
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
        ("train_targets", lambda a: set_first(a, -1), "smallest target: -1"),
        ("test_targets", lambda a: set_first(a, 10), "largest target: 10"),
        ("train_inputs", lambda a: a * 255, "pixels from 0 to 255"),
        ("train_inputs", lambda a: set_first(a, -0.5), "pixels from -0.5 to 1"),
        ("test_inputs", lambda a: a * 255, "pixels from 0 to 255"),
        ("test_inputs", lambda a: set_first(a, -0.5), "pixels from -0.5 to 1"),
        ("both_inputs", lambda a: a.reshape(len(a), -1), r"input shape: \(196,\)"),
        ("train", lambda a: a[:-1], "training examples: 5999"),
        ("test", lambda a: a[:500], "test examples: 500"),
    ],
)
def test_values_that_the_catalogue_does_not_know_are_refused(
    name, change, says, glyphs, tmp_path
) -> None:
    arrays, provenance = load_arrays(glyphs)
    both = {"both_inputs": ("train_inputs", "test_inputs")}
    names = both.get(name) or ([name] if "_" in name else [f"{name}_inputs", f"{name}_targets"])
    changed = {one: np.ascontiguousarray(change(getattr(arrays, one))) for one in names}
    path = tmp_path / "glyphs.npz"
    save_arrays(path, replace(arrays, **changed), provenance)
    with pytest.raises(OsoError, match=rf"glyphs\.npz: glyphs: {says}.*remove it, and prepare"):
        load_prepared(path, "glyphs", {})
    assert len(load_prepared(glyphs, "glyphs", {}).test_targets) == 1000
