"""MNIST with the writer of each training digit (QMNIST: Yadav and Bottou 2019): 539 users.

No writer of a training digit wrote a test digit.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from oso_dp.data import mnist
from oso_dp.data.arrays import Arrays
from oso_dp.data.download import obtain
from oso_dp.data.idx import parse_idx
from oso_dp.data.sources import QMNIST
from oso_dp.errors import OsoError

_LABEL, _WRITER = 0, 2  # columns of QMNIST's table

# The two groups of people who wrote MNIST's test digits: high school students (NIST's series hsf_4,
# harder to read), then employees of the census bureau (hsf_0). QMNIST found where one ends.
TEST_SERIES: Final = {"students": slice(0, 5001), "employees": slice(5001, 10000)}
TEST_SERIES_DATASETS: Final = ("mnist", "mnist_writers", "mnist_dealt")


def build(data_dir: Path | None, cache: Path) -> tuple[Arrays, dict]:
    """As `oso_dp.data.mnist.build`, with the writers as users."""
    arrays, provenance = mnist.build(data_dir, cache)
    (source,) = QMNIST.files
    file = obtain(QMNIST, data_dir, cache)[source.name]
    table = parse_idx(file.content, file.origin)
    if table.shape[:1] != arrays.train_targets.shape or table.ndim != 2:
        raise OsoError(f"{file.origin}: shape {list(table.shape)}; must be [60000, 8]")
    if not np.array_equal(table[:, _LABEL], arrays.train_targets):
        raise OsoError(f"{file.origin}: its labels are not MNIST's")
    provenance["files"][source.name] = {"sha256": source.sha256, "origin": file.origin}
    return replace(arrays, train_users=table[:, _WRITER].astype(np.int64)), provenance
