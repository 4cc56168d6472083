"""docs/user/troubleshooting.md quotes the constant parts of messages, and has every exit status."""

import ast
import re
from pathlib import Path

import pytest

from oso_dp import exit_codes

ROW = re.compile(r"^\| `([^`]+)`(?: \(notice\))? \|", re.MULTILINE)


def template(node: ast.AST) -> str | None:
    """A text of the code, with … for what is filled in; None for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"%s", "…", text)
        case ast.JoinedStr(values=parts):
            return "".join(template(part) or "…" for part in parts)
    return None


@pytest.fixture(scope="module")
def templates(repo) -> str:
    texts = []
    for path in (repo / "src/oso_dp").rglob("*.py"):
        texts += [template(node) for node in ast.walk(ast.parse(path.read_text()))]
    return "\n".join(text for text in texts if text)


def test_troubleshooting_quotes_messages_of_code(repo: Path, templates) -> None:
    rows = ROW.findall((repo / "docs/user/troubleshooting.md").read_text())
    assert len(rows) > 25
    assert [row for row in rows if row not in templates] == []


def test_every_exit_status_is_there(repo: Path) -> None:
    text = (repo / "docs/user/troubleshooting.md").read_text()
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    known = {
        getattr(exit_codes, name) for name in ("SUCCESS", "ERROR", "INTERRUPTED", "BROKEN_PIPE")
    }
    assert listed == known | {1}
