"""Private learning with Online Sensitivity Optimization (Galli et al., AAAI 2024).

The public names are those of `__all__`. They load torch once one of them is used.
"""

from typing import TYPE_CHECKING, Any

from oso_dp.errors import OsoError

if TYPE_CHECKING:
    from oso_dp.private import (
        History,
        PrivateModel,
        PrivateSearch,
        Statement,
        load_private,
        search_private,
        train_private,
    )

__version__ = "0.1.0"
__all__ = [
    "History",
    "OsoError",
    "PrivateModel",
    "PrivateSearch",
    "Statement",
    "load_private",
    "search_private",
    "train_private",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        import oso_dp.private

        return getattr(oso_dp.private, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
