"""`make report` writes what the runs say into pages of this repository; nothing else does."""

import re

import pytest

from oso_dp.analysis.claims import judge_claims
from oso_dp.errors import OsoError
from oso_dp.reporting import update_docs
from oso_dp.reporting.update_docs import (
    BLOCKS,
    budgets,
    counts,
    evidence,
    marks,
    status,
    write_blocks,
)

BEGIN, END = marks("status")
PAGES = {
    "README.md": "status",
    "docs/reproduction/findings.md": "evidence",
    "results/README.md": "counts",
    "docs/user/choosing_a_method.md": "budgets",
}


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(
        f"# A title\n\nbefore ε\n\n{BEGIN}\nfrom before\n{END}\n\nafter\n", encoding="utf-8"
    )
    return path


def test_write_blocks_replaces_marked_text_only(page, paper_store, study):
    write_blocks(page, study(paper_store))
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# A title\n\nbefore ε\n\n{BEGIN}\n\nNeither confirmed nor refuted")
    assert text.endswith(f"\n\n{END}\n\nafter\n")
    assert "from before" not in text
    assert re.search(r"\| C1 \| Online is at least .* \| undecided \| not run \| not run \|", text)
    write_blocks(page, study(paper_store))
    assert page.read_text(encoding="utf-8") == text


def test_write_blocks_several_blocks_filled(page, paper_store, study):
    lines = [line for name in ("counts", "evidence") for line in marks(name)]
    page.write_text("\n".join(["first", *lines, "last"]))
    write_blocks(page, study(paper_store))
    text = page.read_text(encoding="utf-8")
    places = [text.index(part) for part in ("first", lines[0], "| MNIST |", lines[2], "| C1 |")]
    assert places == sorted(places)
    assert text.endswith(f"{lines[3]}\nlast")


@pytest.mark.parametrize("broken", ["", BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}{BEGIN}{END}"])
def test_write_blocks_missing_marks_raises(page, broken, paper_store, study):
    page.write_text(broken, encoding="utf-8")
    with pytest.raises(OsoError, match=r"README\.md: .*needs the lines"):
        write_blocks(page, study(paper_store))
    assert page.read_text(encoding="utf-8") == broken


def test_status_has_sentence_and_ten_rows(stored):
    sentence, table = status(stored).split("\n\n")
    assert sentence.count(". ") == 0
    assert len(table.splitlines()) == 2 + 10


def test_evidence_omits_claims_not_run(paper_store, study):
    lines = evidence(study(paper_store)).split("\n")
    assert all(" not run |" not in line.split("|")[3] for line in lines)
    assert any(line.startswith("| C1 | MNIST | undecided") for line in lines)


def test_evidence_names_differing_rules(stored, monkeypatch):
    frame = judge_claims(stored)
    frame.loc[frame["claim"] == "C1", "verdict_last"] = "does not hold"
    monkeypatch.setattr(update_docs, "judge_claims", lambda _: frame)
    assert "| C1 | MNIST | holds at the paper's points; at the last step does not hold | +" in (
        evidence(stored)
    )
    assert "undecided (equivalent within M)" in evidence(stored)


def test_counts_sums_runs(store, study):
    for epsilon, seeds in ((3.0, (0, 1)), (9.0, (0, 1, 2))):
        for seed in seeds:
            store.add(epsilon=epsilon, seed=seed)
            store.add(epsilon=epsilon, seed=seed, learning_rate=0.5)
    store.add(epsilon=3.0, seed=7, search_accounting="single", noise_multiplier=9.0)
    store.add(method="no_dp", seed=0)
    assert counts(study(store)).split("\n")[2:] == [
        "| MNIST | 9 | composition | float32 | 2 | 3, 9 | 1 to 3 | 11 |",
        "| MNIST | 9 | single | float32 | 1 | 3 | 1 | 1 |",
    ]


def test_budgets_keeps_incomplete_reference_only(stored):
    """The table has an incomplete grid only as the reference of other strategies."""
    parts = [line for line in budgets(stored).splitlines() if line.startswith("| incomplete grid")]
    assert parts
    assert all("itself" in line for line in parts)


@pytest.mark.parametrize("path", PAGES)
def test_blocks_in_pages_match_results(repo, stored, path):
    name = PAGES[path]
    begin, end = marks(name)
    text = (repo / path).read_text(encoding="utf-8")
    assert text.split(begin)[1].split(end)[0].strip() == BLOCKS[name](stored)


def test_update_docs_only_in_make_report(repo):
    text = (repo / "Makefile").read_text(encoding="utf-8")
    call = f"oso_dp.reporting.update_docs {' '.join(PAGES)} --results results"
    assert text.count(call) == 1
    recipe = text.split("\nreport:")[1].split("\n\n")[0]
    assert call in recipe
    for folder in ("cli", "reporting/page", "study"):
        for path in (repo / "src" / "oso_dp" / folder).glob("*.py"):
            assert "reporting.update_docs" not in path.read_text(encoding="utf-8"), path
