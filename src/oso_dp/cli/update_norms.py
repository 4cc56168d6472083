"""`oso diagnose updates`: norms of users' updates during a run, on public data."""

from typing import Annotated

import typer

from oso_dp.cli.shared_options import (
    DataFile,
    InitialLearningRate,
    PlanFile,
    SharedOutput,
    Threads,
    TrainedCohort,
)


def updates(
    plan: PlanFile,
    cohort: TrainedCohort,
    data: DataFile,
    output: SharedOutput,
    learning_rate: InitialLearningRate = None,
    quantile: Annotated[
        float | None, typer.Option(help="Quantile of the run [the cohort's first run].")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Steps between two measurements.")] = 5,
    threads: Threads = 1,
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
