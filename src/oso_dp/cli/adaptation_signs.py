"""`oso diagnose signs`: signs that adapt C and rho, with and without noise, on public data."""

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
from oso_dp.errors import OsoError


def signs(
    plan: PlanFile,
    cohort: TrainedCohort,
    data: DataFile,
    output: SharedOutput,
    learning_rate: InitialLearningRate = None,
    steps: Annotated[
        int | None, typer.Option(min=2, help="Stop after this step [the run's last step].")
    ] = None,
    threads: Threads = 1,
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
