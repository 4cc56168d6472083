"""Conversion of a user's arrays and tables to tensors, and the structure of inputs."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.gradients.structured import Structure

_LABELS = ("labels", "label")  # the key of the targets in a dictionary
_MAX_COLUMNS_NAMED = 5


def find_labels(values: Mapping[Any, Any]) -> str | None:
    return next((name for name in _LABELS if name in values), None)


def split_labels(values: Mapping[Any, Any]) -> tuple[dict[str, Any], Any]:
    """Inputs and targets of a dictionary that has both."""
    labels = find_labels(values)
    assert labels is not None
    return {key: value for key, value in values.items() if key != labels}, values[labels]


def is_structured(inputs: Any) -> bool:
    """Whether these are several tensors or arrays: a model's keywords, or its arguments."""
    if isinstance(inputs, Mapping):
        return True
    return isinstance(inputs, tuple) and all(
        hasattr(one, "shape") or hasattr(one, "to_numpy") for one in inputs
    )


def name_parts(inputs: Any) -> dict[str, Any]:
    """Each tensor or array of the inputs, by what messages call it."""
    if not is_structured(inputs):
        return {"inputs": inputs}
    parts = inputs.items() if isinstance(inputs, Mapping) else enumerate(inputs)
    return {f"inputs[{key!r}]": values for key, values in parts}


def restructure(inputs: Any, tensors: Sequence[Tensor]) -> Structure:
    """The tensors in the structure of the inputs."""
    if isinstance(inputs, Mapping):
        return dict(zip(inputs, tensors, strict=True))
    return tuple(tensors) if is_structured(inputs) else tensors[0]


def number_type(dtype: torch.dtype, keeps_bool: bool = False) -> torch.dtype:
    """The dtype of a batch. `keeps_bool`: a mask stays one; else it becomes 0 and 1."""
    if keeps_bool and dtype == torch.bool:
        return dtype
    return torch.float32 if dtype.is_floating_point else torch.int64


def to_tensor(argument: str, name: str, values: Any) -> Tensor:
    """A tensor of any number type, without a copy where torch can read the array's memory.

    Raises OsoError for values that are not dense real numbers.
    """
    if not torch.is_tensor(values):
        values = _to_array(argument, name, values)
    if isinstance(values, np.ma.MaskedArray):  # masked values would be trained on
        raise OsoError(f"{argument}: {name} are a masked array; fill or drop the masked values")
    if not torch.is_tensor(values) and hasattr(values, "toarray"):  # of SciPy
        raise OsoError(f"{argument}: {name} are sparse; must be dense, as toarray() makes them")
    try:
        tensor = values if torch.is_tensor(values) else _from_array(np.asarray(values))
    except (TypeError, ValueError, RuntimeError):
        value_type = getattr(values, "dtype", type(values).__name__)
        raise OsoError(
            f"{argument}: {name} of type {value_type}; must be numbers, classes as 0, 1, 2, ..."
        ) from None
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_meta:
        raise OsoError(
            f"{argument}: {name} are a sparse, nested, quantized or meta tensor; must be dense"
        )
    if tensor.is_complex():
        raise OsoError(f"{argument}: {name} are complex; must be floats or integers")
    return tensor.detach()


def is_table(values: Any) -> bool:
    """Whether this is a DataFrame, or a table of Arrow."""
    return not torch.is_tensor(values) and _list_columns(values) is not None


def _list_columns(values: Any) -> list[tuple[Any, Any]] | None:
    """Name and type of each column of a table; None for anything else."""
    if _is_of_arrow(values) and hasattr(values, "schema"):
        return list(zip(values.schema.names, values.schema.types, strict=True))
    if hasattr(values, "columns") and hasattr(values, "dtypes"):
        return list(zip(values.columns, values.dtypes, strict=True))
    return None


def _is_of_arrow(values: Any) -> bool:
    """By name: Arrow is not imported here."""
    return type(values).__module__.partition(".")[0] == "pyarrow"


def _to_array(argument: str, name: str, values: Any) -> Any:
    """An array of what other libraries hold; other objects as they are."""
    columns = _list_columns(values)
    if columns is not None:
        _check_columns(argument, name, columns)
        if _is_of_arrow(values):
            return np.column_stack([_to_numbers(column) for column in values.columns])
        array = values.to_numpy()
        if array.dtype != object:
            return array
        # pandas has no common type of flags and numbers, nor of its nullable types.
        found = (values.iloc[:, position] for position in range(len(columns)))
        return np.column_stack([_to_numbers(column) for column in found])
    if _is_of_arrow(values) and hasattr(values, "to_numpy"):
        return values.to_numpy(zero_copy_only=False)
    return values.to_numpy() if hasattr(values, "to_numpy") else values


def _to_numbers(column: Any) -> np.ndarray:
    """A column of a table; a missing value is NaN."""
    if _is_of_arrow(column):
        array = column.to_numpy(zero_copy_only=False)
        return array if array.dtype != object else array.astype("float64")
    array = column.to_numpy()
    return array if array.dtype != object else column.to_numpy("float64", na_value=np.nan)


def _check_columns(argument: str, name: str, columns: Iterable[tuple[Any, Any]]) -> None:
    others = [f"{column!r} ({dtype})" for column, dtype in columns if not _is_number(dtype)]
    if others:
        more = len(others) - _MAX_COLUMNS_NAMED
        named = ", ".join(others[:_MAX_COLUMNS_NAMED]) + f" and {more} more" * (more > 0)
        raise OsoError(
            f"{argument}: {name} have columns that are not numbers: {named}; drop them, or encode "
            "them as numbers (categories: pandas.get_dummies)"
        )


def _is_number(dtype: Any) -> bool:
    """Whether a column of this type of numpy, pandas or Arrow has numbers."""
    if hasattr(dtype, "to_pandas_dtype"):
        try:
            dtype = np.dtype(dtype.to_pandas_dtype())
        except (NotImplementedError, TypeError):  # such as a dictionary
            return False
    return getattr(dtype, "kind", "f") in "biufc"


def _from_array(array: np.ndarray) -> Tensor:
    """A tensor of an array that may be read-only (pandas): nothing here writes to examples."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        array = array.copy()
    if array.flags.writeable:
        return torch.as_tensor(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.as_tensor(array)
