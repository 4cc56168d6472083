"""`python -m oso_dp.scheduler`: one process that trains; argparse, for machines without typer."""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

import torch

import oso_dp
from oso_dp.data import prepare_dataset
from oso_dp.data.arrays import Arrays
from oso_dp.data.validation import load_prepared
from oso_dp.errors import InterruptedByUser, OsoError
from oso_dp.exit_codes import run_command
from oso_dp.locks import only_writer
from oso_dp.models import MODELS
from oso_dp.option_types import MAX_AT_ONCE, OptionError, integer, path, real_number
from oso_dp.results.conflicts import (
    check_budget_unspent,
    check_same_search_among,
    places_elsewhere,
)
from oso_dp.results.read import is_store
from oso_dp.scheduler.priorities import Job, list_jobs, rank_runs, read_priorities
from oso_dp.scheduler.scheduling import Scheduler, task_of
from oso_dp.scheduler.shard_store import ShardStore, list_stores
from oso_dp.signals import SignalRecorder
from oso_dp.study.grid import paper_best_runs
from oso_dp.study.plan import read_plan
from oso_dp.study.private_datasets import check_one_budget
from oso_dp.training.provenance import device_name

MAX_MINUTES = 1e6  # two years
MAX_PARALLEL_RUNS = 100_000
GPU_PARALLEL_RUNS = 64  # halved where the GPU's memory does not suffice

Say = Callable[[str], None]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OsoError(f"{message} (see {self.prog} --help)")


def _minutes(text: str) -> float:
    if value := real_number(0, MAX_MINUTES)(text):
        return value
    raise OptionError(f"{text[:80]}; must be a number > 0")


