"""`make report` writes how the reproduction stands into the README; nothing else does."""

import re

import pytest

from oso_dp.analysis.load import read_study
from oso_dp.errors import OsoError
from oso_dp.reporting.readme import BEGIN, END, status, write_status
from oso_dp.study.plan import plans_of


@pytest.fixture
def readme(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(
        f"# A title\n\nbefore ε\n\n{BEGIN}\nfrom before\n{END}\n\nafter\n", encoding="utf-8"
    )
    return path


def test_what_stands_between_the_marks_is_replaced_and_nothing_else(readme, paper_store, study):
    write_status(readme, study(paper_store))
    text = readme.read_text(encoding="utf-8")
    assert text.startswith(f"# A title\n\nbefore ε\n\n{BEGIN}\n\n**Neither confirmed nor refuted")
    assert text.endswith(f"\n\n{END}\n\nafter\n")
    assert "from before" not in text
    assert "| MNIST | Online | not run | not run | ε = 9: undecided (1) |" in text
    assert re.search(r"\| C1 \| Online is at least .* \| holds \| undecided \| not run \|", text)
    write_status(readme, study(paper_store))
    assert readme.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("broken", ["", BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}{BEGIN}{END}"])
def test_a_readme_without_the_marks_is_left_alone(readme, broken, paper_store, study):
    readme.write_text(broken, encoding="utf-8")
    with pytest.raises(OsoError, match=r"README\.md: needs the lines"):
        write_status(readme, study(paper_store))
    assert readme.read_text(encoding="utf-8") == broken


def test_the_readme_of_this_repository_says_what_its_results_say(repo):
    text = (repo / "README.md").read_text(encoding="utf-8")
    written = text.split(BEGIN)[1].split(END)[0].strip()
    assert written == status(read_study(repo / "results", plans_of(repo / "results", None)))


def test_only_make_report_writes_it(repo):
    text = (repo / "Makefile").read_text(encoding="utf-8")
    assert text.count("oso_dp.reporting.readme README.md results") == 1
    recipe = text.split("\nreport:")[1].split("\n\n")[0]
    assert "oso_dp.reporting.readme README.md results" in recipe
    for folder in ("cli", "reporting/page", "study"):
        for path in (repo / "src" / "oso_dp" / folder).glob("*.py"):
            assert "reporting.readme" not in path.read_text(encoding="utf-8"), path
