"""`oso diagnose`: look into runs on public data, without privacy."""

from pathlib import Path
from typing import Annotated

import typer

from oso_dp.cli.shared_options import (
    DataFile,
    InitialLearningRate,
    PlanFile,
    ResultsArgument,
    SharedOutput,
    Threads,
    TrainedCohort,
    results_folder,
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
    from oso_dp.diagnostics.signs import measure_signs
    from oso_dp.output_paths import check_output, is_table
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
        for row in measure_signs(task, run, arrays, last):
            rows.append(row)
            if row.step % 50 == 0 or row.step == last:  # intermediate results
                write_signs(output, chosen, run, rows)


def cosine(
    plan: PlanFile,
    cohort: Annotated[str, typer.Option(help="Cohort whose first run is trained.")],
    data: DataFile,
    output: Annotated[Path, typer.Option(help="CSV file to write.")],
    steps: Annotated[
        list[int] | None,
        typer.Option(
            min=1, help="Step to measure; may be repeated [the paper's: 100, 250, 500, 750, 950]."
        ),
    ] = None,
    threads: Threads = 1,
) -> None:
    """Compare the sanitized gradient with the true one over C, during a run (the paper's Figure 1).

    At the same parameters, with the run's noise and with almost none. Reads the training data
    without privacy: for public data only.
    """
    import torch

    from oso_dp.cli.gpu import reserve_gpu
    from oso_dp.diagnostics.cosine import STEPS, TINY_NOISE, measure_similarities
    from oso_dp.diagnostics.inputs import read_inputs
    from oso_dp.diagnostics.record import write_similarities
    from oso_dp.output_paths import check_output, is_table
    from oso_dp.training.job import make_task

    # Check the output before half an hour of work.
    is_ours = is_table(["dataset", "model", "method"])
    check_output(output, "a table of cosines", is_ours, [plan, data])
    chosen, device, arrays = read_inputs(plan, cohort, data)
    at = tuple(steps or STEPS)
    if max(at) > chosen.steps and not steps:
        raise OsoError(
            f"--steps: missing; must be set and <= {chosen.steps}, the steps of the run, since the "
            f"default includes step {max(at)}"
        )
    if len(set(at)) != len(at) or max(at) > chosen.steps:
        named = ", ".join(map(str, at))
        raise OsoError(
            f"--steps: {named}; must be distinct and <= {chosen.steps}, the steps of the run"
        )
    torch.set_num_threads(threads)
    task = make_task(chosen, device)
    levels = list(dict.fromkeys((chosen.noise_multiplier, TINY_NOISE)))
    with reserve_gpu(device):
        rows = measure_similarities(task, chosen.runs[0], arrays, at, noise_multipliers=levels)
    write_similarities(output, chosen, task, rows)


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
    write_update_norms(output, chosen, run, rows)


def series(
    data: DataFile,
    output: SharedOutput,
    results: ResultsArgument = None,
    threads: Threads = 1,
) -> None:
    """Record the accuracy on the digits of students and of employees, who wrote MNIST's test set.

    Retrains the stored runs of each best grid point; those in the output are skipped.
    """
    import torch

    from oso_dp.analysis.load import read_result_set
    from oso_dp.analysis.side_measurements import WRITER_SERIES
    from oso_dp.data.arrays import load_arrays
    from oso_dp.data.mnist import TEST_SERIES_DATASETS
    from oso_dp.data.validation import load_prepared
    from oso_dp.diagnostics.record import write_series
    from oso_dp.diagnostics.writer_series import measure_series
    from oso_dp.output_paths import check_output, is_table
    from oso_dp.rerun.rerun import select_repeatable
    from oso_dp.training.job import make_task

    check_output(output, "a table of writer series", is_table(WRITER_SERIES.columns), [data])
    study = read_result_set(results_folder(results, None))
    dataset = load_arrays(data)[1].get("dataset")
    if dataset not in TEST_SERIES_DATASETS:
        allowed = ", ".join(TEST_SERIES_DATASETS)
        raise OsoError(f"--data: {data}; data set {dataset!r}; must be one of {allowed}")
    arrays = load_prepared(data, dataset, {})
    done = WRITER_SERIES.read(output)["run_id"]
    best = study.runs[study.runs["run_id"].isin(study.best_runs["run_id"])]
    best = best[(best["dataset"] == dataset) & ~best["run_id"].isin(done)]
    torch.set_num_threads(threads)
    for stored in select_repeatable(best):
        rows = measure_series(make_task(stored.cohort), stored.run, arrays)
        write_series(output, stored.cohort, stored.run, rows)
        found = ", ".join(f"{row.series} {row.accuracy:.4f}" for row in rows)
        print(f"{stored}: {found}", flush=True)
