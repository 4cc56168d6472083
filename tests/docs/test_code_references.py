"""The tables of docs/internals name modules, functions and classes that exist."""

import importlib
import re
from operator import attrgetter
from pathlib import Path

import pytest

ROW = re.compile(r"^\| (.+) \| `([\w/]+)\.py` \| `([\w.]+)` \|$", re.MULTILINE)


@pytest.mark.parametrize("page", ["equations_to_code", "architecture"])
def test_tables_name_existing_functions(page: str, repo: Path) -> None:
    rows = ROW.findall((repo / f"docs/internals/{page}.md").read_text(encoding="utf-8"))
    assert len(rows) > 20
    for _, file, name in rows:
        attrgetter(name)(importlib.import_module(f"oso_dp.{file.replace('/', '.')}"))


def test_internals_name_existing_files(repo: Path) -> None:
    named = r"`([a-z]\w*/[\w/]+\.py)`"
    for page in sorted((repo / "docs/internals").glob("*.md")):
        for file in re.findall(named, page.read_text(encoding="utf-8")):
            roots = (repo, repo / "src/oso_dp")
            assert any((root / file).exists() for root in roots), f"{page.name}: {file}"


def test_equations_of_the_algorithm_are_listed(repo: Path) -> None:
    text = (repo / "docs/internals/equations_to_code.md").read_text(encoding="utf-8")
    for number in (3, 4, 11, 13, 16, 17, 18, 19, 20, 21):
        assert f"({number})" in text, number
    assert "Proposition 1" in text