def make_parser() -> argparse.ArgumentParser:
    about = "Train the most valuable missing runs until a deadline. Processes may share a folder."
    parser = _Parser(prog="python -m oso_dp.scheduler", description=about, allow_abbrev=False)
    add = parser.add_argument
    add("--minutes", type=_minutes, required=True, help="the deadline, from the command's start")
    add("--results", type=path, required=True, help="folder for the finished runs")
    add("--plan", type=path, nargs="+", default=[Path("results/plan.json")], help="by `oso plan`")
    add("--existing", type=path, nargs="+", help="stores whose runs are skipped")
    add("--data", type=path, default=Path("build/data"), help="folder of the .npz files")
    add("--prepare", action="store_true", help="create missing .npz files")
    add("--data-dir", type=path, help="folder with the raw files, for --prepare")
    add("--skip-missing", action="store_true", help="skip data sets without a file")
    add("--filter", nargs="+", default=[], help="patterns METHOD/DATASET, as '*/ag_news'")
    add("--priorities", type=path, help="file of priorities, as config/priorities.toml")
    add("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    add(
        "--parallel-runs",
        type=integer(1, MAX_PARALLEL_RUNS),
        help="runs of a cohort that are trained together",
    )
    add("--quiet", action="store_true", help="no lines before the first run; for further processes")
    add("--threads", type=integer(1, MAX_AT_ONCE), help="CPU threads (all cores)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Train; the exit status is 0 even if runs are left (`oso_dp.exit_codes`)."""

    def run() -> None:
        began, options = time.monotonic(), make_parser().parse_args(arguments)
        interrupts = SignalRecorder(signal.SIGTERM, signal.SIGINT)
        with interrupts.defer():
            make_scheduler(options, began + 60 * options.minutes, interrupts).run()

    return run_command(run)


def make_scheduler(
    options: argparse.Namespace, deadline: float, interrupts: SignalRecorder
) -> Scheduler:
    """OsoError for invalid or conflicting options."""
    say: Say = (lambda line: None) if options.quiet else _say
    if options.device == "cuda" and not torch.cuda.is_available():
        raise OsoError("--device: cuda; no CUDA device is visible; must be cpu")
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(options.threads or torch.get_num_threads())
    plans = [read_plan(path) for path in options.plan]
    cohorts = [cohort for plan in plans for cohort in plan.cohorts]
    check_one_budget(cohorts)
    jobs, all_jobs = list_jobs(plans, options.filter), list_jobs(plans)
    priorities = read_priorities(options.priorities, all_jobs) if options.priorities else []
    existing = options.existing or sorted({p.parent for p in options.plan if is_store(p.parent)})
    store = ShardStore(options.results, existing)
    places = {shard: "--existing" for folder in existing for shard in list_stores(folder)}
    places |= dict.fromkeys(list_stores(options.results), "--results")
    places |= dict.fromkeys(store.list_finished_runs(), "--results")
    named = {place: f"another folder under `{option}`" for place, option in places.items()}
    elsewhere = places_elsewhere(Path("build"), options.results)
    for plan in plans:
        check_budget_unspent(named, plan.cohorts, elsewhere)
    jobs = _without_conflicts(jobs, [options.results, *existing], say)
    jobs = _with_data([job for job in jobs if _is_missing(job, store)], options, say)
    users = {job.cohort.data_file: job.cohort for job in jobs}
    code = Path(oso_dp.__file__)

    @cache
    def load_arrays(data_file: str) -> Arrays:
        user = users[data_file]
        return load_prepared(options.data / data_file, user.dataset, user.preparation)

    def check() -> None:
        if interrupts.came or (store.progress / "stop").exists():
            raise InterruptedByUser(f"{interrupts.came or store.progress / 'stop'}: stopped")
        if not code.exists():
            raise OsoError(
                f"{code}: no longer exists; complete runs are kept; start the campaign again"
            )

    scheduler = Scheduler(
        rank_runs(jobs, priorities, {run for one in cohorts for run in paper_best_runs(one)}),
        {
            task_of(cohort): plan.seconds_per_step[cohort.dataset]
            for plan in plans
            for cohort in plan.cohorts
        },
        {
            task_of(job.cohort): options.parallel_runs or _parallel_runs(job.cohort.model, device)
            for job in jobs
        },
        store,
        load_arrays,
        deadline,
        device,
        check,
        say=_say,
    )
    names = ", ".join(plan.name for plan in plans)
    runs = f"{len(scheduler.list_left()):,} runs of {names} to do"
    say(f"{device_name(device)}, {options.minutes:g} minutes: {runs}")
    return scheduler


def _parallel_runs(model: str, device: str) -> int:
    if device != "cpu":
        return GPU_PARALLEL_RUNS
    return MODELS[model].parallel_runs if model in MODELS else 1


def _say(line: str) -> None:
    print(line, flush=True)


def _is_missing(job: Job, store: ShardStore) -> bool:
    return any(run.run_id not in store.done for run in job.cohort.runs)


def _without_conflicts(jobs: Sequence[Job], folders: Sequence[Path], say: Say) -> list[Job]:
    """The jobs without those that conflict with another search in a folder; reports each."""
    kept = []
    for job in jobs:
        stores = {folder: list_stores(folder, f"{job.cohort.name}.*") for folder in folders}
        try:
            check_same_search_among(stores, [job.cohort], "another folder for `--results`")
            kept.append(job)
        except OsoError as error:
            say(f"{job.cohort.name}: skipped: {error}")
    return kept


def _with_data(jobs: Sequence[Job], options: argparse.Namespace, say: Say) -> list[Job]:
    """The jobs whose data file exists. OsoError for one without, unless others remain."""
    users = {options.data / job.cohort.data_file: job.cohort for job in jobs}
    for file, user in users.items():
        if options.prepare and not file.exists():
            try:
                with only_writer(options.data):  # another process may prepare it meanwhile
                    if not file.exists():
                        say(f"{file}: preparing")
                        prepare_dataset(user.dataset, file, options.data_dir, **user.preparation)
            except OsoError as error:
                say(f"{file}: not prepared: {error}")
    missing = {file: user for file, user in users.items() if not file.exists()}
    for file, user in missing.items():
        if not options.skip_missing or missing == users:
            call = " ".join(["oso data", user.dataset, *user.data_options])
            also = "" if options.skip_missing else ", or --skip-missing leaves it out"
            raise OsoError(f"{file}: no such file; `{call} --output {file}` makes it{also}")
        say(f"{user.dataset}: waits: no data for {user.dataset} ({file}: no such file)")
    return [job for job in jobs if options.data / job.cohort.data_file not in missing]


if __name__ == "__main__":
    sys.exit(main())
