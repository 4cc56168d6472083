"""dp_accounting's events and RDP accountant, imported without the rest of that package.

`import dp_accounting` also loads privacy loss distributions and takes 2 s, three times what RDP
needs, which is noticeable in `oso calibrate`. So these modules are imported without the package's
`__init__`. A later `import dp_accounting` works as usual and contains these same modules.
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
