"""docs/add-a-method.md shows code that is there, and names all queries."""

import ast
import re
import subprocess
import sys
import textwrap

import pytest

from oso_dp.methods import find_method
from oso_dp.privacy.queries import QUERIES, PlainGradient
from oso_dp.study.config import load_config

BLOCK = re.compile(r"(?:^    .*\n(?:^\n(?=    ))?)+", re.MULTILINE)
PYTHON = re.compile(r"\s*(?:from |@|class |def |return |descend\(|\w+ = )")


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


@pytest.fixture(scope="module")
def pasted(text) -> str:
    """The blocks of step 2, one below the other, as somebody pastes them."""
    step = text.partition("\n## 2. ")[2].partition("\n## ")[0]
    return "\n".join(re.sub("^    ", "", block, flags=re.M) for block in BLOCK.findall(step))


def test_the_blocks_are_the_whole_file(repo, pasted) -> None:
    file = ast.parse((repo / "src/oso_dp/methods/auto_s.py").read_text())
    file.body = file.body[1:]  # its docstring
    assert ast.unparse(ast.parse(pasted)) == ast.unparse(file)


TRIED = """
import sys
import torch
import oso_dp
import oso_dp.methods
from oso_dp.methods import find_method

oso_dp.methods.__path__.append(sys.argv[1])
assert find_method("pasted").title == "Pasted"
torch.manual_seed(1)
data = torch.randn(60, 3), torch.randint(2, (60,))
said = {"delta": 1e-5, "epochs": 2, "batch_size": 30, "randomness": "seeded", "seed": 1}
made = [
    oso_dp.train_private(
        torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss(reduction="none"), data, epsilon=3.0,
        method=name, stabiliser=0.02, learning_rate=0.5, progress=False, **said,
    )
    for name in ("pasted", "auto_s")
]
assert all(one.epsilon <= 3 and one.ledger.step_count == 4 for one in made)
assert [one.statement.method for one in made] == ["pasted", "auto_s"]
"""


def test_a_new_file_of_the_pasted_blocks_is_a_method(pasted, tmp_path) -> None:
    named = pasted.replace('"auto_s"', '"pasted"').replace('"AUTO-S"', '"Pasted"')
    (tmp_path / "pasted.py").write_text(named)
    command = [sys.executable, "-W", "error", "-c", TRIED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_table_has_every_private_query(text) -> None:
    for query in set(QUERIES) - {PlainGradient}:
        assert f"| `{query.__name__}` |" in text


def test_the_example_and_its_files_are_there(repo, text) -> None:
    assert find_method("auto_s").title in text
    assert "auto_s" in load_config(repo / "config/beyond.yaml").methods
    for name in re.findall(r"`((?:src|tests|config|workflow)/[\w./-]+)`", text):
        assert (repo / name).exists(), name
    assert "def test_all_methods_are_found" in (repo / "tests/methods/test_methods.py").read_text()
