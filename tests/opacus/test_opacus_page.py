"""docs/opacus.md: each row of its table names a test that is there."""

import ast
import dataclasses
import re
from pathlib import Path

from oso_dp.methods import find_method


def test_each_row_of_the_table_is_tried(repo: Path) -> None:
    text = (repo / "docs/opacus.md").read_text()
    rows = re.findall(r"^\| .+ \| .+ \| .+ \| .+ \| `(test_\w+)` \|$", text, flags=re.M)
    table = text.split("| feature |")[1].split("\n\n")[0]
    assert len(rows) == len(table.strip().splitlines()) - 2  # the head and the rule
    there = {
        node.name
        for path in (repo / "tests/opacus").glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    assert set(rows) <= there


def test_the_defaults_are_the_methods(repo: Path) -> None:
    text = (repo / "docs/opacus.md").read_text()
    stated = dict(re.findall(r"^\| `(\w+)` \| .+ \| ([0-9.]+) \|$", text, flags=re.M))
    fields = dataclasses.fields(find_method("online").Settings)
    defaults = {field.name: field.default for field in fields if field.name != "initial_threshold"}
    assert {name: float(value) for name, value in stated.items()} == defaults
