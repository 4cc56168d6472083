"""The `users` and `local` arguments of `train_private`, where a user is the unit of privacy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from oso_dp.api.arguments import suggest_name
from oso_dp.errors import OsoError
from oso_dp.privacy.local_training import LocalTraining
from oso_dp.privacy.users import Users
from oso_dp.value_checks import as_plain

_MUST_BE = (
    "must be one id for each row, [n], all integers of 64 bits or all texts, none missing or empty"
)


def make_local_training(local: Any) -> LocalTraining:
    """The options from a mapping of names to values; None for FedSGD."""
    if local is None or isinstance(local, LocalTraining):
        return local or LocalTraining()
    if not isinstance(local, Mapping):
        raise OsoError(
            f"local: {type(local).__name__}; must map names to values, as "
            "{'epochs': 1, 'batch_size': 10, 'learning_rate': 0.1}"
        )
    known = [field.name for field in fields(LocalTraining)]
    for name in local:
        if name not in known:
            raise OsoError(
                f"local: unknown option {name!r}{suggest_name(str(name), known)}; must be one of "
                f"{', '.join(known)}"
            )
    return LocalTraining(**{name: as_plain(value) for name, value in local.items()})


def make_users(ids: Any, rows: int, local: LocalTraining) -> Users:
    """The users of a data set with so many rows, from one id for each row."""
    try:
        values = None if np.ma.isMaskedArray(ids) else _to_array(ids)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        values = None
    if values is None or values.dtype.kind not in "iuU" or values.ndim != 1:
        found = type(ids).__name__ if values is None else f"{values.dtype} {list(values.shape)}"
        raise OsoError(f"users: {found}; {_MUST_BE}")
    if values.dtype.kind == "U" and (is_empty := values == "").any():
        raise OsoError(f"users: '' for row {is_empty.argmax()}; {_MUST_BE}")
    if len(values) != rows:
        raise OsoError(f"users: {len(values)} ids for {rows} rows; must be one for each row")
    return Users(values, local.rows_per_user)


def _to_array(ids: Any) -> np.ndarray:
    """Integers or texts as they are; of objects, all of which must be of one kind."""
    if torch.is_tensor(ids):
        ids = ids.detach().cpu().numpy()
    # Numpy would make texts of a list of texts and numbers, NaN for a missing id among them.
    values = np.asarray(ids, dtype=None if hasattr(ids, "dtype") else object)
    kinds = {type(value) for value in values.flat} if values.dtype == object else set()
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return values.astype(str)
    if kinds and all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        return values.astype(np.int64 if values.min() < 0 else np.uint64)
    return values
