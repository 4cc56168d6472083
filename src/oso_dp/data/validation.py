"""Validation of prepared data against the catalogue, from whose numbers the study was planned."""

from pathlib import Path
from typing import Any

import numpy as np

from oso_dp.data.arrays import Arrays, load_arrays
from oso_dp.data.catalogue import DIMENSIONS, DatasetSpec
from oso_dp.data.plugins import USER_MODEL, make_dataset_info
from oso_dp.errors import OsoError


def load_prepared(path: Path, dataset: str, preparation: dict[str, Any]) -> Arrays:
    """Load a data file's arrays; OsoError unless they are of this data set and preparation.

    `preparation`: as in the file's provenance; empty for images.
    """
    arrays, provenance = load_arrays(path)
    check_provenance(str(path), provenance, dataset, preparation)
    is_user_data = "data_version" in preparation
    info = make_dataset_info(dataset, USER_MODEL if is_user_data else "")
    try:
        check_arrays(arrays, info, preparation)
    except OsoError as error:
        raise OsoError(f"{path}: {error}; remove it, and prepare the data set again") from None
    return arrays


def check_provenance(name: str, provenance: dict[str, Any], dataset: str, want: dict) -> None:
    """OsoError unless the provenance has this data set and preparation."""
    if provenance.get("dataset") != dataset:
        raise OsoError(f"{name}: data set {provenance.get('dataset')!r}; must be {dataset!r}")
    stored = provenance.get("preparation", {})  # older files of images have none
    if stored != want:
        raise OsoError(
            f"{name}: prepared with options {stored or 'none'}; must be {want or 'none'}"
        )


def check_arrays(arrays: Arrays, info: DatasetSpec, preparation: dict[str, Any]) -> None:
    """OsoError unless sizes are as in the catalogue, and labels and pixels are in range.

    For a user-defined data set, sizes and labels are checked against its declaration.
    """
    if info.version is not None:
        _check_user_arrays(arrays, info)
        return
    shape = (preparation["words"] * DIMENSIONS,) if preparation else info.input_shape
    targets = (arrays.train_targets, arrays.test_targets)
    counts: dict[str, tuple[Any, Any]] = {
        "training examples": (len(arrays.train_targets), info.examples),
        "test examples": (len(arrays.test_targets), info.test_examples),
        "input shape": (arrays.train_inputs.shape[1:], shape),
        "smallest target": (min(int(t.min()) for t in targets), 0),
        "largest target": (max(int(t.max()) for t in targets), info.classes - 1),
    }
    if arrays.train_users is not None or info.users is not None:
        counts["users"] = _count_users(arrays), info.users
    for quantity, (found, expected) in counts.items():
        if found != expected:
            raise OsoError(f"{info.name}: {quantity}: {found}; must be {expected}")
    if info.words:
        return
    for inputs in (arrays.train_inputs, arrays.test_inputs):
        low, high = float(inputs.min()), float(inputs.max())
        if low < 0 or high > 1:
            raise OsoError(f"{info.name}: pixels from {low:g} to {high:g}; must be in [0, 1]")


def _count_users(arrays: Arrays) -> int | None:
    return None if arrays.train_users is None else len(np.unique(arrays.train_users))


def _check_user_arrays(arrays: Arrays, info: DatasetSpec) -> None:
    # Of users the number is public, and not the number of their rows.
    rows = info.examples if info.users is not None else len(arrays.train_targets)
    sizes: dict[str, tuple[Any, Any]] = {
        "examples": (rows, info.examples),
        "test_examples": (len(arrays.test_targets), info.test_examples),
        "input_shape": (arrays.train_inputs.shape[1:], info.input_shape),
        "users": (_count_users(arrays), info.users),
    }
    for name, (found, declared) in sizes.items():
        if found != declared:
            raise OsoError(f"data set {info.name!r}: {name}: {found}; declared as {declared}")
    if info.metric != "accuracy":
        return
    for split, targets in {"train": arrays.train_targets, "test": arrays.test_targets}.items():
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= info.classes:
            raise OsoError(
                f"data set {info.name!r}: {split}_targets from {low} to {high}; must be 0 to "
                f"{info.classes - 1}, as classes is declared as {info.classes}"
            )
