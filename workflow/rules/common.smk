"""Shared by all rules: the validated configuration, the cohorts, the folders."""

import hashlib
import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path

from snakemake_interface_logger_plugins.common import LogEvent

from oso_dp.errors import OsoError
from oso_dp.exit_codes import error_line
from oso_dp.files import file_version, make_folder
from oso_dp.reporting.report_folder import check_place
from oso_dp.results.conflicts import check_same_search
from oso_dp.results.conflicts import check_budget_unspent, places_elsewhere, study_places
from oso_dp.results.read import run_ids
from oso_dp.study.config import parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.workload import count_gpus, estimate_memory_mb, estimate_minutes
from oso_dp.study.plan import find_plans
from oso_dp.study.workload import estimate_seconds, estimate_workload
from oso_dp.snakemake_support.preflight import (
    check_before_start,
    check_folders,
    check_handed_over,
    is_dry_run,
    is_read_only,
)
from oso_dp.snakemake_support.study_lock import LOCK_FILE
from oso_dp.snakemake_support.progress import Job, ProgressReporter
from oso_dp.snakemake_support.slurm import Request, check_requests

try:
    files = [Path(file) for file in workflow.configfiles]
    check_handed_over(config, files, workflow.config_settings.config)
    overridden = dict.fromkeys(workflow.config_settings.config, "--config")
    STUDY = parse_config(dict(config), ", ".join(map(str, files)) or "--config", overridden)
    COHORTS = {cohort.name: cohort for cohort in make_cohorts(STUDY)}
    PLANNED_RUNS = {run.run_id for cohort in COHORTS.values() for run in cohort.runs}
    STORED_RUNS = run_ids(Path(STUDY.results))
except OsoError as error:
    sys.exit(error_line(error))

DATA_FILES = {cohort.data_file: cohort for cohort in COHORTS.values()}
OLD_LOGS = set()  # versions of the logs of an earlier study
BUILD = Path("build") / STUDY.name
LOGS = BUILD / "logs"
STORE = Path(STUDY.results)
PUBLISHED = Path(STUDY.report)

# Jobs call `oso` of the environment that runs Snakemake, activated or not.
shell.prefix(
    "set -euo pipefail; "
    + (
        ""  # a container or an environment that Snakemake makes has its `oso`
        if workflow.deployment_settings.deployment_method
        else f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; "
    )
    + (f"export OSO_DATA_DIR={shlex.quote(STUDY.data_dir)}; " if STUDY.data_dir else "")
)

STUDY_LOCK = None  # held by this process while its jobs may run
if workflow.is_main_process:
    try:
        if is_dry_run(sys.argv) or not is_read_only(sys.argv):
            # Checked before any job, and in a dry run: everything that would fail the study later.
            check_folders(BUILD, STORE, PUBLISHED)
            check_same_search(STORE, COHORTS.values())
            # On private data, job outputs count, too: Snakemake removes a job's outputs
            # before it runs the job again.
            check_budget_unspent(
                study_places(STORE, BUILD), COHORTS.values(), places_elsewhere(BUILD.parent, BUILD)
            )
            check_place(PUBLISHED, STORE)
        page = PUBLISHED / "index.html"
        STUDY_LOCK = check_before_start(
            BUILD, Path(".snakemake/locks"), sys.argv, page, is_stored=PLANNED_RUNS <= STORED_RUNS
        )
        if STUDY_LOCK is not None:
            make_folder(STORE)
            make_folder(PUBLISHED)
    except OsoError as error:
        sys.exit(error_line(error))
    PENDING = estimate_workload(STUDY, COHORTS.values(), STORED_RUNS)
    logger.info(str(PENDING))
    if is_dry_run(sys.argv):
        logger.info(PENDING.table())
        # The table replaces ten lines for each of hundreds of jobs; -np shows these.
        if not any(re.fullmatch("-[a-zA-Z]*p[a-zA-Z]*|--printshellcmds", a) for a in sys.argv):
            logger.addFilter(lambda record: getattr(record, "event", None) != LogEvent.JOB_INFO)


wildcard_constraints:
    cohort="|".join(COHORTS) or "none",
    prepared="|".join(Path(name).stem for name in DATA_FILES) or "none",
    shard=r"\d+",


onerror:
    # Repeat the lines of errors, and of jobs that will resume, at the end of the output.
    for path in all_logs():
        if file_version(path) not in OLD_LOGS:
            for line in path.read_text().splitlines():
                if line.startswith(error_line("")) or "; the next start resumes there" in line:
                    print(line, file=sys.stderr)


onstart:
    OLD_LOGS.update(map(file_version, all_logs()))
    if workflow.executor_plugin.name == "slurm":
        try:
            check_requests(slurm_requests())
        except OsoError as error:
            sys.exit(error_line(error))
    if workflow.executor_plugin.name == "local":  # its jobs end with their study
        os.environ[LOCK_FILE] = str(STUDY_LOCK.path)
        STUDY_LOCK.release_on_signal(signal.SIGINT, signal.SIGTERM)
    ProgressReporter(STUDY.name, training_jobs(), logger.info).start()


def shard_runs(wildcards):
    """The runs of one job."""
    return COHORTS[wildcards.cohort].shards(STUDY.runs_per_job)[int(wildcards.shard)]


def job_minutes(wildcards):
    """Wall time of a job, for its runs that are not stored."""
    runs = [run for run in shard_runs(wildcards) if run.run_id not in STORED_RUNS]
    return estimate_minutes(STUDY, COHORTS[wildcards.cohort], runs)


def slurm_requests():
    """Resource requests of the pending jobs."""
    for job in workflow.dag.needrun_jobs():
        if not job.is_local:
            have = job.resources.get
            yield Request(
                job.rule.name,
                partition=have("slurm_partition"),
                account=have("slurm_account"),
                gpus=have("gpu") or 0,
                memory_mb=have("mem_mb") or 0,
                minutes=have("runtime") or 0,
            )


def all_logs():
    """Logs of this study's jobs and of data preparation, which studies share."""
    return [*LOGS.rglob("*.log"), *Path("build/data").glob("*.log")]


def training_jobs():
    """All training jobs, for the progress line. Files of pending jobs are from an earlier study."""
    pending = {
        str(job.output.runs) for job in workflow.dag.needrun_jobs() if job.rule.name == "train"
    }
    for name, cohort in COHORTS.items():
        for shard, runs in enumerate(cohort.shards(STUDY.runs_per_job)):
            left = [run for run in runs if run.run_id not in STORED_RUNS]
            hours = estimate_seconds(STUDY, cohort, left) / 3600
            part = BUILD / "parts" / name / f"shard{shard}"
            make = Job.pending if str(part / "runs.parquet") in pending else Job
            yield make(hours, part, LOGS / f"train/{name}.shard{shard}.log")


def plans(wildcards, input):
    """Options --plan for the store's plan, if it has one, and for this study's."""
    return [f"--plan={path}" for path in (*find_plans(STORE), input.plan)]


def all_parts():
    """The output folders of all training jobs."""
    return [
        BUILD / "parts" / name / f"shard{shard}"
        for name, cohort in COHORTS.items()
        for shard in range(len(cohort.shards(STUDY.runs_per_job)))
    ]


def largest_online_cohort(dataset):
    """Name of Online's cohort with the largest grid and budget on a data set."""
    candidates = [c for c in COHORTS.values() if (c.dataset, c.method) == (dataset, "online")]
    if not candidates:
        raise OsoError(f"study {STUDY.name}: has no runs of online on {dataset}")
    return max(candidates, key=lambda cohort: (cohort.k, cohort.epsilon)).name
