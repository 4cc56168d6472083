"""docs/method.md points at code that is there."""

import re

ROW = re.compile(r"^\| .+ \| `(?P<file>src/[^`]+)` \| `(?P<line>[^`]+)` \|$", re.MULTILINE)


def test_every_line_that_is_quoted_stands_in_its_file(repo) -> None:
    rows = list(ROW.finditer((repo / "docs/method.md").read_text()))
    assert len(rows) >= 15
    for row in rows:
        code = " ".join((repo / row["file"]).read_text().split())
        assert " ".join(row["line"].split()) in code, row["line"]


def test_each_equation_of_the_algorithm_is_there(repo) -> None:
    text = (repo / "docs/method.md").read_text()
    for number in (3, 4, 11, 17, 18, 20, 21):
        assert f"({number})" in text
    assert "Proposition 1" in text
