"""The label of a variant: a learning-rate schedule and weight averaging (EMA), in words."""

from collections.abc import Mapping
from typing import Any

from oso_dp.files import parse_json


def variant_label(settings: str | Mapping[str, Any] | None) -> str:
    """The label of the schedule and averaging in `settings` (the column, or its content).

    Empty without either.
    """
    options = parse_json(settings) if isinstance(settings, str) else settings
    options = options if isinstance(options, Mapping) else {}
    words = []
    if "schedule" in options:
        words.append("rate falling")
    if "averaging" in options:
        words.append(f"averaged, {options['averaging']:g}")
    return ", ".join(words)
