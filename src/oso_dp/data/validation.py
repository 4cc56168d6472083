"""Prepared data held against the catalogue: the study has planned with its numbers."""

from pathlib import Path
from typing import Any

from oso_dp.data.arrays import Arrays, load_arrays
from oso_dp.data.catalogue import DIMENSIONS, DatasetInfo, dataset_info
from oso_dp.data.plugins import USER_MODEL, make_dataset_info
from oso_dp.errors import OsoError


def load_prepared(path: Path, dataset: str, preparation: dict[str, Any]) -> Arrays:
    """The data file's arrays, which are of this data set, prepared in this way, and whole.

    preparation: as the file's provenance has it; empty for images. OsoError names the file and what
    it holds instead.
    """
    arrays, provenance = load_arrays(path)
    check_provenance(str(path), provenance, dataset, preparation)
    try:
        is_user_data = "data_version" in preparation
        info = make_dataset_info(dataset, USER_MODEL) if is_user_data else dataset_info(dataset)
        check_arrays(arrays, info, preparation)
    except OsoError as error:
        raise OsoError(f"{path}: {error}; remove it, and prepare the data set again") from None
    return arrays


def check_provenance(name: str, provenance: dict[str, Any], dataset: str, want: dict) -> None:
    """OsoError unless a data file with this provenance holds the data set, prepared as wanted."""
    if provenance.get("dataset") != dataset:
        raise OsoError(f"{name}: holds data set {provenance.get('dataset')!r}, not {dataset!r}")
    stored = provenance.get("preparation", {})  # images' files of before there was a choice
    if stored != want:
        raise OsoError(f"{name}: prepared with {stored or 'no choice'}, not with {want or 'none'}")


def check_arrays(arrays: Arrays, info: DatasetInfo, preparation: dict[str, Any]) -> None:
    """OsoError unless the arrays are of the catalogue's sizes, and labels and pixels in range.

    Of a user's own data set: of the declared sizes, and labels below the declared number.
    """
    if info.version is not None:
        _check_user_arrays(arrays, info)
        return
    shape = (preparation["words"] * DIMENSIONS,) if preparation else info.input_shape
    targets = (arrays.train_targets, arrays.test_targets)
    counts = {
        "training examples": (len(arrays.train_targets), info.examples),
        "test examples": (len(arrays.test_targets), info.test_examples),
        "input shape": (arrays.train_inputs.shape[1:], shape),
        "smallest target": (min(int(t.min()) for t in targets), 0),
        "largest target": (max(int(t.max()) for t in targets), info.classes - 1),
    }
    for quantity, (is_, expected) in counts.items():
        if is_ != expected:
            raise OsoError(f"{info.name}: {quantity} is {is_}, the catalogue says {expected}")
    if info.words:
        return
    for part in (arrays.train_inputs, arrays.test_inputs):
        low, high = float(part.min()), float(part.max())
        if low < 0 or high > 1:
            raise OsoError(f"{info.name}: pixels from {low:g} to {high:g}; must be from 0 to 1")


def _check_user_arrays(arrays: Arrays, info: DatasetInfo) -> None:
    sizes = {
        "examples": (len(arrays.train_targets), info.examples),
        "test_examples": (len(arrays.test_targets), info.test_examples),
        "input_shape": (arrays.train_inputs.shape[1:], info.input_shape),
    }
    for name, (is_, declared) in sizes.items():
        if is_ != declared:
            raise OsoError(f"data set {info.name!r}: {name} is {is_}, declared is {declared}")
    if info.metric != "accuracy":
        return
    for part, targets in {"train": arrays.train_targets, "test": arrays.test_targets}.items():
        least, most = int(targets.min()), int(targets.max())
        if least < 0 or most >= info.classes:
            raise OsoError(
                f"data set {info.name!r}: {part}_targets from {least} to {most}; with the declared "
                f"classes {info.classes} they must be 0 to {info.classes - 1}"
            )
