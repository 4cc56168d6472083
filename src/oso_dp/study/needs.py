"""What a training job asks of the machine that it runs on: memory, time, a GPU.

Each attempt asks for more than the one before: a scheduler that ended a job for want of memory or
time starts it again, and it goes on where its checkpoint was.
"""

import math
from collections.abc import Sequence

from oso_dp.data.catalogue import DATASETS
from oso_dp.study.cohort import Cohort, Run
from oso_dp.study.config import MODELS, StudyConfig
from oso_dp.study.workload import seconds

_PROGRAM = 1_000  # MB: Python with its packages, 400; two processes of Snakemake, 170 each; batches
_OF_ARRAYS = 2  # they are read, and held
_MARGIN = 2.0  # over the configured time, for a slower machine
_START = 10  # minutes


def memory_mb(cohort: Cohort, attempt: int = 1) -> int:
    """Megabytes (2 ** 20 bytes) of main memory."""
    info = DATASETS[cohort.dataset]
    numbers = math.prod(MODELS[cohort.model][0]) * (info.examples + info.test_examples)
    return attempt * (_PROGRAM + math.ceil(_OF_ARRAYS * 4 * numbers / 2**20))


def minutes(config: StudyConfig, cohort: Cohort, runs: Sequence[Run], attempt: int = 1) -> int:
    """Of wall time, of a job that trains these runs."""
    return attempt * (_START + math.ceil(_MARGIN * seconds(config, cohort, runs) / 60))


def gpus(config: StudyConfig) -> int:
    """One for a job that trains on one; a profile or `--set-resources train:gpu=1` may ask, too."""
    return int(config.device == "cuda")
