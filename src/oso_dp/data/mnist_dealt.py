"""MNIST dealt at random to 6,000 users of ten digits each, for studies of many users."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from oso_dp.data import mnist
from oso_dp.data.arrays import Arrays
from oso_dp.data.catalogue import dataset_info

_SEED = 0  # public


def build(data_dir: Path | None, cache: Path) -> tuple[Arrays, dict]:
    """As `oso_dp.data.mnist.build`, with users who do not depend on the digits."""
    arrays, provenance = mnist.build(data_dir, cache)
    n, users = len(arrays.train_targets), dataset_info("mnist_dealt").records("user")
    dealt = np.random.default_rng(_SEED).permutation(np.arange(n) % users)
    return replace(arrays, train_users=dealt.astype(np.int64)), provenance
