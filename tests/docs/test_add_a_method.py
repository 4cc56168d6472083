"""docs/internals/add_a_method.md shows a file that works, and names all queries."""

import re
import subprocess
import sys

import pytest
from tests.docs.pages import FENCED

from oso_dp.privacy.queries import QUERIES, PlainGradient
from oso_dp.study.config import load_config


@pytest.fixture(scope="module")
def text(repo) -> str:
    return (repo / "docs/internals/add_a_method.md").read_text(encoding="utf-8")


TRAINED = """
import sys
import torch
import oso_dp
import oso_dp.methods
from oso_dp.methods import find_method

oso_dp.methods.__path__.append(sys.argv[1])
assert find_method("pasted").title == "Pasted"
torch.manual_seed(1)
data = torch.randn(60, 3), torch.randint(2, (60,))
options = {"delta": 1e-5, "epochs": 2, "batch_size": 30, "randomness": "seeded", "seed": 1}
runs = [
    oso_dp.train_private(
        torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss(reduction="none"), data, epsilon=3.0,
        method=name, stabiliser=0.02, learning_rate=0.5, progress=False, **options,
    )
    for name in ("pasted", "auto_s")
]
assert all(run.epsilon <= 3 and run.ledger.step_count == 4 for run in runs)
assert [run.statement.method for run in runs] == ["pasted", "auto_s"]
"""


def test_pasted_file_is_a_method(text, tmp_path) -> None:
    (block,) = FENCED.finditer(text)
    named = block["lines"].replace('"auto_s"', '"pasted"').replace('"AUTO-S"', '"Pasted"')
    (tmp_path / "pasted.py").write_text(named)
    command = [sys.executable, "-W", "error", "-c", TRAINED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_table_has_every_private_query(text) -> None:
    for query in set(QUERIES) - {PlainGradient}:
        assert f"| `{query.__name__}` |" in text


def test_named_files_exist(repo, text) -> None:
    assert "auto_s" in load_config(repo / "config/extensions/other_methods.yaml").methods
    for name in re.findall(r"`((?:src|tests|config|workflow)/[\w./-]+)`", text):
        assert (repo / name).exists(), name
