"""The report: tables, figures and one self-contained page, from a results folder alone."""

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import jinja2
import pandas as pd

from oso_dp import labels
from oso_dp.analysis import claim_tests
from oso_dp.analysis.accounts import account_store, check_budgets
from oso_dp.analysis.cells import NOT_RUN, has_paper_length, list_panels
from oso_dp.analysis.claims import judge_claims
from oso_dp.analysis.load import read_result_set
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.study_statement import make_stored_statements
from oso_dp.analysis.verdicts import POINT_RULE, VALUE_RULE, judge_cells, verdict_matrix
from oso_dp.output_paths import check_folder
from oso_dp.paper.tables import DATASETS, PaperTable, find_table, paper_tables
from oso_dp.privacy.promise import EXAMPLE
from oso_dp.reporting.figures import every_figure
from oso_dp.reporting.figures.files import WrittenFigure, draw_in_background, write_figures
from oso_dp.reporting.page import matrix, summary_text
from oso_dp.reporting.report_folder import ReportFolder, check_place
from oso_dp.reporting.table import ReportContext, Table, headings, text, write_table
from oso_dp.reporting.tables import every_table
from oso_dp.reporting.tables.accounting import statement
from oso_dp.reporting.tables.cells import RULE_NOTE, SEEDS_NOTE
from oso_dp.reporting.tables.claims import in_short
from oso_dp.reporting.tables.study import rules_sentence
from oso_dp.study.plan import read_plan

PAGE = "index.html"
PAPER_URL = "https://doi.org/10.1609/aaai.v38i11.29099"
_SUBTITLE = {True: "state of the reproduction", False: "the results"}
# Tables that page.html.j2 places by name; others go to the appendices.
_PLACED = {
    *("claims", "questions", "table_01", "runs", "noise_multipliers", "search_cost", "figures"),
    *("search_outcome", "untuned_runs", "budget_strategies", "linear_scaling", "other_methods"),
    *("accounting", "checkpoint_rules"),
}
# Kinds of figures that page.html.j2 places; others that are in no section follow the results.
_KINDS = [
    *("overview", "training", "adaptation", "signs", "noise", "search_cost", "cosine"),
    *("untuned_runs", "budget_strategies"),
]
_MAX_ROWS = 80  # of a table in the page; a longer one is linked
_MAX_UNBROKEN = 14  # characters of a cell without line breaks
_FOLDER = files("oso_dp.reporting.page")


def build_report(results: Path, output: Path, plan_files: Sequence[Path] = ()) -> Path:
    """Write tables/, figures/ and index.html below `output`; returns the page's path.

    The privacy account of every grid is recomputed from its ledgers. Files are replaced atomically
    one by one, after all are made.

    Args:
        results: The results folder.
        output: The report's folder.
        plan_files: Plans of the study; the noise of cohorts that were not run is shown as well.

    Raises:
        OsoError: Results are missing, empty or of another schema; a ledger is malformed,
            contradicts its row or exceeds its budget; a plan is malformed; or the output
            folder is not writable or contains other files than these results' previous report.
    """
    check_folder(output, "report")  # now, not after a minute of drawing
    check_place(output, results)
    plans = [read_plan(path) for path in plan_files]
    study = read_result_set(results, plans)
    accounts = account_store(results, study.runs, *plans)
    check_budgets(accounts)
    specs = every_figure(study)
    with draw_in_background(specs) as figures:
        claims = judge_claims(study)
        folder = ReportFolder(output, results)
        pictures = write_figures(specs, figures, folder)
    context = ReportContext(study, accounts, claims, [picture.spec.name for picture in pictures])
    tables = {table.name: table for table in every_table(context)}
    for table in tables.values():
        write_table(table, folder)
    written = folder.write(PAGE, render(context, tables, pictures))
    folder.finish()
    return written


@dataclass(frozen=True)
class Section:
    """A data set at a k: its table, the visible figures and the folded ones."""

    id: str
    heading: str
    table: Table
    best: str | None
    first: list[WrittenFigure]
    rest: list[WrittenFigure]
    is_complete: bool  # whether any of its runs are as long as the paper's
    note: str | None


@dataclass(frozen=True)
class MissingTable:
    """A table of the paper without runs."""

    table: Table
    short: str
    pictures: list[WrittenFigure]


def make_sections(
    study: ResultSet, tables: Mapping[str, Table], pictures: Sequence[WrittenFigure]
) -> list[Section]:
    """One section per data set and k that was run."""
    sections = []
    noted = set()
    for dataset, k in list_panels(study):
        reference = find_table(dataset, k)
        cells = judge_cells(study, dataset, k)
        ran = cells[cells["status"] != NOT_RUN]
        drawn = [p for p in _about(pictures, dataset, k) if p.spec.measured]
        sections.append(
            Section(
                f"{dataset}-k{k}",
                f"{labels.dataset_label(dataset)}, k = {k}",
                tables[_name(reference) if reference else f"{dataset}_k{k}"],
                summary_text.best_method_text(cells[cells["in_paper"] | (reference is None)]),
                [p for p in drawn if p.spec.kind == "metric"],
                [p for p in drawn if p.spec.kind != "metric"],
                any(has_paper_length(dataset, epochs) for epochs in ran["epochs"]),
                None if dataset in noted else labels.DATASET_NOTES.get(dataset),
            )
        )
        noted.add(dataset)
    return sections


def find_missing_tables(
    tables: Mapping[str, Table], run: set[str], pictures: Sequence[WrittenFigure]
) -> list[MissingTable]:
    """The paper's tables without a section; run: names of the tables with one."""
    return [
        MissingTable(
            tables[_name(table)],
            f"Table {table.number} ({labels.dataset_short(table.dataset)}, k = {table.k})",
            [p for p in _about(pictures, table.dataset, table.k) if not p.spec.measured],
        )
        for table in paper_tables()
        if _name(table) in tables and _name(table) not in run
    ]


