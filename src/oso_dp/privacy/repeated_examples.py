"""Detection of repeated examples in a data set, for which epsilon would not hold.

An example that appears k times changes each sum by up to k times the threshold. Only the structure
of torch's classes is checked: the indices of `Subset`, and the data sets in `ConcatDataset` and
`StackDataset`, at any depth. No example is fetched: refusing equal examples would reveal them.
"""

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
    except Exception:  # invalid indices, for example; fetching an example reports it
        return
    if len(np.unique(origins)) < len(origins):
        raise OsoError(
            f"{argument}: an example appears twice in a Subset or ConcatDataset; epsilon holds for "
            "examples that appear once, so remove repetitions"
        )


def _origins(data: Any, indices: np.ndarray, ids: dict[Any, int]) -> np.ndarray:
    """An integer per index that is equal for indices of the same example.

    ids: the integers assigned so far.
    """
    if indices.size and indices.min() < 0:
        indices = np.where(indices < 0, indices + len(data), indices)
    if isinstance(data, Subset):
        return _origins(data.dataset, _as_int64(data.indices)[indices], ids)
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
        return np.array([_id_of(tuple(row), ids) for row in columns.tolist()], dtype=np.int64)
    tensors = data.tensors if type(data) is TensorDataset else (data,)
    return _id_of(tuple(map(id, tensors)), ids) * _STRIDE + indices


def _id_of(key: Any, ids: dict[Any, int]) -> int:
    return ids.setdefault(key, len(ids))


def _as_int64(indices: Any) -> np.ndarray:
    values = indices.cpu() if torch.is_tensor(indices) else indices
    return np.asarray(values).astype(np.int64, casting="same_kind", copy=False).reshape(len(values))
