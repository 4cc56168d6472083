"""What the rules share: the checked configuration, the cohorts, the folders."""

import json
import os
import sys
from pathlib import Path

from oso.errors import OsoError
from oso.results.write import finished_runs
from oso.study.cohort import cohorts
from oso.study.config import parse_config
from oso.study.outlook import outlook

# Jobs call `oso` of the environment that runs Snakemake, activated or not.
shell.prefix(f'set -euo pipefail; export PATH="{Path(sys.executable).parent}:$PATH"; ')

try:
    STUDY = parse_config(dict(config), "configuration")
    COHORTS = {cohort.name: cohort for cohort in cohorts(STUDY)}
    STORED = finished_runs(Path(STUDY.results))
except OsoError as error:
    sys.exit(f"oso: error: {error}")

BUILD = Path("build") / STUDY.name
LOGS = BUILD / "logs"
STORE = Path(STUDY.results)
DATA_DIR = STUDY.data_dir or os.environ.get("OSO_DATA_DIR", "")

if workflow.is_main_process:
    logger.info(str(outlook(STUDY, list(COHORTS.values()), STORED)))


wildcard_constraints:
    cohort="|".join(COHORTS) or "none",
    dataset="|".join(STUDY.datasets),
    shard=r"\d+",


def shard_runs(wildcards):
    """The runs of one job."""
    return COHORTS[wildcards.cohort].shards(STUDY.runs_per_job)[int(wildcards.shard)]


def all_parts():
    """The folders of all jobs' parts."""
    return [
        BUILD / "parts" / name / f"shard{shard}"
        for name, cohort in COHORTS.items()
        for shard in range(len(cohort.shards(STUDY.runs_per_job)))
    ]
