"""A cell in which every run diverged was run, wherever the report counts or names it."""

import pytest

from oso_dp.analysis import verdicts
from oso_dp.analysis.cells import has_paper_length
from oso_dp.analysis.claim_tests import ClaimData
from oso_dp.analysis.claims import judge_claims
from oso_dp.analysis.verdicts import judge_cells, verdict_matrix
from oso_dp.paper.tables import find_table
from oso_dp.reporting.page import summary_text
from oso_dp.reporting.page.build import make_sections
from oso_dp.reporting.page.matrix import make_blocks
from oso_dp.reporting.summary import summary_table
from oso_dp.reporting.tables.cells import paper_table
from oso_dp.reporting.tables.study import figures_table


@pytest.fixture
def diverged(store, study):
    """On MNIST at k = 9: two methods of which every run diverged at once, and nothing else."""
    ended = {"values": (), "diverged_at": 3}
    for seed in (0, 1):
        store.add(seed=seed, precision="bfloat16", **ended)
    store.add(method="fixed_quantile", learning_rate=1e-2, quantile=0.5, **ended)
    return study(store)


@pytest.fixture
def lost(diverged):
    """The rows of the two cells."""
    cells = judge_cells(diverged, "mnist", 9)
    return cells[cells["method"].isin(["online", "fixed_quantile"]) & (cells["epsilon"] == 9)]


def test_judge_cells_all_diverged_status_diverged(lost) -> None:
    assert [*lost["status"]] == ["diverged"] * 2
    assert [*lost["verdict"]] == [verdicts.DIVERGED] * 2


def test_summary_text_all_diverged_counted(diverged, lost) -> None:
    assert summary_text.agreement_text(diverged) == []
    (part,) = summary_text.coverage_text([lost])
    assert part.startswith("2 of 2 grids are incomplete")


def test_verdict_text_all_diverged_counted(diverged) -> None:
    said = summary_text.verdict_text(diverged, judge_claims(diverged))
    assert "2 were run: on MNIST 2 diverged;" in said


def test_paper_table_all_diverged_shown(diverged, lost) -> None:
    table = paper_table(diverged, find_table("mnist", 9))
    assert "No cell of this table was run." not in table.notes
    assert any("bfloat16: Online at ε = 9" in note for note in table.notes)
    online = table.details[(table.details["method"] == "Online") & (table.details["ε"] == "9")]
    assert [*online["grid points"]] == ["1 of 9 (2 of 2 runs diverged)"]
    assert table.printed["Online"].iloc[-1, -1].startswith("diverged (")  # with its seeds


def test_figures_table_all_diverged_counted(diverged) -> None:
    data = figures_table(diverged, []).data.set_index("what")
    row = data.loc[[what for what in data.index if "MNIST, k = 9: " in what and "F" not in what]]
    assert [*row["status"]] == ["run, without a value"]
    assert [*row["cells_run"], *row["runs"]] == [2, 3]


def test_make_blocks_all_diverged_not_idle(diverged) -> None:
    (mnist, *_) = make_blocks(verdict_matrix(diverged))
    looks = [cell.css_class for cell in dict(mnist.lines)["Online"]]
    assert looks[-1] != "idle"
    assert {*looks[:-1]} == {"idle"}


def test_claim_data_all_diverged_included(diverged) -> None:
    evidence = ClaimData(judge_cells(diverged, "mnist", 9))
    for method, ran in {"online": 1, "fixed_quantile": 1, "adam_wosm": 0}.items():
        assert len(evidence.require_rows("mnist", method, frozenset({(9, 9.0)}))) == ran


def test_make_sections_all_diverged_length_known(diverged) -> None:
    """A section of diverged runs alone knows their number of epochs."""
    tables = {"table_08": paper_table(diverged, find_table("mnist", 9))}
    (section,) = make_sections(diverged, tables, [])
    assert section.is_complete == has_paper_length("mnist", 600)


def test_summary_table_all_diverged_shown(diverged, store, tmp_path) -> None:
    table = summary_table(store.write(tmp_path / "store"))
    assert [*table.columns[2].cells] == ["diverged"] * 2
