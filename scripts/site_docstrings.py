"""For mkdocstrings: docstrings as this project writes them, made ready for a page.

A line that begins with names and a colon tells of arguments, and becomes an entry of a list. What a
comment says at the end of a class's field, as `threshold: Tensor  # C, [R]`, becomes its docstring.
"""

import re
from pathlib import Path
from typing import Any

import griffe

ENTRY = re.compile(r"(?P<names>`?[a-z_]\w*`?(?:, `?[a-z_]\w*`?)*): (?P<text>.*)")
COMMENT = re.compile(r"\s# (?!type: |noqa)(?P<text>.*)$")


class SiteDocstrings(griffe.Extension):
    """What griffe calls for each object that it reads."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = listed(obj.docstring.value)

    def on_attribute_instance(self, *, attr: Any, **_: Any) -> None:
        if attr.docstring is None and attr.parent.is_class and not attr.name.startswith("_"):
            lines = Path(attr.filepath).read_text(encoding="utf-8").splitlines()
            comment = COMMENT.search(lines[attr.endlineno - 1])
            if comment is not None:
                text = comment["text"].rstrip(".")
                attr.docstring = griffe.Docstring(f"{text[0].upper()}{text[1:]}.", parent=attr)


def listed(text: str) -> str:
    """A docstring with its arguments as a list in Markdown."""
    lines: list[str] = []
    in_entry = False
    for line in text.splitlines():
        entry = ENTRY.fullmatch(line)
        if entry is not None:
            if not in_entry and lines and lines[-1]:
                lines.append("")
            names = ", ".join(f"`{name.strip('`')}`" for name in entry["names"].split(", "))
            lines.append(f"- {names}: {entry['text']}")
            in_entry = True
        elif not line.strip():
            lines.append("")
            in_entry = False
        else:
            lines.append(f"  {line.strip()}" if in_entry else line)
    return "\n".join(lines)
