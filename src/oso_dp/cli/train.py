"""`oso train`: train the runs of one cohort, or of one shard of it."""

from pathlib import Path
from typing import Annotated

import typer

from oso_dp.cli.shared_options import DataFile, PlanFile, Threads
from oso_dp.errors import OsoError


def train(
    plan: PlanFile,
    cohort: Annotated[str, typer.Option(help="Name of the cohort.")],
    data: DataFile,
    output: Annotated[Path, typer.Option(help="Folder for the two Parquet files of the runs.")],
    shard: Annotated[int, typer.Option(help="Index of the cohort's shard, from 0.")] = 0,
    store: Annotated[
        Path | None,
        typer.Option(help="Skip the runs in this results store; required for private data."),
    ] = None,
    allow_missing_store: Annotated[
        bool, typer.Option("--allow-missing-store", help="Allow a store that does not exist yet.")
    ] = False,
    threads: Threads = 1,
) -> None:
    """Train the runs of one cohort, or of one shard of it. A killed job resumes when restarted."""
    from oso_dp.checkpoint import FINISHED_RUNS
    from oso_dp.cli.printing import Progress
    from oso_dp.locks import LOCK, only_one
    from oso_dp.results.conflicts import check_budget_unspent, check_same_search
    from oso_dp.results.read import is_store, run_ids
    from oso_dp.results.write import check_no_loss, write_table
    from oso_dp.study.calibration import check_budget
    from oso_dp.study.plan import read_plan

    planned = read_plan(plan)
    chosen = planned.cohort(cohort)
    check_budget([chosen])
    shards = chosen.shards(planned.runs_per_job)
    if not 0 <= shard < len(shards):
        raise OsoError(f"--shard: {shard}; must be 0 to {len(shards) - 1} for {cohort}")
    if store is None and not chosen.is_public:
        raise OsoError(
            "--store: missing; must be the results store of private data, or a new one with "
            "--allow-missing-store: runs that are stored would be trained again"
        )
    if store is not None:
        # A mistyped path would repeat stored runs, which costs privacy on private data.
        if not is_store(store) and (not allow_missing_store or store.is_file()):
            raise OsoError(
                f"--store: {store}; no results store there; must be an output of `oso collect`, or "
                "set --allow-missing-store"
            )
        instead = "another folder under `--store`"
        check_same_search(store, [chosen], instead)
        check_budget_unspent(
            {store: instead}, [one for one in planned.cohorts if one.dataset == chosen.dataset]
        )
    stored = run_ids(store) if store is not None else set()
    runs = [run for run in shards[shard] if run.run_id not in stored]
    # Runs that a job finished are taken from its checkpoint; others would be trained again.
    resumes = chosen.is_public or (output / "progress" / FINISHED_RUNS).exists()
    check_no_loss(output, stored.union(run.run_id for run in shards[shard] if resumes))

    import torch

    from oso_dp.cli.gpu import reserve_gpu
    from oso_dp.cli.shutdown import ShutdownMonitor
    from oso_dp.data.validation import load_prepared
    from oso_dp.training.job import check_not_finished_beside, run_job

    # A cluster job that outlived its study may still write here.
    lock = only_one(output / LOCK, f"--output: {output}; another job writes to it; wait for it")
    with lock, reserve_gpu(planned.device):
        if planned.device == "cuda" and not torch.cuda.is_available():
            raise OsoError("device: cuda; no CUDA device is visible; must be cpu")
        torch.set_num_threads(threads)
        if not chosen.is_public:
            check_not_finished_beside({run.run_id for run in runs}, output)
        arrays = load_prepared(data, chosen.dataset, chosen.preparation)
        shutdown = ShutdownMonitor()
        progress = Progress(f"{cohort} [{shard}]", len(runs), chosen.steps)

        def on_progress(done: int, step: int) -> None:
            progress(done, step)
            shutdown.poll(f"step {step} of {chosen.steps}")

        with shutdown.handle_signals():
            rows = run_job(
                chosen,
                runs,
                arrays,
                output / "progress",
                planned.device,
                planned.parallel_runs,
                on_progress,
                stored=stored,
            )
        write_table(output / "evaluations.parquet", "evaluations", rows.evaluations)
        write_table(output / "runs.parquet", "runs", rows.runs)
