"""`oso diagnose updates`: norms of users' updates during a run, on public data."""

from pathlib import Path
from typing import Annotated

import typer

from oso_dp.option_types import MAX_AT_ONCE


def updates(
    plan: Annotated[Path, typer.Option(help="Plan file, from `oso plan --output`.")],
    cohort: Annotated[str, typer.Option(help="Cohort whose run is trained.")],
    data: Annotated[Path, typer.Option(help="Data file, from `oso data`.")],
    output: Annotated[
        Path, typer.Option(help="CSV file to write; its rows of other runs are kept.")
    ],
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Initial learning rate of the run [the cohort's first run]."),
    ] = None,
    quantile: Annotated[
        float | None, typer.Option(help="Quantile of the run [the cohort's first run].")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Steps between two measurements.")] = 5,
    threads: Annotated[int, typer.Option(min=1, max=MAX_AT_ONCE, help="CPU threads.")] = 1,
) -> None:
    """Record the norms of all users' updates beside C, during a run that protects users.

    Reads the training data without privacy: for public data only.
    """
    import torch

    from oso_dp.cli.gpu import reserve_gpu
    from oso_dp.diagnostics.inputs import find_run, read_inputs
    from oso_dp.diagnostics.record import write_update_norms
    from oso_dp.diagnostics.update_norms import measure_update_norms
    from oso_dp.output_paths import check_output, is_table
    from oso_dp.results.write import writing
    from oso_dp.training.job import make_task

    # Check the output before minutes of work.
    check_output(
        output,
        "a table of update norms",
        is_table(["dataset", "model", "method", "k", "epsilon", "quantile"]),
        [plan, data],
    )
    chosen, device, arrays = read_inputs(plan, cohort, data, unit="user")
    run = find_run(chosen, learning_rate=learning_rate, quantile=quantile)
    torch.set_num_threads(threads)
    with reserve_gpu(device):
        rows = list(measure_update_norms(make_task(chosen, device), run, arrays, every))
    with writing(output):
        write_update_norms(output, chosen, run, rows)
