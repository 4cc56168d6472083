"""The parts of a search by the linear scaling rule: their names, and what trials have of epsilon.

Apart from what they cost, so that whoever reads a plan need not load an accountant.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from oso_dp.accounting.search_accounting import LINEAR_SCALING

TRIAL_FRACTIONS: Final = (0.1, 0.2)  # unless others are given
FINAL_STAGE: Final = "final"


def make_stages(shares: Sequence[float]) -> tuple[str, ...]:
    """The names of a search's parts, in their order: trial 1, trial 2, ..., final."""
    return (*(f"trial {number + 1}" for number in range(len(shares))), FINAL_STAGE)


def find_fraction_error(shares: Any) -> str | None:
    """What is wrong with the shares of epsilon that trials are to have; None if nothing is."""
    if not isinstance(shares, list | tuple) or len(shares) < 2:
        return "must be two numbers or more: a line needs two points"
    if not all(type(share) is float and 0 < share < 1 for share in shares):
        return "each must be a number above 0 and below 1"
    if any(later <= share for share, later in pairwise(shares)):
        return "must increase"
    if math.fsum(shares) >= 1:
        return "their sum must be below 1: the rest is the final run's"
    return None


def find_stage_error(search_accounting: str, part: Any, shares: Any) -> str | None:
    """What is wrong with a cohort's selection, part and shares together; None if nothing is."""
    if search_accounting != LINEAR_SCALING:
        given = "part" if part is not None else "trial_fractions" if shares is not None else None
        return given and f"{given}: only where search_accounting is {LINEAR_SCALING}"
    if wrong := find_fraction_error(shares):
        return f"trial_fractions {format_fractions(shares)}: {wrong}"
    if part not in make_stages(shares):
        return f"part {str(part)[:40]!r}: allowed are {', '.join(make_stages(shares))}"
    return None


def format_fractions(shares: Any) -> str:
    """Shares, or what was given for them, for a message."""
    many = shares if isinstance(shares, list | tuple) else [shares]
    return ", ".join(str(share) for share in many)[:40]
