"""docs/internals/equations_to_code.md names functions that exist."""

import importlib
import re
from operator import attrgetter
from pathlib import Path

ROW = re.compile(r"^\| (.+) \| `([\w/]+)\.py` \| `([\w.]+)` \|$", re.MULTILINE)


def test_equations_name_existing_functions(repo: Path) -> None:
    text = (repo / "docs/internals/equations_to_code.md").read_text(encoding="utf-8")
    rows = ROW.findall(text)
    assert len(rows) == len(re.findall(r"`[\w/]+\.py`", text))
    for _, file, name in rows:
        attrgetter(name)(importlib.import_module(f"oso_dp.{file.replace('/', '.')}"))
    said = " ".join(what for what, _, _ in rows)
    for number in (3, 4, 11, 13, 16, 17, 18, 19, 20, 21):
        assert f"({number})" in said, number
    assert "Proposition 1" in said
