"""`oso collect`: merge the output folders of training jobs into a results store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pandas as pd


def collect(
    parts: Annotated[list[Path], typer.Argument(help="Output folders of `oso train`.")],
    store: Annotated[Path, typer.Option(help="Results store to add them to.")],
    plan: Annotated[
        Path | None, typer.Option(help="Fail unless all runs of this plan are present.")
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Data files of texts, to store their vocabulary coverage."),
    ] = None,
) -> None:
    """Add the runs of training jobs to the results store, each run once."""
    from oso_dp.analysis.accounts import account_grids, check_budgets
    from oso_dp.results.collect import collect as collect_parts
    from oso_dp.results.vocabulary_coverage import store_coverage
    from oso_dp.study.plan import find_plans, read_plan

    plans = [] if plan is None else [read_plan(plan)]
    expected = [run_id for one in plans for run_id in one.run_ids()]
    known = [*plans, *map(read_plan, find_plans(store))]

    def check(runs: pd.DataFrame) -> None:
        check_budgets(account_grids(runs, *known))

    results = collect_parts(parts, store, expected, check)
    store_coverage(store, data or [])
    print(f"{store}: {len(results.runs):,} runs, {len(results.evaluations):,} evaluations")
