"""Render the report's page as one self-contained HTML file."""

import re
from collections.abc import Mapping
from importlib.resources import files

import jinja2
import pandas as pd

from oso_dp import labels
from oso_dp.analysis import claim_tests, verdicts
from oso_dp.analysis.study_statement import make_stored_statements
from oso_dp.analysis.verdicts import verdict_matrix
from oso_dp.paper.tables import DATASETS
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.figures.figure_spec import WrittenFigure
from oso_dp.reporting.page import matrix, summary_text
from oso_dp.reporting.page.provenance import devices, made_on, provenance
from oso_dp.reporting.page.sections import find_missing_tables, make_sections
from oso_dp.reporting.table_format import Table, headings, text
from oso_dp.reporting.tables.accounting import statement
from oso_dp.reporting.tables.cells import RULE_NOTE, SEEDS_NOTE
from oso_dp.reporting.tables.checkpoint_rules import rules_sentence
from oso_dp.reporting.tables.claims import in_short

PAPER_URL = "https://doi.org/10.1609/aaai.v38i11.29099"
# Tables that page.html.j2 places by name; others go to the appendices.
_PLACED = {
    *("claims", "questions", "table_01", "runs", "noise_multipliers", "search_cost"),
    *("search_outcome", "no_search", "one_budget", "linear_scaling"),
    *("figures", "accounting", "checkpoint_rules", "beyond"),
}
# Page slot -> kinds of its figures; others go to the slot "more".
_PAGE_SLOTS = {
    "noise": ["noise"],
    "cost": ["search_cost"],
    "guesses": ["no_search"],
    "budgets": ["one_budget"],
    "cosines": ["cosine"],
    "steering": ["steering", "signs"],
}
_FOLDER = files("oso_dp.reporting.page")


def render(
    sources: ReportContext,
    tables: Mapping[str, Table],
    pictures: list[WrittenFigure],
    title: str | None,
) -> str:
    """The page of a report.

    tables: from `tables.every_table`, by name. pictures: the drawn figures. title: overrides the
    default title.
    """
    study = sources.study
    sections = make_sections(study, tables, pictures)
    unrun = find_missing_tables(tables, {section.table.name for section in sections}, pictures)
    placed = _PLACED | {section.table.name for section in sections}
    placed |= {part.table.name for part in unrun}
    papers = bool(set(study.datasets) & set(DATASETS))
    verdict = verdict_matrix(study) if papers else None
    claims, questions = (in_short(sources.claims, initial) for initial in "CQ")
    short = [section for section in sections if not section.is_complete]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=title or ("Online Sensitivity Optimization: " + _SUBTITLE[papers]),
            style=_asset("style.css"),
            library=_asset("vendor/dataTables.min.js"),
            script=_asset("script.js"),
            paper_url=PAPER_URL,
            date=made_on(),
            devices=devices(study.runs),
            scope=summary_text.run_summary_text(study),
            verdict=summary_text.verdict_text(study, sources.claims),
            matrix=None if verdict is None else matrix.make_blocks(verdict),
            matrix_legend="" if verdict is None else matrix.legend(verdict),
            findings=summary_text.findings_text(study, sources.claims),
            paper_says=summary_text.paper_ranking_text(),
            tables=tables,
            claims_short=claims,
            claims_anchors=dict(enumerate(claims.iloc[:, 0])),
            questions_short=questions,
            questions_anchors=dict(enumerate(questions.iloc[:, 0])),
            sections=[section for section in sections if section.is_complete],
            short=short,
            short_title="Shorter runs: " + ", ".join(section.heading for section in short),
            unrun=unrun,
            beyond=tables.get("beyond"),
            more_tables=[table for name, table in tables.items() if name not in placed],
            said_elsewhere={
                *(
                    RULE_NOTE,
                    SEEDS_NOTE,
                    verdicts.VALUE_RULE,
                    verdicts.POINT_RULE,
                ),
                *labels.DATASET_NOTES.values(),
            },
            value_rule=verdicts.VALUE_RULE,
            point_rule=verdicts.POINT_RULE,
            statement=statement(sources.accounts),
            promises=[
                str(promise).splitlines()
                for promise in make_stored_statements(study.runs, sources.accounts)
            ],
            only_shared=study.has_only_shared_budgets,
            rules_sentence=rules_sentence(study),
            datasets=[labels.dataset_label(d) for d in study.datasets],
            pictures=_by_place(pictures),
            appendices=_appendices(tables, bool(unrun)),
            provenance=provenance(study.runs),
        )
    )


def _by_place(pictures: list[WrittenFigure]) -> dict[str, list[WrittenFigure]]:
    places = {name: [p for p in pictures if p.kind in kinds] for name, kinds in _PAGE_SLOTS.items()}
    placed = {kind for kinds in _PAGE_SLOTS.values() for kind in kinds}
    # Figures of a data set at one k are in its section.
    more = [p for p in pictures if p.k is None and p.kind not in placed]
    return places | {"more": more}


_SUBTITLE = {True: "state of the reproduction", False: "the results"}


def _appendices(tables: Mapping[str, Table], unrun: bool) -> list[tuple[str, str]]:
    """The appendices of the page: anchor and short name."""
    headings = {
        "rules": "Verdicts",
        "paper-figures": "The paper's figures",
        "privacy": "Privacy",
        "checkpoints": "Checkpoints",
        "runs-list": "Runs",
        "data": "Data and models",
        "paper-only": "Not run",
        "provenance": "Provenance",
    }
    present = {"paper-figures": "figures" in tables, "paper-only": unrun}
    return [(name, heading) for name, heading in headings.items() if present.get(name, True)]


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["cell"] = text
    environment.filters["headings"] = headings
    environment.filters["look"] = _css_class
    environment.filters["numbered"] = _numbered
    environment.filters["order"] = _order
    return environment


def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


_MAX_UNBROKEN = 26  # characters of a cell without line breaks


def _css_class(cell: str) -> str:
    """A cell's CSS class: coloured verdicts, grey cells without runs, wrapped long texts."""
    word = cell.split(" (")[0]
    classes = [css_class] if (css_class := _CSS_CLASSES.get(word)) else []
    if len(cell) > _MAX_UNBROKEN:
        classes.append("long")
    return " ".join(classes)


_CSS_CLASSES = {
    **{word: css_class for word, (_, css_class) in matrix.GLYPHS.items()},
    claim_tests.HOLDS: "yes",
    claim_tests.FAILS: "no",
}


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
