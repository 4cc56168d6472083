"""Which teacher trains on which row: by a hash of the row, so that no row moves another."""

import hashlib

import numpy as np
import numpy.typing as npt

from oso_dp.errors import OsoError

_COINCIDENCES = 0.02  # of the public rows, such as short texts that are equal


def assign_parts(
    inputs: npt.NDArray, targets: npt.NDArray, parts: int, seed: int
) -> npt.NDArray[np.int64]:
    """The part of each row, int64 [n] in [0, parts); equal rows are in one part.

    OsoError unless there are at least two parts and no more than rows. A part may be empty, since
    whether one is depends on the rows: its teacher is then untrained.
    """
    if not 2 <= parts <= len(targets):
        raise OsoError(f"teachers: {parts}; must be >= 2 and <= the {len(targets)} training rows")
    key = f"parts {seed}".encode()
    labels = np.ascontiguousarray(targets).astype("<i8")
    hashes = [_hash(row, label, key) for row, label in zip(inputs, labels, strict=True)]
    return (np.array(hashes, dtype=np.uint64) % np.uint64(parts)).astype(np.int64)


def check_no_shared_rows(private: npt.NDArray, public: npt.NDArray, name: str) -> None:
    """OsoError if more public rows are among the private ones than by coincidence."""
    known = {_hash(row) for row in private}
    shared = [index for index, row in enumerate(public) if _hash(row) in known]
    if len(shared) > _COINCIDENCES * len(public):
        raise OsoError(
            f"{name}: {len(shared)} rows are training rows, the first is row {shared[0]}; public "
            "rows must not be among the private ones"
        )


def _hash(row: npt.NDArray, label: npt.NDArray | None = None, key: bytes = b"") -> int:
    digest = hashlib.blake2b(np.ascontiguousarray(row).data, digest_size=8, key=key)
    digest.update(b"" if label is None else label.tobytes())
    return int.from_bytes(digest.digest(), "little")
