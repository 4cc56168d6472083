"""Tables as Markdown, CSV and LaTeX: the same cells in each."""

import csv
import io
import re

from oso_dp.paper.tables import find_table
from oso_dp.reporting.table import latex, to_csv, to_latex, to_markdown
from oso_dp.reporting.tables.cells import paper_table


def test_table_formats_have_expected_layout(paper_store, study):
    table = paper_table(study(paper_store), find_table("mnist", 9))
    lines = [line for line in to_markdown(table).splitlines() if line.startswith("| ")]
    assert len(lines) == 1 + 4 * 3
    assert {line.count("|") for line in lines} == {len(table.printed.columns) + 1}
    assert "| FixedQuantile γ |" in lines[0]
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert len(rows) == 17
    online = next(r for r in rows if (r["epsilon"], r["method"]) == ("9.0", "online"))
    assert float(online["paper_mean"]) == 93.62
    assert (online["seeds"], online["verdict"]) == ("1", "undecided")
    body = to_latex(table)
    assert body.count(r"\begin") == body.count(r"\end")
    groups, names, *cells = [
        line
        for line in body.split(r"\toprule")[1].split(r"\bottomrule")[0].splitlines()
        if line.endswith(r"\\")
    ]
    assert len(cells) == 4 * 3
    assert {len(re.findall(r"(?<!\\)&", c)) for c in (names, *cells)} == {
        len(table.printed.columns) - 1
    }
    spans = re.findall(r"multicolumn\{(\d)\}\{l\}\{(\w*)\}", groups)
    assert spans == [
        *(("2", ""), ("2", "Online"), ("3", "FixedThreshold")),
        *(("3", "FixedQuantile"), ("2", "AdamWOSM")),
    ]
    assert not re.search("[ρεγ±×−–“”]", body)


def test_latex_escapes_special_characters():
    assert latex("a_b & 5 % of $x^2$ {±}") == (
        r"a\_b \& 5 \% of \$x\textasciicircum{}2\$ \{$\pm$\}"
    )
