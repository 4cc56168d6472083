"""The global generators of torch, NumPy and Python, from which models and data sets draw.

Under a known seed (`torch.manual_seed(0)`) one example more would change what is drawn for later
ones, such as dropout or a random crop, and the generators' states would tell the sizes of batches.
"""

import os
import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_generators() -> None:
    """Start the CPU's global generators from the system's entropy."""
    torch.default_generator.manual_seed(secrets.randbits(63))
    np.random.seed(np.frombuffer(os.urandom(32), dtype=np.uint32))
    random.seed(os.urandom(32))


@contextmanager
def fresh_generators() -> Iterator[None]:
    """Inside, they start from the system's entropy; afterwards they are as before."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    seed_generators()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
