"""A user's own data set: offered by an installed package, and held to what it declares."""

import sys

import numpy as np
import pytest

from oso_dp.data import prepare_dataset
from oso_dp.data.arrays import load_arrays
from oso_dp.data.plugins import find_plugin, make_dataset_info
from oso_dp.data.validation import load_prepared
from oso_dp.errors import OsoError

KNOWN = {"data_version": "1"}


def test_user_dataset_prepared_and_loaded(offer, tmp_path) -> None:
    offer()
    made = prepare_dataset("patients", tmp_path / "x.npz")
    assert made == {"dataset": "patients", "preparation": KNOWN}
    arrays = load_prepared(tmp_path / "x.npz", "patients", KNOWN)
    assert arrays.digest == find_plugin("patients").load().digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"examples": "61"}, "examples: 60; declared as 61"),
        ({"input_shape": "(2, 2)"}, r"input_shape: \(4,\); declared as \(2, 2\)"),
        ({"classes": "1"}, "train_targets from 0 to 1; must be 0 to 0"),
        ({"load": "lambda: arrays(y=y[:70])"}, "test_inputs: 20 examples, test_targets: 10"),
        ({"load": "lambda: arrays(x=x + [0, 0, 0, np.nan])"}, "float64"),
        ({"load": "lambda: arrays(x=x * np.float32('nan'))"}, "contains NaN or infinity"),
        ({"load": "lambda: 3"}, "returned int; must be oso_dp.Arrays"),
        ({"load": "lambda: 1 / 0"}, r"load\(\) failed \(ZeroDivisionError: division by zero\)"),
        (
            {"load": "lambda: open('x.csv')"},
            r"FileNotFoundError: No such file or directory: x\.csv",
        ),
        ({"public": "'no'"}, "public: 'no'; must be True or False"),
        ({"version": "1"}, "version: 1; must be a string"),
        ({"metric": "'auc'"}, "metric: 'auc'; must be one of accuracy, mse"),
        ({"model": "None"}, "model: must be a function"),
        ({"colour": "1"}, "cannot be loaded"),
    ],
)
def test_user_dataset_wrong_declaration_rejected(offer, tmp_path, changes, message) -> None:
    offer(**changes)
    with pytest.raises(OsoError, match=message) as raised:
        prepare_dataset("patients", tmp_path / "x.npz")
    assert "data set 'patients'" in str(raised.value)
    assert not (tmp_path / "x.npz").exists()


def test_user_dataset_other_version_rejected(offer, tmp_path) -> None:
    offer(version="'2'")
    with pytest.raises(OsoError, match="version '1' required, but '2' is installed"):
        prepare_dataset("patients", tmp_path / "x.npz", data_version="1")


def test_user_dataset_older_file_rejected(offer, tmp_path) -> None:
    offer()
    prepare_dataset("patients", tmp_path / "x.npz")
    offer(version="'2'")
    with pytest.raises(OsoError, match=r"prepared with options \{'data_version': '1'\}"):
        load_prepared(tmp_path / "x.npz", "patients", {"data_version": "2"})


def test_make_dataset_info_invalid_name_rejected(offer, tmp_path) -> None:
    offer("mnist")
    with pytest.raises(OsoError, match="built in"):
        make_dataset_info("mnist", "own")
    with pytest.raises(OsoError, match="no installed package provides"):
        make_dataset_info("clients", "own")
    offer("../x")
    with pytest.raises(OsoError, match="must be a name of at most 40 lower-case letters"):
        make_dataset_info("../x", "own")
    offer(source="data_set = 3\n")
    with pytest.raises(OsoError, match=r"int; must be an oso_dp\.UserDataset"):
        make_dataset_info("patients", "own")


def test_make_dataset_info_ambiguous_name_rejected(offer, monkeypatch) -> None:
    first = offer()
    offer()
    monkeypatch.setattr(sys, "path", [str(first), *sys.path])
    with pytest.raises(OsoError, match="several packages provide it"):
        make_dataset_info("patients", "own")


def test_user_dataset_arrays_stored_unscaled(offer, tmp_path) -> None:
    """Scaling or clipping by statistics of protected data would be a release."""
    offer(load="lambda: arrays(x=1000 * x)")
    prepare_dataset("patients", tmp_path / "x.npz")
    arrays, _ = load_arrays(tmp_path / "x.npz")
    assert np.abs(arrays.train_inputs).max() > 100
