"""Detection of repeated examples in a data set, for which epsilon would not hold.

An example that appears k times changes each sum by up to k times the threshold. Only the structure
of torch's classes is checked: the indices of `Subset`, and the data sets in `ConcatDataset` and
`StackDataset`, at any depth. No example is fetched: refusing equal examples would reveal them.
"""

import operator
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset

from oso_dp.errors import OsoError

_STRIDE = 2**40  # above any number of examples


def check_no_repeats(data: Any, argument: str) -> None:
    """Check that no example is in a data set twice, by the structure of the data set alone.

    Args:
        data: any data set; one that is not of torch's composite classes passes.
        argument: the name of the caller's argument, for the message.

    Raises:
        OsoError: if an example is in it twice.
    """
    if not isinstance(data, Subset | ConcatDataset | StackDataset):
        return
    try:
        origins = _origins(data, np.arange(len(data)), {})
    except Exception as error:  # a data set's own code may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise OsoError(
            f"{argument}: cannot tell whether a Subset or ConcatDataset has an example twice "
            f"({reason}); its indices must be those of its data set, integers or hashable"
        ) from error
    if len(np.unique(origins)) < len(origins):
        raise OsoError(
            f"{argument}: an example appears twice in a Subset or ConcatDataset; epsilon holds for "
            "examples that appear once, so remove repetitions"
        )


def _origins(data: Any, indices: np.ndarray, ids: dict[Any, int]) -> np.ndarray:
    """An integer per index that is equal for indices of the same example.

    indices: int64, or objects if a data set has other keys. ids: the integers assigned so far.
    """
    if indices.dtype != object and indices.size and indices.min() < 0:
        indices = np.where(indices < 0, indices + len(data), indices)
    if isinstance(data, Subset):
        return _origins(data.dataset, _as_indices(data.indices)[indices], ids)
    if isinstance(data, ConcatDataset):
        ends = np.asarray(data.cumulative_sizes)
        origins, owners = np.empty_like(indices), np.searchsorted(ends, indices, side="right")
        order = np.argsort(owners, kind="stable")
        distinct, begins = np.unique(owners[order], return_index=True)
        for owner, rows in zip(distinct, np.split(order, begins[1:]), strict=True):
            start = ends[owner - 1] if owner else 0
            origins[rows] = _origins(data.datasets[owner], indices[rows] - start, ids)
        return origins
    if isinstance(data, StackDataset):  # equal if all stacked examples are equal
        stacked: Any = data.datasets
        inner = stacked.values() if isinstance(stacked, dict) else stacked
        columns = np.stack([_origins(dataset, indices, ids) for dataset in inner], axis=1)
        return np.array([_origin_of(tuple(row), ids) for row in columns.tolist()], dtype=np.int64)
    tensors = data.tensors if type(data) is TensorDataset else (data,)
    leaf = tuple(map(id, tensors))
    first = _id_of(leaf, ids) * _STRIDE
    if indices.dtype != object:
        return first + indices
    keys = [key + len(data) if isinstance(key, int) and key < 0 else key for key in indices]
    found = [first + k if isinstance(k, int) else _origin_of((leaf, k), ids) for k in keys]
    return np.array(found, dtype=np.int64)


def _id_of(key: Any, ids: dict[Any, int]) -> int:
    return ids.setdefault(key, len(ids))


def _origin_of(key: Any, ids: dict[Any, int]) -> int:
    """Below zero, unlike those of indices that are integers."""
    return -1 - _id_of(key, ids)


def _as_indices(indices: Any) -> np.ndarray:
    """int64, or objects if some are no whole numbers (names of files, for example)."""
    values = np.asarray(indices.cpu() if torch.is_tensor(indices) else indices)
    if values.dtype.kind in "biu":
        return values.astype(np.int64, copy=False).reshape(len(values))
    keys = [_as_key(index) for index in indices]
    if all(isinstance(key, int) for key in keys):
        return np.array(keys, dtype=np.int64)
    objects = np.empty(len(keys), dtype=object)
    for place, key in enumerate(keys):  # an assignment of all would unpack tuples
        objects[place] = key
    return objects


def _as_key(index: Any) -> Any:
    """An int for a whole number, which a data set may take as one; else the hashable index."""
    index = index.item() if torch.is_tensor(index) else index
    try:
        return operator.index(index)
    except TypeError:
        is_whole = isinstance(index, Real) and float(index).is_integer()
        return int(index) if is_whole else index
