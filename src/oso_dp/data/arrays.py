"""`Arrays`, the form in which every data set reaches training, and the data file (.npz).

A data file is an uncompressed .npz with the arrays and `provenance`, a JSON string with their
sources and a digest. The archive's checksums and the digest are verified on reading, so that a
damaged file, or one whose labels were reordered, is rejected.
"""

import hashlib
import json
import logging
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, check_regular, format_os_error, parse_json

_HINT = "remove it, and prepare the data set again"


@dataclass(frozen=True, eq=False)
class Arrays:
    """A data set's training and test examples as numpy arrays.

    Args:
        train_inputs: float32 [n, ...] with at least one dimension per example; images have shape
            [n, channels, height, width] and values in [0, 1].
        train_targets: int64 [n], classes from 0.
        test_inputs: float32 [m, ...], of the same shape per example.
        test_targets: int64 [m].
        train_users: int64 [n], whose example each is: the id of a user. Optional; needed where a
            user is the unit of privacy.

    Raises:
        OsoError: If a type or shape is wrong, a split is empty, or an input is not finite.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(100, 4)).astype(np.float32)
        >>> y = (x[:, 0] > 0).astype(np.int64)
        >>> arrays = Arrays(x[:80], y[:80], x[80:], y[80:])
    """

    train_inputs: npt.NDArray[np.float32]
    train_targets: npt.NDArray[np.int64]
    test_inputs: npt.NDArray[np.float32]
    test_targets: npt.NDArray[np.int64]
    train_users: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        for name in self.names:
            if not isinstance(getattr(self, name), np.ndarray):
                found = type(getattr(self, name)).__name__
                raise OsoError(f"{name}: {found}; must be a numpy array")
        for split in ("train", "test"):
            inputs = getattr(self, f"{split}_inputs")
            targets = getattr(self, f"{split}_targets")
            _require(inputs, f"{split}_inputs", np.dtype(np.float32), inputs.ndim >= 2, "[n, ...]")
            _require(targets, f"{split}_targets", np.dtype(np.int64), targets.ndim == 1, "[n]")
            if len(inputs) != len(targets) or len(inputs) == 0:
                raise OsoError(
                    f"{split}_inputs: {len(inputs)} examples, {split}_targets: {len(targets)}; "
                    "must be equal and >= 1"
                )
            if not np.isfinite(inputs).all():
                raise OsoError(f"{split}_inputs: contains NaN or infinity; must be finite")
        if self.train_inputs.shape[1:] != self.test_inputs.shape[1:]:
            raise OsoError(
                f"train_inputs: shape {self.train_inputs.shape[1:]} per example, test_inputs: "
                f"{self.test_inputs.shape[1:]}; must be equal"
            )
        if (users := self.train_users) is not None:
            is_one_each = users.shape == self.train_targets.shape
            shape = f"[{len(self.train_targets)}], one id for each training example"
            _require(users, "train_users", np.dtype(np.int64), is_one_each, shape)

    @property
    def names(self) -> list[str]:
        """The names of its arrays."""
        return [name for name in _ARRAY_NAMES if getattr(self, name) is not None]

    @cached_property
    def digest(self) -> str:
        """BLAKE2b hash of all values and shapes, hexadecimal; computed once."""
        digest = hashlib.blake2b()
        for name in self.names:
            array = getattr(self, name)
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def _require(array: np.ndarray, name: str, dtype: np.dtype, shape_ok: bool, shape: str) -> None:
    if array.dtype != dtype or not shape_ok:
        raise OsoError(f"{name}: {array.dtype} {list(array.shape)}; must be {dtype} {shape}")


_ARRAY_NAMES = tuple(field.name for field in fields(Arrays))
_OPTIONAL = {"train_users"}
_DIGEST = "digest"  # key in the file's provenance, removed on reading
_log = logging.getLogger(__name__)


def save_arrays(path: Path, arrays: Arrays, provenance: dict, only_owner: bool = False) -> None:
    """Write a data file atomically; `provenance` must be serialisable as JSON.

    `only_owner`: restrict read permission to the owner. Raises OsoError if the file cannot be
    written; an existing file is then unchanged.
    """
    text = json.dumps({**provenance, _DIGEST: arrays.digest}, sort_keys=True)
    entries = {name: getattr(arrays, name) for name in arrays.names}
    with atomic_write(Path(path), only_owner) as handle:
        np.savez(handle, **entries, provenance=np.array(text))  # no objects among them


def load_arrays(path: Path) -> tuple[Arrays, dict]:
    """Read and verify a data file; return its arrays and its provenance.

    Raises OsoError if the file is missing, truncated, damaged, or of another kind.
    """
    path = Path(path)
    _check_arrays_file(path)
    try:
        # Numpy stops reading where an array's header says that it ends, possibly before the entry's
        # checksum, so all checksums are verified first.
        with _entries(path) as file:
            damaged = file.zip.testzip()
            if damaged is not None:
                raise OsoError(f"{damaged} is damaged")
            arrays = Arrays(**{name: file[name] for name in _ARRAY_NAMES if name in file})
            provenance = parse_json(file["provenance"].item())
        if not isinstance(provenance, dict):
            raise OsoError("provenance is not a JSON object")
        stated = provenance.pop(_DIGEST, None)
        if stated is not None and stated != arrays.digest:
            raise OsoError("arrays do not match the digest")
    except MemoryError as error:  # not a fault of the file
        raise OsoError(f"{path}: not enough memory for its arrays") from error
    except Exception as error:  # a damaged archive fails in too many ways to list
        raise OsoError(f"{path}: damaged data file ({format_os_error(error)}); {_HINT}") from error
    if stated is None:
        _log.warning("%s: no digest (written by an older version); to add one, %s", path, _HINT)
    return arrays, provenance


@contextmanager
def _entries(path: Path) -> Iterator[Any]:
    """The open archive. If the content is no archive, numpy would leave its file open."""
    with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as file:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in file.zip.infolist()):
            raise ValueError("compressed")  # its uncompressed size is unbounded
        yield file


def read_provenance(path: Path) -> dict:
    """Read only a data file's provenance; OsoError as by `load_arrays`."""
    _check_arrays_file(path)
    try:
        with _entries(path) as file:
            provenance = dict(parse_json(file["provenance"].item()))
            provenance.pop(_DIGEST, None)
            return provenance
    except Exception as error:  # as above
        raise OsoError(f"{path}: damaged data file ({format_os_error(error)}); {_HINT}") from error


def _check_arrays_file(path: Path) -> None:
    check_regular(path)
    try:
        path.open("rb").close()
    except OSError as error:
        raise OsoError(
            f"{path}: cannot read data file ({format_os_error(error)}); prepare the data set first"
        ) from error
    if not is_arrays_file(path):  # possibly another program's file, so do not suggest removing it
        raise OsoError(f"{path}: truncated, or not a data file written by `oso data`")


def is_arrays_file(path: Path, of: str | None = None) -> bool:
    """Whether `path` is an archive with the entries of a data file; its arrays are not read.

    `of`: also require that its provenance, if readable, names this data set.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = {name.removesuffix(".npy") for name in archive.namelist()}
            if found - _OPTIONAL != {*_ARRAY_NAMES, "provenance"} - _OPTIONAL:
                return False
    except Exception:  # as above: not a data file
        return False
    try:
        return of is None or read_provenance(path).get("dataset", of) == of
    except OsoError:  # damaged: it may be overwritten
        return True
