"""The page: self-contained, honest, and careful with the folder it is written to."""

import csv
import re
from collections import defaultdict
from html.parser import HTMLParser
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from tests.reporting.conftest import comparison_tables

from oso_dp.errors import OsoError
from oso_dp.reporting.figures import every_figure
from oso_dp.reporting.page import build
from oso_dp.reporting.page.build import PAPER_URL, build_report, make_sections
from oso_dp.reporting.page.summary_text import unmatched_results_text
from oso_dp.reporting.tables.cells import other_methods_table

VOID = {"meta", "img", "br", "link", "hr", "input"}
SVG = "data:image/svg+xml,"
SUFFIXES = {".html", ".md", ".csv", ".tex", ".png"}
IMAGES = (SVG, "data:image/webp;base64,")


class Checker(HTMLParser):
    """Collects attributes and text, and fails on tags that do not close in order."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.images, self.text, self.ids = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.links += [values[a] for a in ("href", "src", "srcset", "action") if a in values]
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "img":
            self.images.append(values)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)


def read(report):
    checker = Checker()
    checker.feed((report / "index.html").read_text(encoding="utf-8"))
    assert checker.open == []
    return checker, re.sub(r"\s+", " ", " ".join(checker.text))


@pytest.mark.parametrize("which", ["glyphs_report", "paper_report"])
def test_page_self_contained(which, request):
    report = request.getfixturevalue(which)
    checker, _ = read(report)
    source = (report / "index.html").read_text(encoding="utf-8")
    for image in checker.images:
        assert image["src"].startswith(IMAGES)
        if image["src"].startswith(SVG):
            ElementTree.fromstring(unquote(image["src"][len(SVG) :]))  # well-formed
        assert image["alt"]
    assert not re.search(r"<script [^>]*src|<link", source)
    (style,) = re.findall(r"<style>(.*?)</style>", source, re.S)
    assert not re.search(r"@import|url\(", style)
    assert len(source) < 1_500_000


@pytest.mark.parametrize("which", ["glyphs_report", "paper_report"])
def test_page_formatted_numbers_have_sort_key(which, request):
    """In a browser a column of plain numbers is sorted as numbers, any other as text."""
    source = (request.getfixturevalue(which) / "index.html").read_text(encoding="utf-8")
    tables = re.findall(r'<table class="sort">.*?</table>', source, re.S)
    said = 0
    for table in tables:
        rows = re.findall(r"<tr[^>]*>((?:<td.*?</td>)+)</tr>", table)
        for column in zip(*(re.findall(r"<td(.*?)>(.*?)</td>", row) for row in rows), strict=True):
            numbers = [re.match(r"[+−-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?", text) for _, text in column]
            plain = all(re.fullmatch(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", text) for _, text in column)
            for (look, _), number in zip(column, numbers, strict=True):
                order = re.search(r'data-order="(.*?)"', look)
                assert (order is None) == (plain or number is None)
                if order and number:
                    assert order[1] == number[0].replace("−", "-").replace(",", "")
                    said += 1
    assert said


@pytest.mark.parametrize("which", ["glyphs_report", "paper_report"])
def test_page_links_resolve(which, request):
    report = request.getfixturevalue(which)
    checker, _ = read(report)
    assert len(set(checker.ids)) == len(checker.ids)
    for link in checker.links:
        if link.startswith("#"):
            assert link[1:] in checker.ids, link
        elif link.startswith("https:"):
            assert link == PAPER_URL
        elif not link.startswith(IMAGES):
            assert (report / link).is_file(), link
    figures = {path.stem for path in (report / "figures").glob("*.png")}
    tables = [path for path in (report / "tables").glob("*.csv")]
    tables = {path.stem for path in tables if len(path.read_text().splitlines()) > 1}
    assert figures | tables <= set(
        checker.ids
    )  # each with rows is on the page, and can be linked to
    assert len(checker.images) == len(figures)


def test_page_tooltips_name_runs(glyphs_report, glyphs_store):
    source = (glyphs_report / "index.html").read_text(encoding="utf-8")
    hovers = re.findall(r'title="(seed[^"]*)"', source)
    assert hovers
    known = {run["run_id"]: run["seed"] for run in glyphs_store.runs}
    for hover in hovers:
        runs = re.findall(r"seed (\d+): \S+ \(run (\w+)\)", hover)
        assert len(runs) == len(hover.splitlines()) >= 1
        for seed, run_id in runs:
            assert known[run_id] == int(seed)


def test_make_sections_shorter_runs_unranked(store, study):
    for method, value in (("online", 0.8), ("adam_wosm", 0.9)):
        store.add(method=method, k=1, epochs=1, values=(value,))
        store.add(method=method, k=9, values=(value,))
    s = study(store)
    short, whole = sorted(
        make_sections(s, {table.name: table for table in comparison_tables(s)}, []),
        key=lambda section: section.is_complete,
    )
    assert (short.id, short.is_complete, short.best) == ("mnist-k1", False, None)
    assert "AdamWOSM has 90.00 %" in whole.best
    (table,) = other_methods_table(s)
    assert set(table.printed[""]) == {"–"}  # no verdict


def test_make_sections_shorter_method_left_out(store, study):
    """Methods with shorter runs are left out of the ranking, in sections and in findings."""
    for k in (1, 9):
        store.add(method="online", k=k, epochs=10, values=(0.8,))
        store.add(method="adam_wosm", k=k, epochs=1, values=(0.9,))
    s = study(store)
    found = make_sections(s, defaultdict(lambda: None), [])
    said = "at ε = 9 only Online was run for 10 epochs, 80.00 %."
    assert [section.is_complete for section in found] == [True, True]
    assert [section.best for section in found] == [f"MNIST, k = {k}: {said}" for k in (9, 1)]
    assert unmatched_results_text(s) == [f"MNIST, k = 1: {said}"]
    store.add(method="auto_s", k=1, epochs=10, values=(0.7,))
    (sentence,) = unmatched_results_text(study(store))
    assert "Online has 80.00 %, 10.00 points ahead of AUTO-S" in sentence


@pytest.mark.parametrize("which", ["glyphs_report", "paper_report"])
def test_build_report_omits_local_paths(which, request):
    report = request.getfixturevalue(which)
    for path in report.rglob("*"):
        if path.suffix in (".html", ".md", ".csv", ".tex", ".json"):
            assert str(report.parent.parent) not in path.read_text(encoding="utf-8"), path


def test_page_demo_states_not_mnist(glyphs_report):
    _, text = read(glyphs_report)
    assert "This is not MNIST" in text
    assert "Values are means of 2 seeds" in text
    assert "None of the paper's data sets was run here" in text
    assert "paper's best" not in text
    assert "22 finished, 4 diverged" in text


def test_page_one_seed_states_limits(paper_report):
    _, text = read(paper_report)
    assert "Every value has one seed" in text
    assert "Neither confirmed nor refuted yet: of the 94 values that the paper prints" in text
    assert "of its 16 claims, each data set counted, 0 hold, 0 do not, 4 are undecided" in text
    assert "C9 follows from a formula of the method" in text
    assert "ours of as few as 1" in text
    assert "5 of 5 grids are incomplete" in text
    assert "neither private nor an unbiased estimate" in text
    assert "Not run yet: Table 2 (MNIST, k = 7)" in text


def test_page_headlines_match_tables(paper_report, paper_store, study):
    _, text = read(paper_report)
    table = (paper_report / "tables" / "table_08.csv").read_text(encoding="utf-8")
    ours = {
        row["method"]: float(row["mean"])
        for row in csv.DictReader(table.splitlines())
        if row["epsilon"] == "9.0"
    }
    ranked = sorted(ours, key=ours.get)
    assert ranked[-1] == "online"
    assert f"Online has {ours['online']:.2f} %" in text
    assert f"{ours['online'] - ours[ranked[-2]]:.2f} points ahead of AdamWOSM" in text
    # The budget file has a grid that was not run: 4.008 / 1.498.
    assert "81 runs needs 2.68 times the noise of Online's grid of 9" in text


def test_page_template_text_escaped():
    template = build._environment().from_string("{{ text }}")
    assert template.render(text="A <b> & more") == "A &lt;b&gt; &amp; more"


def test_build_report_writes_three_table_formats(paper_report):
    names = {p.name for p in (paper_report / "tables").iterdir()}
    tables = [f"table_{n:02d}" for n in (1, 2, 3, 4, 8, 9, 10, 11, 12, 13)]
    tables += ["claims", "questions", "checkpoint_rules", "search_outcome", "figures"]
    tables += ["runs", "noise_multipliers", "search_cost", "accounting"]
    assert names == {f"{t}.{e}" for t in tables for e in ("md", "csv", "tex")}


def test_build_report_same_results_identical(glyphs_store, study, tmp_path, monkeypatch):
    """Two reports of the same results have identical files, here with one kind of figure."""
    curves = [plan for plan in every_figure(study(glyphs_store)) if plan.kind == "training"]
    monkeypatch.setattr(build, "every_figure", lambda _: curves)
    results = glyphs_store.write(tmp_path / "results")
    one, again = (build_report(results, tmp_path / name).parent for name in ("one", "again"))
    compared = [path for path in one.rglob("*") if path.suffix in SUFFIXES]
    assert {path.suffix for path in compared} == SUFFIXES
    for path in compared:
        assert (again / path.relative_to(one)).read_bytes() == path.read_bytes(), path.name


def one_line(error) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


def test_build_report_missing_results_raises(tmp_path):
    with pytest.raises(OsoError) as error:
        build_report(tmp_path / "nowhere", tmp_path / "report")
    assert str(tmp_path / "nowhere") in one_line(error)
    (tmp_path / "empty").mkdir()
    with pytest.raises(OsoError) as error:
        build_report(tmp_path / "empty", tmp_path / "report")
    assert str(tmp_path / "empty") in one_line(error)
    assert not (tmp_path / "report").exists()


def test_build_report_file_as_output_raises(tmp_path, store, monkeypatch):
    monkeypatch.setattr(build, "every_figure", lambda study: [])  # no figure
    store.add()
    results = store.write(tmp_path / "results")
    (tmp_path / "report").write_text("a file, no folder")
    with pytest.raises(OsoError) as error:
        build_report(results, tmp_path / "report")
    assert "must be a folder" in one_line(error)
    assert (tmp_path / "report").read_text() == "a file, no folder"
