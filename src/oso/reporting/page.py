"""The report: tables, figures and one self-contained page, from a results folder alone."""

import base64
from importlib.resources import files
from pathlib import Path

import jinja2
import pandas as pd

from oso.reporting import labels
from oso.reporting.accounts import accounting_table, statement
from oso.reporting.budget import read_budget, read_study_plan
from oso.reporting.compare import Study
from oso.reporting.cosine import COSINE, read_cosine
from oso.reporting.figure_list import figures_table
from oso.reporting.figures import settings, write_figures
from oso.reporting.files import ReportFolder
from oso.reporting.headline import headlines, paper_says
from oso.reporting.load import load
from oso.reporting.paper import DATASETS, find_table
from oso.reporting.pictures import Picture
from oso.reporting.prices import PRICES, price_table, read_prices
from oso.reporting.render import Table, text, write_table
from oso.reporting.stopping import outcome_table
from oso.reporting.tables import (
    RULE_NOTE,
    SEEDS_NOTE,
    comparison_tables,
    noise_table,
    runs_table,
)
from oso.results.account import account

TITLE = "Online Sensitivity Optimization: the results"
PAGE = "index.html"


def build_report(
    results: Path, output: Path, budget: Path | None = None, title: str | None = None
) -> Path:
    """Write tables/, figures/ and index.html below `output`; returns the page's path.

    results: folder with the tables runs and evaluations. budget: JSON with each grid's runs and
    noise multiplier (see `reporting.budget`), so that cohorts that were not run show their price.
    Every grid is accounted for anew from its ledgers. What searches cost is taken from prices.csv
    where the results folder has one (see `reporting.prices`), and computed where not.
    Files are replaced one by one and atomically, the page last; files that no report made stay.
    Raises OsoError for results that are missing, empty or of another schema, for a ledger that is
    broken or contradicts its row, for a broken budget, and for an output folder that cannot be
    written.
    """
    runs, evaluations = load(results)
    study = Study(
        runs,
        evaluations,
        read_budget(budget),
        read_prices(Path(results) / PRICES),
        read_cosine(Path(results) / COSINE),
    )
    accounts = account(runs, read_study_plan(budget))
    comparisons = comparison_tables(study)
    folder = ReportFolder(output)
    others = {
        "ran": runs_table(study),
        "noise": noise_table(study),
        "price": price_table(study),
        "outcome": outcome_table(study),
        "accounting": accounting_table(accounts),
    }
    for table in (*comparisons, *others.values()):
        write_table(table, folder)
    pictures = write_figures(study, folder)
    if set(study.datasets) & set(DATASETS):
        others["figures"] = figures_table(study, pictures)
        write_table(others["figures"], folder)
    page = _render(study, comparisons, others, pictures, title or TITLE, statement(accounts))
    written = folder.write(PAGE, page)
    folder.finish()
    return written


def _render(
    study: Study,
    comparisons: list[Table],
    others: dict[str, Table],
    pictures: list[Picture],
    title: str,
    accounted: str,
) -> str:
    source = (files("oso.reporting") / "page.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["cell"] = text
    environment.filters["png"] = lambda png: base64.b64encode(png).decode("ascii")
    sections = _sections(study, comparisons, pictures)
    shown = {section["table"].name for section in sections}
    return environment.from_string(source).render(
        title=title,
        headlines=headlines(study),
        notes=[labels.DATASET_NOTES[d] for d in study.datasets if d in labels.DATASET_NOTES],
        datasets=[labels.dataset_label(d) for d in study.datasets],
        paper_says=paper_says(),
        comparable=bool(set(study.datasets) & set(DATASETS)),
        sections=sections,
        unrun=[
            {"table": t, "pictures": [p for p in pictures if not p.ours and _about(p, t)]}
            for t in comparisons
            if t.name not in shown
        ],
        said_elsewhere={RULE_NOTE, SEEDS_NOTE, *labels.DATASET_NOTES.values()},
        noise_pictures=[p for p in pictures if p.kind == "noise"],
        price_pictures=[p for p in pictures if p.kind == "price"],
        cosine_pictures=[p for p in pictures if p.kind == "cosine"],
        provenance=provenance(study.runs),
        statement=accounted,
        **others,
    )


def _sections(study: Study, comparisons: list[Table], pictures: list[Picture]) -> list[dict]:
    """One section per data set and k that was run: its table and its figures."""
    by_name = {table.name: table for table in comparisons}
    sections = []
    for dataset, k in settings(study):
        reference = find_table(dataset, k)
        name = f"table_{reference.number:02d}" if reference else f"{dataset}_k{k}"
        mine = [p for p in pictures if (p.dataset, p.k) == (dataset, k) and p.ours]
        sections.append(
            {
                "heading": f"{labels.dataset_label(dataset)}, k = {k}",
                "table": by_name[name],
                "first": [p for p in mine if p.kind == "metric"],
                "rest": [p for p in mine if p.kind != "metric"],
            }
        )
    return sections


def _about(picture: Picture, table: Table) -> bool:
    reference = find_table(picture.dataset, picture.k) if picture.k is not None else None
    return reference is not None and table.name == f"table_{reference.number:02d}"


def provenance(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """Where the rows come from: pairs of a name and its values."""
    names = {
        "package version": "package_version",
        "code hash": "code_hash",
        "torch version": "torch_version",
        "device": "device",
        "delta": "delta",
        "pricing of the search": "selection",
        "sampling": "sampling",
        "batch size (expected)": "batch_size",
        "epochs": "epochs",
    }
    pairs = []
    for label, column in names.items():
        values = sorted(runs[column].dropna().unique())
        shown = ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
        pairs.append((label, shown or labels.NOTHING))
    total = runs["wall_seconds"].sum()
    pairs.append(("runs", f"{len(runs):,}, {labels.duration(total)} in sum"))
    return pairs
