"""Candidates for the default of `train_private`, and Opacus's usual settings.

Each is a function of the number of steps T: Online's rates for 10 epochs are too slow for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Options = Callable[[int], dict[str, Any]]


def online(
    product: float = 0.1,
    threshold: float = 0.1,
    reach: float | None = None,
    **options: Any,
) -> Options:
    """Online from rho_0 C_0 = product; reach: how far log C may move over all steps."""

    def of(steps: int) -> dict[str, Any]:
        rate = 2.5e-3 if reach is None else min(0.1, max(2.5e-3, reach / steps))
        return {
            "method": "online",
            "learning_rate": product / threshold,
            "initial_threshold": threshold,
            "threshold_rate": rate,
            "learning_rate_rate": rate,
            **options,
        }

    return of


def fixed(**options: Any) -> Options:
    return lambda steps: options


DP_SGD = {"method": "fixed_threshold", "threshold": 1.0, "momentum": 0.0}

CANDIDATES: dict[str, Options] = {
    "online": online(),  # the default until now
    "online_c1": online(threshold=1.0),
    "online_reach2": online(reach=2.0),
    "online_reach5": online(reach=5.0),
    "online_reach2_linear": online(reach=2.0, schedule="linear"),
    "online_reach2_double": online(product=0.2, reach=2.0),
    "online_linear": online(schedule="linear"),
    "online_double_linear": online(product=0.2, schedule="linear"),
    "auto_s_linear": fixed(method="auto_s", learning_rate=0.316228, schedule="linear"),
    "auto_s_double_cosine": fixed(method="auto_s", learning_rate=0.2, schedule="cosine"),
    "auto_s_averaged": fixed(method="auto_s", learning_rate=0.2, averaging=0.99),
    "auto_wosm_linear": fixed(method="auto_wosm", schedule="linear"),
    "adam_wosm": fixed(method="adam_wosm", threshold=1.0),
    "auto_dog": fixed(method="auto_dog", averaging=0.9999),
    "dp_sgd_2": fixed(**DP_SGD, learning_rate=2.0),
    "dp_sgd_2_linear": fixed(**DP_SGD, learning_rate=2.0, schedule="linear"),
    # Opacus's examples: C = 1 and a rate between these; its engine's law is this one's.
    "opacus_0.1": fixed(**DP_SGD, learning_rate=0.1),
    "opacus_0.5": fixed(**DP_SGD, learning_rate=0.5),
}
