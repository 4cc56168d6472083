"""MNIST, and the data sets of its form: Fashion-MNIST, and MNIST with users.

All are published in the IDX format: two zero bytes, a type code, the number of dimensions, each
dimension as a big-endian 32-bit integer, then the values in row-major order
(https://yann.lecun.com/exdb/mnist/).
"""

import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from oso_dp.data.arrays import Arrays
from oso_dp.data.catalogue import dataset_info
from oso_dp.data.download import DatasetSource, Fetched, obtain
from oso_dp.data.sources import FASHION_MNIST, MNIST, QMNIST
from oso_dp.errors import OsoError
from oso_dp.files import format_os_error

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_LABEL, _WRITER = 0, 2  # columns of QMNIST's table
_DEALING_SEED = 0  # public

# The two groups of people who wrote MNIST's test digits: high school students (NIST's series hsf_4,
# harder to read), then employees of the census bureau (hsf_0). QMNIST found where one ends.
TEST_SERIES: Final = {"students": slice(0, 5001), "employees": slice(5001, 10000)}
TEST_SERIES_DATASETS: Final = ("mnist", "mnist_writers", "mnist_dealt")


def build(data_dir: Path | None, cache: Path, source: DatasetSource = MNIST) -> tuple[Arrays, dict]:
    """Return the arrays of MNIST's four files and their provenance.

    Inputs are [n, 1, height, width], bytes divided by 255; targets are the labels. Raises OsoError
    as `oso_dp.data.download.obtain`, or if a file does not contain images or labels as expected.
    """
    fetched = obtain(source, data_dir, cache)
    train_images, train_labels, test_images, test_labels = (
        fetched[file.name] for file in source.files
    )
    arrays = Arrays(
        _images(train_images), _labels(train_labels), _images(test_images), _labels(test_labels)
    )
    files = {
        file.name: {"sha256": file.sha256, "origin": fetched[file.name].origin}
        for file in source.files
    }
    return arrays, {"files": files}


def build_fashion(data_dir: Path | None, cache: Path) -> tuple[Arrays, dict]:
    """Fashion-MNIST: images of clothing (Xiao, Rasul and Vollgraf 2017); targets are the labels.

    The metric of `fashion_mnist` is mse, as in the paper, whose autoencoder has the images as
    targets; `fashion_mnist_labels` is the same data file for classification.
    """
    return build(data_dir, cache, FASHION_MNIST)


def build_writers(data_dir: Path | None, cache: Path) -> tuple[Arrays, dict]:
    """MNIST with the writer of each training digit as its user (QMNIST: Yadav and Bottou 2019).

    No writer of a training digit wrote a test digit.
    """
    arrays, provenance = build(data_dir, cache)
    (source,) = QMNIST.files
    file = obtain(QMNIST, data_dir, cache)[source.name]
    table = parse_idx(file.content, file.origin)
    if table.shape[:1] != arrays.train_targets.shape or table.ndim != 2:
        raise OsoError(f"{file.origin}: shape {list(table.shape)}; must be [60000, 8]")
    if not np.array_equal(table[:, _LABEL], arrays.train_targets):
        raise OsoError(f"{file.origin}: its labels are not MNIST's")
    provenance["files"][source.name] = {"sha256": source.sha256, "origin": file.origin}
    return replace(arrays, train_users=table[:, _WRITER].astype(np.int64)), provenance


def build_dealt(data_dir: Path | None, cache: Path) -> tuple[Arrays, dict]:
    """MNIST dealt at random to 6,000 users of ten digits each, for studies of many users."""
    arrays, provenance = build(data_dir, cache)
    n, users = len(arrays.train_targets), dataset_info("mnist_dealt").records("user")
    dealt = np.random.default_rng(_DEALING_SEED).permutation(np.arange(n) % users)
    return replace(arrays, train_users=dealt.astype(np.int64)), provenance


def _images(file: Fetched) -> np.ndarray:
    images = _bytes(file, ndim=3, content="images [n, height, width]")
    return images[:, np.newaxis].astype(np.float32) / np.float32(255)


def _labels(file: Fetched) -> np.ndarray:
    return _bytes(file, ndim=1, content="labels [n]").astype(np.int64)


def _bytes(file: Fetched, ndim: int, content: str) -> np.ndarray:
    values = parse_idx(file.content, file.origin)
    if values.dtype != np.uint8 or values.ndim != ndim:
        raise OsoError(
            f"{file.origin}: {values.dtype} {list(values.shape)}; must be uint8 {content}"
        )
    return values


def parse_idx(content: bytes, name: str) -> np.ndarray:
    """Return the array in `content`, in native byte order; `name` is for messages.

    Raises OsoError if the header is not IDX, or does not match the number of values.
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _TYPES or content[3] == 0:
        raise OsoError(f"{name}: not an IDX file (starts with 0x{content[:4].hex()})")
    dtype, ndim = np.dtype(_TYPES[content[2]]), content[3]
    start = 4 + 4 * ndim
    if len(content) < start:
        raise OsoError(
            f"{name}: truncated IDX file ({len(content)} bytes of a {start} byte header)"
        )
    shape = struct.unpack(f">{ndim}I", content[4:start])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        problem = "truncated IDX file" if len(content) < expected else "trailing bytes in IDX file"
        raise OsoError(f"{name}: {problem} ({len(content)} bytes; must be {expected})")
    try:
        values = np.frombuffer(content, dtype, offset=start).reshape(shape)
    except ValueError as error:  # more dimensions than numpy has, or huge ones beside a 0
        raise OsoError(
            f"{name}: header has no valid array shape ({format_os_error(error)})"
        ) from None
    return values.astype(dtype.newbyteorder("="))
