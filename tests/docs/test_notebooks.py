"""The stored outputs of the notebooks are of their cells; `make notebooks` runs them again."""

import json
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_executed_in_order(path: Path) -> None:
    book = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {one["output_type"] for one in outputs} <= {"stream", "display_data", "execute_result"}
    assert [one for one in outputs if one.get("name") == "stderr"] == []  # warnings
    text = "".join("".join(one.get("text", "")) for one in outputs)
    assert re.search(r"(?:^|[\s(])/\w+/", text) is None  # a path of one machine


def test_notebooks_linked_from_pages(repo: Path) -> None:
    assert NOTEBOOKS
    pages = [page.read_text(encoding="utf-8") for page in (repo / "docs").rglob("*.md")]
    for path in NOTEBOOKS:
        assert any(f"examples/{path.name}" in text for text in pages)
