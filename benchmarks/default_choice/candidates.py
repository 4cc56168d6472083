"""Candidates for the default of `train_private`, and Opacus's usual settings.

Each is a function of the number of steps T: Online's rates for 10 epochs are too slow for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Options = Callable[[int], dict[str, Any]]


def online(
    initial_product: float = 0.1,
    threshold: float = 0.1,
    max_log_change: float | None = None,
    **options: Any,
) -> Options:
    """Online from rho_0 C_0 = initial_product; max_log_change: of C, over all steps."""

    def of(steps: int) -> dict[str, Any]:
        rate = 2.5e-3 if max_log_change is None else min(0.1, max(2.5e-3, max_log_change / steps))
        return {
            "method": "online",
            "learning_rate": initial_product / threshold,
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
    "online": online(),  # the present default
    "online_c1": online(threshold=1.0),
    "online_max_log_change2": online(max_log_change=2.0),
    "online_max_log_change5": online(max_log_change=5.0),
    "online_max_log_change2_linear": online(max_log_change=2.0, schedule="linear"),
    "online_max_log_change2_double": online(initial_product=0.2, max_log_change=2.0),
    "online_linear": online(schedule="linear"),
    "online_double_linear": online(initial_product=0.2, schedule="linear"),
    "auto_s_linear": fixed(method="auto_s", learning_rate=0.316228, schedule="linear"),
    "auto_s_double_cosine": fixed(method="auto_s", learning_rate=0.2, schedule="cosine"),
    "auto_s_averaged": fixed(method="auto_s", learning_rate=0.2, averaging=0.99),
    "auto_wosm_linear": fixed(method="auto_wosm", schedule="linear"),
    "adam_wosm": fixed(method="adam_wosm", threshold=1.0),
    "auto_dog": fixed(method="auto_dog", averaging=0.9999),
    # Without momentum a short training takes steps of full length from the first on.
    "online_no_momentum": online(2.0, 1.0, momentum=0.0),
    "online_no_momentum_c0.1": online(2.0, 0.1, momentum=0.0),
    "online_no_momentum_half": online(1.0, 0.1, momentum=0.0),
    "online_no_momentum_max_log_change2": online(2.0, 1.0, max_log_change=2.0, momentum=0.0),
    "online_no_momentum_double_linear": online(4.0, 1.0, momentum=0.0, schedule="linear"),
    "online_no_momentum_max_log_change5": online(2.0, 1.0, max_log_change=5.0, momentum=0.0),
    "online_no_momentum_max_log_change10": online(2.0, 1.0, max_log_change=10.0, momentum=0.0),
    "online_no_momentum_max_log_change10_linear": online(
        4.0, 1.0, max_log_change=10.0, momentum=0.0, schedule="linear"
    ),
    "online_no_momentum_max_log_change2_linear": online(
        4.0, 1.0, max_log_change=2.0, momentum=0.0, schedule="linear"
    ),
    "online_no_momentum_3_linear": online(3.0, 1.0, momentum=0.0, schedule="linear"),
    "auto_s_no_momentum": fixed(method="auto_s", learning_rate=2.0, momentum=0.0),
    "dp_sgd_4_linear": fixed(**DP_SGD, learning_rate=4.0, schedule="linear"),
    "dp_sgd_2": fixed(**DP_SGD, learning_rate=2.0),
    "dp_sgd_2_linear": fixed(**DP_SGD, learning_rate=2.0, schedule="linear"),
    # Opacus's examples use C = 1 and a rate in this range; its engine has the same distribution.
    "opacus_0.1": fixed(**DP_SGD, learning_rate=0.1),
    "opacus_0.5": fixed(**DP_SGD, learning_rate=0.5),
}
