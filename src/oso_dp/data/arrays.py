"""The one form in which every data set reaches training, and its file.

A data file is an uncompressed .npz with the four arrays and `provenance`, a JSON string that
says where they come from and holds a digest of the arrays. The archive's checksums and that
digest are verified on reading: a damaged file, or one with labels in another order, is refused
rather than trained on.
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
    """One data set, ready for training.

    Inputs are float32 [n, ...], images with values in [0, 1]; targets are int64 [n]. The shape
    of one example is the same in both parts. Construction raises OsoError if a dtype or shape
    is wrong, a part is empty, or an input is not finite.
    """

    train_inputs: npt.NDArray[np.float32]
    train_targets: npt.NDArray[np.int64]
    test_inputs: npt.NDArray[np.float32]
    test_targets: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in _ARRAY_NAMES:
            if not isinstance(getattr(self, name), np.ndarray):
                kind = type(getattr(self, name)).__name__
                raise OsoError(f"{name} is a {kind}; needed: a numpy array")
        for part in ("train", "test"):
            inputs = getattr(self, f"{part}_inputs")
            targets = getattr(self, f"{part}_targets")
            _require(inputs, f"{part}_inputs", np.dtype(np.float32), inputs.ndim >= 2, "[n, ...]")
            _require(targets, f"{part}_targets", np.dtype(np.int64), targets.ndim == 1, "[n]")
            if len(inputs) != len(targets) or len(inputs) == 0:
                raise OsoError(
                    f"{part}_inputs has {len(inputs)} examples and {part}_targets {len(targets)}; "
                    "as many of both, and at least one, are needed"
                )
            if not np.isfinite(inputs).all():
                raise OsoError(f"{part}_inputs holds values that are not finite")
        if self.train_inputs.shape[1:] != self.test_inputs.shape[1:]:
            raise OsoError(
                f"an example has shape {self.train_inputs.shape[1:]} in train_inputs but "
                f"{self.test_inputs.shape[1:]} in test_inputs"
            )

    @cached_property
    def digest(self) -> str:
        """Hash of all values and shapes, hexadecimal; computed once."""
        digest = hashlib.blake2b()
        for name in _ARRAY_NAMES:
            array = getattr(self, name)
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def _require(array: np.ndarray, name: str, dtype: np.dtype, shape_ok: bool, shape: str) -> None:
    if array.dtype != dtype or not shape_ok:
        raise OsoError(f"{name} is {array.dtype} {list(array.shape)}; needed: {dtype} {shape}")


_ARRAY_NAMES = tuple(field.name for field in fields(Arrays))
_ENTRIES = {*_ARRAY_NAMES, "provenance"}
_DIGEST = "digest"  # in the file's provenance, and of no concern to its readers
_log = logging.getLogger(__name__)


def save_arrays(path: Path, arrays: Arrays, provenance: dict, only_owner: bool = False) -> None:
    """Write a data file atomically; `provenance` is anything that JSON can hold.

    only_owner: nobody but the file's owner may read it.
    Raises OsoError if the file cannot be written; a file that was there is then untouched.
    """
    text = json.dumps({**provenance, _DIGEST: arrays.digest}, sort_keys=True)
    entries = {name: getattr(arrays, name) for name in _ARRAY_NAMES}
    with atomic_write(Path(path), only_owner) as handle:
        np.savez(handle, allow_pickle=False, **entries, provenance=np.array(text))


def load_arrays(path: Path) -> tuple[Arrays, dict]:
    """Read a data file and return its arrays and its provenance.

    Raises OsoError, naming the file, if it is missing, truncated, damaged or of another kind.
    """
    path = Path(path)
    _check_arrays_file(path)
    try:
        # Numpy stops reading where an array's header tells it to, which may be short of the
        # checksum at the end of an entry; so all checksums are verified first.
        with _entries(path) as file:
            damaged = file.zip.testzip()
            if damaged is not None:
                raise OsoError(f"{damaged} is damaged")
            arrays = Arrays(**{name: file[name] for name in _ARRAY_NAMES})
            provenance = parse_json(file["provenance"].item())
        if not isinstance(provenance, dict):
            raise OsoError("provenance is not a JSON object")
        stated = provenance.pop(_DIGEST, None)
        if stated is not None and stated != arrays.digest:
            raise OsoError("its arrays are not those that were prepared: the digest differs")
    except MemoryError as error:  # which says nothing against the file
        raise OsoError(f"{path}: memory does not suffice for what it holds") from error
    except Exception as error:  # a damaged archive fails in too many ways to list
        raise OsoError(
            f"{path}: not a sound data file ({format_os_error(error)}); {_HINT}"
        ) from error
    if stated is None:
        _log.warning("%s: without a digest, as older versions wrote it; for one, %s", path, _HINT)
    return arrays, provenance


@contextmanager
def _entries(path: Path) -> Iterator[Any]:
    """Opened here: where the content is no archive, numpy leaves open what it opened."""
    with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as file:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in file.zip.infolist()):
            raise ValueError("it is compressed")  # it could be of any size
        yield file


def read_provenance(path: Path) -> dict:
    """Only a data file's provenance; OsoError as by `load_arrays`."""
    _check_arrays_file(path)
    try:
        with _entries(path) as file:
            provenance = dict(parse_json(file["provenance"].item()))
            provenance.pop(_DIGEST, None)
            return provenance
    except Exception as error:  # as above
        raise OsoError(
            f"{path}: not a sound data file ({format_os_error(error)}); {_HINT}"
        ) from error


def _check_arrays_file(path: Path) -> None:
    check_regular(path)
    try:
        path.open("rb").close()
    except OSError as error:
        raise OsoError(
            f"{path}: cannot read this data file ({format_os_error(error)}); prepare the data "
            "set first"
        ) from error
    if not is_arrays_file(path):  # somebody else's, perhaps: nothing to remove
        raise OsoError(f"{path}: truncated, or not a data file of oso, which `oso data` writes")


def is_arrays_file(path: Path, of: str | None = None) -> bool:
    """Whether `path` is an archive with the entries of a data file (its arrays unread).

    of: a data set, and whether it is of this one, as far as it says.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if set(archive.namelist()) != {f"{name}.npy" for name in _ENTRIES}:
                return False
    except Exception:  # as above: whatever goes wrong, it is not one
        return False
    try:
        return of is None or read_provenance(path).get("dataset", of) == of
    except OsoError:  # damaged: to be prepared again
        return True
