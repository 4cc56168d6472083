"""How PyTorch's threads wait for one another on a CPU; to be settled before torch is imported."""

import os

# GNU OpenMP's own count keeps a thread spinning for milliseconds. Noise, which other threads draw,
# then has half the cores; and beside busy processes a step of 5 ms takes a second. With this count
# a step takes 0.1 s there, and alone no longer than before.
_SPINS = "3000"


def spin_briefly() -> None:
    """Set the count for this process and its children, unless somebody has decided already."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
