"""`oso account`: epsilon of each stored grid, recomputed from its ledgers."""

from pathlib import Path
from typing import Annotated

import typer

from oso_dp.cli.shared_options import ResultsArgument, ResultsOption, results_folder


def account(
    folder: ResultsArgument = None,
    results_option: ResultsOption = None,
    plan: Annotated[
        list[Path] | None,
        typer.Option(
            help="Plan that its runs must agree with; may be repeated [RESULTS/plan.json]."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Also write the table to this CSV file.")
    ] = None,
    all_accountants: Annotated[
        bool,
        typer.Option(
            "--all-accountants",
            help="PLD and PRV for every grid, not only for the most expensive of each data set.",
        ),
    ] = False,
) -> None:
    """Recompute each grid's epsilon from its ledgers; fail if one exceeds its budget.

    Private data have one budget for all runs on them.
    """
    from oso_dp.accounting.accountants import ACCOUNTANTS
    from oso_dp.accounting.formatting import format_epsilon_column
    from oso_dp.analysis.accounts import (
        GRID_KEYS,
        account_store,
        accounts_table,
        check_budgets,
    )
    from oso_dp.analysis.study_statement import make_stored_statements
    from oso_dp.cli.printing import print_table
    from oso_dp.files import atomic_write
    from oso_dp.output_paths import check_output, is_table
    from oso_dp.results.read import read_results
    from oso_dp.results.write import writing
    from oso_dp.study.plan import find_plans, read_plan

    results = results_folder(folder, results_option)
    paths = find_plans(results, plan)
    if output is not None:
        is_ours = is_table(["grid", "budget", "delta"])
        check_output(output, "a table of accounts", is_ours, paths)
    plans = [read_plan(path) for path in paths]
    runs = read_results(results).runs
    grids = account_store(results, runs, *plans)
    table = accounts_table(grids, all_accountants).drop(columns=GRID_KEYS)
    printed = table.copy()
    for name in ACCOUNTANTS:
        printed[name] = [format_epsilon_column(one) if one == one else "" for one in table[name]]
    printed["delta"] = [repr(float(delta)) for delta in table["delta"]]
    print_table(printed.columns, printed.itertuples(index=False))
    count = sum(not grid.total for grid in grids)
    if count or not grids:
        print(
            f"{results}: {count} private grids. The cost of a grid is that of its most expensive "
            "seed; runs that are not stored count as the most expensive stored one."
        )
    for statement in make_stored_statements(runs, grids):
        print(f"\n{statement}")
    if output is not None:
        with writing(output), atomic_write(output) as file:
            file.write(table.to_csv(index=False).encode())
    check_budgets(grids)
