"""dp_accounting's events and its Rényi accountant, without the rest of that package.

`import dp_accounting` loads everything, above all the machinery of privacy-loss distributions, and
takes 2 s; RDP needs a third of it, and `oso calibrate` is asked at a prompt. So these modules are
loaded while the package's own initialisation is left out. Whoever imports the package later gets it
whole, with these same modules in it.
"""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _without_initialisation(package: str) -> Iterator[None]:
    if package in sys.modules:
        yield
        return
    spec = importlib.util.find_spec(package)
    assert spec is not None
    sys.modules[package] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules[package]


with _without_initialisation("dp_accounting"):
    from dp_accounting import dp_event, privacy_accountant
    from dp_accounting.rdp import RdpAccountant, compute_epsilon

__all__ = [
    "RdpAccountant",
    "compute_epsilon",
    "dp_event",
    "privacy_accountant",
]
