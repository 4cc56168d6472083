"""What is laid over a method's steps: a falling learning rate, an average of the weights."""

from collections.abc import Mapping
from typing import Any

from oso_dp.files import parse_json


def laid_over(settings: str | Mapping[str, Any] | None) -> str:
    """What `settings` (the column of that name, or what it holds) says of it, in words; empty where
    nothing is."""
    said = parse_json(settings) if isinstance(settings, str) else settings
    said = said if isinstance(said, Mapping) else {}
    words = []
    if "schedule" in said:
        words.append("rate falling")
    if "averaging" in said:
        words.append(f"averaged, {said['averaging']:g}")
    return ", ".join(words)
