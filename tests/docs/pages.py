"""The pages that users read: the README, docs/ and the references that the site takes in."""

import re
from pathlib import Path

ELSEWHERE = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "config/README.md", "results/README.md"),
    *("workflow/profiles/README.md", "benchmarks/README.md"),
)
FENCED = re.compile(r"^```(?P<language>\w*)\n(?P<lines>.*?)^```$", re.M | re.S)


def pages(repo: Path) -> list[Path]:
    return [*sorted((repo / "docs").rglob("*.md")), *(repo / name for name in ELSEWHERE)]


def commands(text: str, program: str) -> list[str]:
    """What the page calls a program with, in code within a line and in blocks of lines."""
    spans = re.findall(rf"(?<!\\)`{program} ([^`]+)`", text)
    lines = re.findall(rf"^    (?:\$ )?(?:\w+=\S+ )*{program} ([^\n#]+)", text, re.M)
    return [command.strip() for command in (*spans, *lines)]
