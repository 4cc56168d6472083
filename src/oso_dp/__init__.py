"""Differentially private learning with Online Sensitivity Optimization (Galli et al., AAAI 2024).

The public API is `__all__`. Names are loaded on first use, so `import oso_dp` does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oso_dp.errors import OsoError

if TYPE_CHECKING:
    from oso_dp.api import (
        Evaluation,
        History,
        ModelCheck,
        PrivateModel,
        SearchResult,
        Statement,
        check,
        load_private,
        replace_batch_norm,
        search_private,
        train_private,
    )
    from oso_dp.api.estimators import PrivacyAccount as PrivacyAccount
    from oso_dp.api.estimators import PrivateClassifier as PrivateClassifier
    from oso_dp.api.estimators import PrivateRegressor as PrivateRegressor
    from oso_dp.data.arrays import Arrays
    from oso_dp.data.plugins import UserDataset

__version__ = "0.1.0"
__all__ = [
    "Arrays",
    "Evaluation",
    "History",
    "ModelCheck",
    "OsoError",
    "PrivateModel",
    "SearchResult",
    "Statement",
    "UserDataset",
    "check",
    "load_private",
    "replace_batch_norm",
    "search_private",
    "train_private",
]


_MODULES = {"Arrays": "oso_dp.data.arrays", "UserDataset": "oso_dp.data.plugins"}
# Not in `__all__`, since they need an extra.
_WITH_SKLEARN = ("PrivacyAccount", "PrivateClassifier", "PrivateRegressor")


def __getattr__(name: str) -> Any:
    if name in _WITH_SKLEARN:
        from oso_dp.optional_dependencies import describe_missing

        with describe_missing(name):
            return getattr(import_module("oso_dp.api.estimators"), name)
    if name in __all__:
        return getattr(import_module(_MODULES.get(name, "oso_dp.api")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
