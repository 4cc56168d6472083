"""`oso diagnose signs`: signs that adapt C and rho, with and without noise, on public data."""

from pathlib import Path
from typing import Annotated

import typer

from oso_dp.errors import OsoError
from oso_dp.option_types import MAX_AT_ONCE


def signs(
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
    steps: Annotated[
        int | None, typer.Option(min=2, help="Stop after this step [the run's last step].")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, max=MAX_AT_ONCE, help="CPU threads.")] = 1,
) -> None:
    """Record the signs that adapt Online's C and rho, with and without noise, at every step.

    Reads the training data without privacy: for public data only.
    """
    import torch

    from oso_dp.cli.gpu import reserve_gpu
    from oso_dp.diagnostics.inputs import find_run, read_inputs
    from oso_dp.diagnostics.record import write_signs
    from oso_dp.diagnostics.signs import measure_signs as follow
    from oso_dp.output_paths import check_output, is_table
    from oso_dp.results.write import writing
    from oso_dp.training.job import make_task

    # Check the output before minutes of work.
    check_output(
        output,
        "a table of signs",
        is_table(["dataset", "method", "k", "epsilon", "run_id"]),
        [plan, data],
    )
    chosen, device, arrays = read_inputs(plan, cohort, data)
    last = chosen.steps if steps is None else steps
    if last > chosen.steps:
        raise OsoError(f"--steps: {steps}; must be <= {chosen.steps}, the steps of the run")
    run = find_run(chosen, learning_rate=learning_rate)
    torch.set_num_threads(threads)
    task = make_task(chosen, device)
    rows = []
    with reserve_gpu(device):
        for row in follow(task, run, arrays, last):
            rows.append(row)
            if row.step % 50 == 0 or row.step == last:  # intermediate results
                with writing(output):
                    write_signs(output, chosen, run, rows)
