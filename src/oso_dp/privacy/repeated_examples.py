"""Whether a data set has an example twice: epsilon is that of adding or removing one example.

An example that appears k times moves each sum by k times the threshold. Seen is what torch's own
classes show: the indices of `Subset`, the parts of `ConcatDataset` and `StackDataset`, at any
depth. No example is fetched: to refuse equal ones would tell of them.
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
        data: any data set; one that is not made of torch's own parts passes.
        argument: what the caller calls the data, for the message.

    Raises:
        OsoError: an example is in it twice.
    """
    if not isinstance(data, Subset | ConcatDataset | StackDataset):
        return
    try:
        origins = _origins(data, np.arange(len(data)), {})
    except Exception:  # indices that are none, or whatever a data set may do: fetching says so
        return
    if len(np.unique(origins)) < len(origins):
        raise OsoError(
            f"{argument}: an example appears twice in its Subset or ConcatDataset; epsilon is that "
            "of an example that appears once; leave its repetitions out"
        )


def _origins(data: Any, places: np.ndarray, known: dict[Any, int]) -> np.ndarray:
    """Of the examples at these places numbers that are equal where the examples are the same one.

    `known`: numbers that were given, by what they are for.
    """
    if places.size and places.min() < 0:
        places = np.where(places < 0, places + len(data), places)
    if isinstance(data, Subset):
        return _origins(data.dataset, _numbers(data.indices)[places], known)
    if isinstance(data, ConcatDataset):
        ends = np.asarray(data.cumulative_sizes)
        origins, parts = np.empty_like(places), np.searchsorted(ends, places, side="right")
        order = np.argsort(parts, kind="stable")
        which, begins = np.unique(parts[order], return_index=True)
        for part, chosen in zip(which, np.split(order, begins[1:]), strict=True):
            before = ends[part - 1] if part else 0
            origins[chosen] = _origins(data.datasets[part], places[chosen] - before, known)
        return origins
    if isinstance(data, StackDataset):  # an example is what its parts are together
        stacked: Any = data.datasets
        inner = stacked.values() if isinstance(stacked, dict) else stacked
        columns = np.stack([_origins(one, places, known) for one in inner], axis=1)
        return np.array(
            [_number_rows(tuple(row), known) for row in columns.tolist()], dtype=np.int64
        )
    tensors = data.tensors if type(data) is TensorDataset else (data,)
    return _number_rows(tuple(map(id, tensors)), known) * _STRIDE + places


def _number_rows(key: Any, known: dict[Any, int]) -> int:
    return known.setdefault(key, len(known))


def _numbers(indices: Any) -> np.ndarray:
    values = indices.cpu() if torch.is_tensor(indices) else indices
    return np.asarray(values).astype(np.int64, casting="same_kind", copy=False).reshape(len(values))
