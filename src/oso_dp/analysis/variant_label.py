"""What is laid over a method's steps: a falling learning rate, an average of the weights."""

from collections.abc import Mapping
from typing import Any

from oso_dp.files import parse_json


def variant_label(settings: str | Mapping[str, Any] | None) -> str:
    """What `settings` (the column of that name, or what it holds) says of it, in words; empty where
    nothing is."""
    options = parse_json(settings) if isinstance(settings, str) else settings
    options = options if isinstance(options, Mapping) else {}
    words = []
    if "schedule" in options:
        words.append("rate falling")
    if "averaging" in options:
        words.append(f"averaged, {options['averaging']:g}")
    return ", ".join(words)
