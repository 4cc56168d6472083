"""The report: tables, figures and one self-contained page, from a results folder alone."""

import base64
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import jinja2
import pandas as pd

from oso_dp import labels
from oso_dp.analysis import evidence, verdicts
from oso_dp.analysis.accounts import account, require_within
from oso_dp.analysis.budgets import read_study_plans
from oso_dp.analysis.cell_verdicts import judged_cells
from oso_dp.analysis.cells import settings
from oso_dp.analysis.claims import judged
from oso_dp.analysis.load import read_study
from oso_dp.analysis.study import Study
from oso_dp.paper.tables import PaperTable, find_table, paper_tables
from oso_dp.reporting.figures import every_plan, write_figures
from oso_dp.reporting.figures.drawing import drawn_beside
from oso_dp.reporting.figures.picture import Picture
from oso_dp.reporting.folder import ReportFolder
from oso_dp.reporting.page.headline import best_method, headlines, paper_says
from oso_dp.reporting.sources import Sources
from oso_dp.reporting.table import Table, headings, text, write_table
from oso_dp.reporting.tables import every_table
from oso_dp.reporting.tables.accounting import statement
from oso_dp.reporting.tables.cells import RULE_NOTE, SEEDS_NOTE
from oso_dp.reporting.tables.checkpoint_rules import rules_sentence

TITLE = "Online Sensitivity Optimization: the results"
# Tables to which page.html.j2 gives a place; others come after the comparisons.
_PLACED = {
    *("claims", "questions", "table_01", "runs", "noise_multipliers", "search_cost"),
    *("search_outcome", "figures", "accounting", "checkpoint_rules"),
}
PAGE = "index.html"


def build_report(
    results: Path, output: Path, budgets: Sequence[Path] = (), title: str | None = None
) -> Path:
    """Write tables/, figures/ and index.html below `output`; returns the page's path.

    results, budgets: see `analysis.load.read_study`; with a plan among the budgets, cohorts that
    were not run show their noise. Every grid is accounted for anew from its ledgers.
    Files are replaced one by one and atomically, the page last; files that no report made stay.
    Raises OsoError for results that are missing, empty or of another schema, for a ledger that is
    broken, contradicts its row or exceeds its budget, for a broken budget file, and for an output
    folder that cannot be written.
    """
    study = read_study(results, budgets)
    accounts = account(study.runs, *read_study_plans(budgets))
    require_within(accounts)
    plans = list(every_plan(study))
    with drawn_beside(plans) as figures:
        claims = judged(study)
        folder = ReportFolder(output)
        pictures = write_figures(plans, figures, folder)
    sources = Sources(study, accounts, claims, [picture.name for picture in pictures])
    tables = {table.name: table for table in every_table(sources)}
    for table in tables.values():
        write_table(table, folder)
    written = folder.write(PAGE, _render(sources, tables, pictures, title or TITLE))
    folder.finish()
    return written


def _render(
    sources: Sources, tables: Mapping[str, Table], pictures: list[Picture], title: str
) -> str:
    study = sources.study
    source = (files("oso_dp.reporting.page") / "page.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["cell"] = text
    environment.filters["headings"] = headings
    environment.filters["mark"] = _mark
    environment.filters["png"] = lambda png: base64.b64encode(png).decode("ascii")
    sections = sections_of(study, tables, pictures)
    placed = {*_PLACED, *(section["table"].name for section in sections)}
    unrun = [
        tables[name] for table in paper_tables() if (name := _name(table)) in {*tables} - placed
    ]
    placed |= {table.name for table in unrun}
    return environment.from_string(source).render(
        title=title,
        tables=tables,
        headlines=headlines(study, sources.claims),
        statement=statement(sources.accounts),
        notes=[labels.DATASET_NOTES[d] for d in study.datasets if d in labels.DATASET_NOTES],
        datasets=[labels.dataset_label(d) for d in study.datasets],
        paper_says=paper_says(),
        sections=sections,
        unrun=[
            {"table": t, "pictures": [p for p in pictures if not p.ours and _about(p, t)]}
            for t in unrun
        ],
        more_tables=[table for name, table in tables.items() if name not in placed],
        said_elsewhere={
            *(RULE_NOTE, SEEDS_NOTE, verdicts.VALUE_RULE, verdicts.POINT_RULE),
            *labels.DATASET_NOTES.values(),
        },
        value_rule=verdicts.VALUE_RULE,
        point_rule=verdicts.POINT_RULE,
        rules_sentence=rules_sentence(study),
        noise_pictures=[p for p in pictures if p.kind == "noise"],
        cost_pictures=[p for p in pictures if p.kind == "search_cost"],
        cosine_pictures=[p for p in pictures if p.kind == "cosine"],
        # Of no data set at one k, and of no kind that has a section.
        more_pictures=[
            p for p in pictures if p.k is None and p.kind not in ("noise", "search_cost", "cosine")
        ],
        provenance=provenance(study.runs),
    )


def _mark(cell: str) -> str:
    """How a cell looks: verdicts in colour, what was not run in grey."""
    word = cell.split(" (")[0]
    if word == verdicts.NOT_RUN:
        return "idle"
    if word in (verdicts.CONSISTENT, verdicts.SAME, verdicts.AS_GOOD, evidence.HOLDS):
        return "yes"
    return "no" if word in (*_DIFFERENT, evidence.FAILS) else ""


_DIFFERENT = (
    *(verdicts.BETTER, verdicts.WORSE, verdicts.DIVERGED, verdicts.TRAINS, verdicts.OTHER),
)


def sections_of(study: Study, tables: Mapping[str, Table], pictures: list[Picture]) -> list[dict]:
    """One section per data set and k that was run: its table and its figures."""
    sections = []
    for dataset, k in settings(study):
        reference = find_table(dataset, k)
        name = _name(reference) if reference else f"{dataset}_k{k}"
        cells = judged_cells(study, dataset, k)
        mine = [p for p in pictures if (p.dataset, p.k) == (dataset, k) and p.ours]
        sections.append(
            {
                "heading": f"{labels.dataset_label(dataset)}, k = {k}",
                "table": tables[name],
                "best": best_method(cells[cells["in_paper"] | (reference is None)]),
                "first": [p for p in mine if p.kind == "metric"],
                "rest": [p for p in mine if p.kind != "metric"],
            }
        )
    return sections


def _about(picture: Picture, table: Table) -> bool:
    reference = find_table(picture.dataset, picture.k) if picture.k is not None else None
    return reference is not None and table.name == _name(reference)


def _name(table: PaperTable) -> str:
    return f"table_{table.number:02d}"


def provenance(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """Where the rows come from: pairs of a name and its values."""
    names = {
        "package version": "package_version",
        "code hash": "code_hash",
        "torch version": "torch_version",
        "device": "device",
        "delta": "delta",
        "how tuning is accounted for": "selection",
        "sampling": "sampling",
        "batch size (expected)": "batch_size",
        "epochs": "epochs",
    }
    pairs = []
    for label, column in names.items():
        values = sorted(runs[column].dropna().unique())
        text = ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
        pairs.append((label, text or labels.NOTHING))
    total = runs["wall_seconds"].sum()
    pairs.append(("runs", f"{len(runs):,}, {labels.duration(total)} in sum"))
    return pairs
