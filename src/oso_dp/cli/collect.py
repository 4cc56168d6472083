"""`oso collect`: parts into a results store."""

from pathlib import Path
from typing import Annotated

import typer


def collect(
    parts: Annotated[list[Path], typer.Argument(help="Folders that `oso train` wrote.")],
    store: Annotated[Path, typer.Option(help="Results folder to add them to.")],
    plan: Annotated[Path | None, typer.Option(help="Fail unless all its runs are there.")] = None,
    data: Annotated[
        list[Path] | None, typer.Option(help="Prepared texts, for the share of words known.")
    ] = None,
) -> None:
    """Add parts to the results store, each run once."""
    from oso_dp.results.collect import collect as collect_parts
    from oso_dp.results.facts import keep_facts
    from oso_dp.study.plan import read_plan

    expected = () if plan is None else read_plan(plan).run_ids()
    results = collect_parts(parts, store, expected)
    keep_facts(store, data or [])
    print(f"{store}: {len(results.runs):,} runs, {len(results.evaluations):,} evaluations")
