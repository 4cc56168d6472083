"""Spin count of OpenMP (PyTorch's CPU threads); must be set before torch is imported."""

import os

# With GNU OpenMP's default, a waiting thread spins for milliseconds. The threads that draw noise
# then have half of the cores, and a step of 5 ms takes a second on a busy machine. With this count,
# it takes 0.1 s there, and is as fast as before on an idle machine.
_SPIN_COUNT = "3000"


def spin_briefly() -> None:
    """Set the count for this process and its children, unless the environment sets it."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPIN_COUNT)
