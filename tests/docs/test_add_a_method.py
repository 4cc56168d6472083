"""docs/add-a-method.md shows code that is there, and names all queries."""

import re
import textwrap

import pytest

from oso_dp.methods import find_method
from oso_dp.privacy.queries import QUERIES, PlainGradient
from oso_dp.study.config import load_config

BLOCK = re.compile(r"(?:^    .*\n(?:^\n(?=    ))?)+", re.MULTILINE)
PYTHON = re.compile(r"\s*(?:@|class |def |return |descend\(|\w+ = )")


@pytest.fixture(scope="module")
def text(repo) -> str:
    return (repo / "docs/add-a-method.md").read_text()


def test_every_line_of_python_stands_in_the_method_or_its_query(repo, text) -> None:
    files = ("methods/auto_s.py", "privacy/queries.py")
    code = "\n".join((repo / "src/oso_dp" / file).read_text() for file in files)
    lines = {line.strip() for line in code.splitlines()}
    blocks = [textwrap.dedent(block) for block in BLOCK.findall(text) if PYTHON.match(block)]
    shown = [line.strip() for block in blocks for line in block.splitlines() if line.strip()]
    assert len(shown) >= 15
    assert [line for line in shown if line not in lines] == []


def test_the_table_has_every_private_query(text) -> None:
    for query in set(QUERIES) - {PlainGradient}:
        assert f"| `{query.__name__}` |" in text


def test_the_example_and_its_files_are_there(repo, text) -> None:
    assert find_method("auto_s").title in text
    assert "auto_s" in load_config(repo / "config/beyond.yaml").methods
    for name in re.findall(r"`((?:src|tests|config|workflow)/[\w./-]+)`", text):
        assert (repo / name).exists(), name
    assert "def test_all_methods_are_found" in (repo / "tests/methods/test_methods.py").read_text()
