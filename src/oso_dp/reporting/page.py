"""The report: tables, figures and one self-contained page, from a results folder alone."""

import base64
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from oso_dp.paper.tables import DATASETS, find_table
from oso_dp.reporting import evidence, labels, verdicts
from oso_dp.reporting.accounts import accounting_table, statement
from oso_dp.reporting.budget import read_budget, read_study_plans
from oso_dp.reporting.claims import claims_tables, judged
from oso_dp.reporting.compare import Study, compare
from oso_dp.reporting.comparisons import RULE_NOTE, SEEDS_NOTE, comparison_tables
from oso_dp.reporting.cosine import COSINE, read_cosine
from oso_dp.reporting.data_table import data_table, read_facts
from oso_dp.reporting.figure_list import figures_table
from oso_dp.reporting.figures import settings, write_figures
from oso_dp.reporting.files import ReportFolder
from oso_dp.reporting.headline import best_method, headlines, paper_says
from oso_dp.reporting.load import load
from oso_dp.reporting.pictures import Picture
from oso_dp.reporting.prices import PRICES, price_table, read_prices
from oso_dp.reporting.render import Table, headings, text, write_table
from oso_dp.reporting.rules import rules_sentence, rules_table
from oso_dp.reporting.step_times import STEP_TIMES, read_step_times
from oso_dp.reporting.stopping import outcome_table
from oso_dp.reporting.tables import noise_table, runs_table
from oso_dp.results.account import account

TITLE = "Online Sensitivity Optimization: the results"
PAGE = "index.html"


def build_report(
    results: Path, output: Path, budgets: Sequence[Path] = (), title: str | None = None
) -> Path:
    """Write tables/, figures/ and index.html below `output`; returns the page's path.

    results: folder with the tables runs and evaluations, and perhaps data.json (`data_table`) and
    prices.csv, from which what searches cost is then taken (see `reporting.prices`).
    budgets: JSON files with each grid's runs and noise multiplier (see `reporting.budget`), so that
    cohorts that were not run show their price; of two that hold one grid the first counts.
    Every grid is accounted for anew from its ledgers.
    Files are replaced one by one and atomically, the page last; files that no report made stay.
    Raises OsoError for results that are missing, empty or of another schema, for a ledger that is
    broken or contradicts its row, for a broken budget, and for an output folder that cannot be
    written.
    """
    runs, evaluations = load(results)
    study = Study(
        runs,
        evaluations,
        read_budget(*budgets),
        read_prices(Path(results) / PRICES),
        read_cosine(Path(results) / COSINE),
        read_step_times(Path(results) / STEP_TIMES),
    )
    accounts = account(runs, *read_study_plans(budgets))
    comparisons = comparison_tables(study)
    claims = judged(study)
    folder = ReportFolder(output)
    others = {
        "data": data_table(study, read_facts(results)),
        "ran": runs_table(study),
        "rules": rules_table(study),
        "noise": noise_table(study),
        "price": price_table(study),
        "outcome": outcome_table(study),
        "accounting": accounting_table(accounts),
    }
    any_judged = (claims["verdict_best"] != evidence.NOT_RUN).any()
    claimed = claims_tables(claims) if any_judged or set(study.datasets) & set(DATASETS) else []
    for table in (*comparisons, *claimed, *others.values()):
        write_table(table, folder)
    pictures = write_figures(study, folder)
    if set(study.datasets) & set(DATASETS):
        others["figures"] = figures_table(study, pictures)
        write_table(others["figures"], folder)
    page = _render(
        study,
        comparisons,
        pictures,
        title=title or TITLE,
        headlines=headlines(study, claims),
        claims=claimed,
        statement=statement(accounts),
        **others,
    )
    written = folder.write(PAGE, page)
    folder.finish()
    return written


def _render(study: Study, comparisons: list[Table], pictures: list[Picture], **parts: Any) -> str:
    source = (files("oso_dp.reporting") / "page.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["cell"] = text
    environment.filters["headings"] = headings
    environment.filters["mark"] = _mark
    environment.filters["png"] = lambda png: base64.b64encode(png).decode("ascii")
    sections = _sections(study, comparisons, pictures)
    shown = {section["table"].name for section in sections}
    beyond = [t for t in comparisons if t.name == "beyond"]
    return environment.from_string(source).render(
        notes=[labels.DATASET_NOTES[d] for d in study.datasets if d in labels.DATASET_NOTES],
        datasets=[labels.dataset_label(d) for d in study.datasets],
        paper_says=paper_says(),
        sections=sections,
        beyond=beyond,
        unrun=[
            {"table": t, "pictures": [p for p in pictures if not p.ours and _about(p, t)]}
            for t in comparisons
            if t.name not in shown and t not in beyond
        ],
        said_elsewhere={
            *(RULE_NOTE, SEEDS_NOTE, verdicts.VALUE_RULE, verdicts.POINT_RULE),
            *labels.DATASET_NOTES.values(),
        },
        value_rule=verdicts.VALUE_RULE,
        point_rule=verdicts.POINT_RULE,
        rules_sentence=rules_sentence(study),
        noise_pictures=[p for p in pictures if p.kind == "noise"],
        price_pictures=[p for p in pictures if p.kind == "price"],
        cosine_pictures=[p for p in pictures if p.kind == "cosine"],
        # Of no data set at one k, and of no kind that has a section.
        more_pictures=[
            p for p in pictures if p.k is None and p.kind not in ("noise", "price", "cosine")
        ],
        provenance=provenance(study.runs),
        **parts,
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


def _sections(study: Study, comparisons: list[Table], pictures: list[Picture]) -> list[dict]:
    """One section per data set and k that was run: its table and its figures."""
    by_name = {table.name: table for table in comparisons}
    sections = []
    for dataset, k in settings(study):
        reference = find_table(dataset, k)
        name = f"table_{reference.number:02d}" if reference else f"{dataset}_k{k}"
        cells = compare(study, dataset, k)
        mine = [p for p in pictures if (p.dataset, p.k) == (dataset, k) and p.ours]
        sections.append(
            {
                "heading": f"{labels.dataset_label(dataset)}, k = {k}",
                "table": by_name[name],
                "best": best_method(cells[cells["in_paper"] | (reference is None)]),
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