def _about(pictures: Sequence[WrittenFigure], dataset: str, k: int) -> list[WrittenFigure]:
    return [p for p in pictures if (p.spec.dataset, p.spec.k) == (dataset, k)]


def _name(table: PaperTable) -> str:
    return f"table_{table.number:02d}"


def render(
    context: ReportContext,
    tables: Mapping[str, Table],
    pictures: Sequence[WrittenFigure],
) -> str:
    """The page of a report.

    tables: from `tables.every_table`, by name. pictures: the drawn figures.
    """
    study, claims = context.study, context.claims
    sections = make_sections(study, tables, pictures)
    unrun = find_missing_tables(tables, {section.table.name for section in sections}, pictures)
    placed = {*_PLACED, *(s.table.name for s in sections), *(t.table.name for t in unrun)}
    has_paper = bool(set(study.datasets) & set(DATASETS))
    found = verdict_matrix(study) if has_paper else None
    shown = {p.spec.name for s in sections for p in (*s.first, *s.rest)}
    shown |= {p.spec.name for table in unrun for p in table.pictures}
    others = [p for p in pictures if p.spec.kind not in _KINDS and p.spec.name not in shown]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=f"Online Sensitivity Optimization: {_SUBTITLE[has_paper]}",
            asset=_asset,
            paper_url=PAPER_URL,
            date=made_on(),
            scope=summary_text.run_summary_text(study),
            verdict=summary_text.verdict_text(study, claims),
            matrix=None if found is None else matrix.make_blocks(found),
            matrix_legend="" if found is None else matrix.legend(found),
            findings=summary_text.findings_text(study, claims),
            paper_says=summary_text.paper_ranking_text(),
            tables={name: table for name, table in tables.items() if len(table.printed)},
            claims=in_short(claims, "C"),
            questions=in_short(claims, "Q"),
            sections=[section for section in sections if section.is_complete],
            short=[section for section in sections if not section.is_complete],
            unrun=unrun,
            more_tables=[t for name, t in tables.items() if name not in placed],
            # Notes that the page has once, in other words or in an appendix.
            said_elsewhere={
                *(RULE_NOTE, SEEDS_NOTE),
                *(VALUE_RULE, POINT_RULE),
                *labels.DATASET_NOTES.values(),
            },
            value_rule=VALUE_RULE,
            point_rule=POINT_RULE,
            statement=statement(context.accounts),
            promises=[
                str(promise).splitlines()
                for promise in make_stored_statements(study.runs, context.accounts)
            ],
            only_shared=study.has_only_shared_budgets,
            protected=" or ".join(
                f"training {name}" if name == EXAMPLE.name else name for name in study.units
            ),
            rules_sentence=rules_sentence(study),
            datasets=[labels.dataset_label(d) for d in study.datasets],
            pictures={kind: [p for p in pictures if p.spec.kind == kind] for kind in _KINDS},
            more_pictures=others,
            max_rows=_MAX_ROWS,
            provenance=provenance(study.runs),
        )
    )


def made_on() -> str:
    """The date of the report; from $SOURCE_DATE_EPOCH if set, for reproducible builds."""
    at = os.environ.get("SOURCE_DATE_EPOCH")
    return time.strftime("%Y-%m-%d", time.gmtime(int(at) if at else None))


def provenance(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """The provenance of the rows: pairs of a name and its values."""
    names = {
        "package version": "package_version",
        "code hash": "code_hash",
        "torch version": "torch_version",
        "device": "device",
        "delta": "delta",
        "search accounting": "search_accounting",
        "sampling": "sampling",
        "batch size (expected)": "batch_size",
        "epochs": "epochs",
    }
    pairs = []
    for label, column in names.items():
        values = sorted(runs[column].dropna().unique())
        shown = [str(v).removesuffix(".0") if isinstance(v, float) else str(v) for v in values]
        pairs.append((label, ", ".join(shown) or labels.DASH))
    total = runs["wall_seconds"].sum(min_count=1)
    time_taken = "" if labels.is_missing(total) else f", {labels.format_duration(total)} in total"
    return [*pairs, ("runs", f"{len(runs):,}{time_taken}")]


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "anchors": _anchors,
        "cell": text,
        "headings": headings,
        "css_class": _css_class,
        "numbered": _numbered,
        "order": _order,
    }
    return environment


def _anchors(printed: pd.DataFrame) -> dict[int, str]:
    return dict(enumerate(printed.iloc[:, 0]))


def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


_CSS_CLASSES = {
    **{word: css_class for word, (_, css_class) in matrix.GLYPHS.items()},
    claim_tests.HOLDS: "yes",
    claim_tests.FAILS: "no",
}


def _css_class(cell: str) -> str:
    """A cell's CSS class: coloured verdicts, grey cells without runs, wrapped long texts."""
    css_class = _CSS_CLASSES.get(cell.split(" (")[0], "")
    return f"{css_class} long".strip() if len(cell) > _MAX_UNBROKEN else css_class


def _numbered(printed: pd.DataFrame) -> list[int]:
    """The columns whose cells need an explicit sort key; plain numbers do not."""
    columns = [map(text, printed.iloc[:, place]) for place in range(printed.shape[1])]
    return [
        place for place, cells in enumerate(columns) if any(_order(cell) != cell for cell in cells)
    ]


def _order(cell: str) -> str:
    """The sort key of a cell: the number at its beginning, or an empty string."""
    number = re.match(r"[+−-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?", cell)
    return number[0].replace("−", "-").replace(",", "") if number else ""
