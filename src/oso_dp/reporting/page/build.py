"""The report: tables, figures and one self-contained page, from a results folder alone."""

from collections.abc import Sequence
from pathlib import Path

from oso_dp.analysis.accounts import account_grids, check_budgets
from oso_dp.analysis.claims import judge_claims
from oso_dp.analysis.load import read_result_set
from oso_dp.analysis.result_set import read_study_plans
from oso_dp.output_paths import check_folder
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.figures import every_plan, write_figures
from oso_dp.reporting.figures.parallel import draw_in_background
from oso_dp.reporting.page.render import render
from oso_dp.reporting.report_folder import ReportFolder, check_place
from oso_dp.reporting.table_format import write_table
from oso_dp.reporting.tables import every_table

PAGE = "index.html"


def build_report(
    results: Path, output: Path, budgets: Sequence[Path] = (), title: str | None = None
) -> Path:
    """Write tables/, figures/ and index.html below `output`; returns the page's path.

    The privacy account of every grid is recomputed from its ledgers. Files are replaced atomically
    one by one, after all are made.

    Args:
        results: The results folder.
        output: The report's folder.
        budgets: See `analysis.load.read_result_set`; with a plan, the noise of cohorts that were
            not run is shown as well.
        title: Title of the page; a default if None.

    Raises:
        OsoError: Results are missing, empty or of another schema; a ledger is malformed,
            contradicts its row or exceeds its budget; a budget file is malformed; or the output
            folder is not writable or contains other files than these results' previous report.
    """
    check_folder(output, "report")  # now, not after a minute of drawing
    check_place(output, results)
    study = read_result_set(results, budgets)
    accounts = account_grids(study.runs, *read_study_plans(budgets))
    check_budgets(accounts)
    plans = list(every_plan(study))
    with draw_in_background(plans) as figures:
        claims = judge_claims(study)
        folder = ReportFolder(output, results)
        pictures = write_figures(plans, figures, folder)
    sources = ReportContext(study, accounts, claims, [picture.name for picture in pictures])
    tables = {table.name: table for table in every_table(sources)}
    for table in tables.values():
        write_table(table, folder)
    written = folder.write(PAGE, render(sources, tables, pictures, title))
    folder.finish()
    return written
