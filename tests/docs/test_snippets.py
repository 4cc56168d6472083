"""Every block of Python on the pages runs as it stands."""

from pathlib import Path

from tests.docs.pages import FENCED, pages

# Pages whose blocks have a test of their own, which looks at what comes out, too.
TESTED = {
    "docs/internals/add_a_method.md": "tests/docs/test_add_a_method.py",
    "docs/user/train_your_model.md": "tests/docs/test_train_your_model.py",
    "docs/user/quickstart.md": "tests/packaging/test_fresh_install.py",
}


def blocks(page: Path) -> list[str]:
    found = FENCED.finditer(page.read_text(encoding="utf-8"))
    return [block["lines"] for block in found if block["language"] == "python"]


def test_every_block_runs(repo: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    there = set()
    for page in pages(repo):
        name = str(page.relative_to(repo))
        if blocks(page):
            there.add(name)
        if name not in TESTED:
            for lines in blocks(page):
                exec(lines, {"__name__": "__main__"})
    assert there >= TESTED.keys()
    for name, test in TESTED.items():
        assert name in (repo / test).read_text(encoding="utf-8")


def test_the_quick_start_is_a_dozen_lines(repo: Path) -> None:
    (lines,) = blocks(repo / "docs/user/quickstart.md")
    assert len([line for line in lines.splitlines() if line.strip()]) <= 12
