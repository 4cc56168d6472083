"""`oso diagnose cosine`: cosine similarity of true and sanitized gradients, on public data."""

from pathlib import Path
from typing import Annotated

import typer

from oso_dp.cli.shared_options import DataFile, PlanFile, Threads
from oso_dp.errors import OsoError


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
    from oso_dp.results.write import writing
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
    with writing(output):
        write_similarities(output, chosen, task, rows)
