"""What a training job asks of the machine that it runs on: memory, time, a GPU.

A job that was ended for want of memory asks for more when it is sent again. One that was ended for
want of time need not: it goes on where its checkpoint was.
"""

import math
from collections.abc import Sequence

from oso_dp.data.plugins import USER_MODEL
from oso_dp.study.cohort import Cohort, Run
from oso_dp.study.config import MODELS, StudyConfig
from oso_dp.study.workload import estimate_seconds

_PROGRAM = 1_000  # MB: Python with its packages, 400; two processes of Snakemake, 170 each; batches
_OF_ARRAYS = 2  # they are read, and held
_ON_A_GPU = 3_000  # MB more of main memory for CUDA
_MARGIN = 2.0  # over the configured time, for a slower machine
_MEASURED_ON = 2  # cores
_START = 10  # minutes


def estimate_memory_mb(config: StudyConfig, cohort: Cohort, attempt: int = 1) -> int:
    """Megabytes (2 ** 20 bytes) of main memory."""
    info = config.info(cohort.dataset)
    shape = info.input_shape if cohort.model == USER_MODEL else MODELS[cohort.model][0]
    numbers = math.prod(shape) * (info.examples + info.test_examples)
    arrays = math.ceil(_OF_ARRAYS * 4 * numbers / 2**20)
    return attempt * (_PROGRAM + arrays + _ON_A_GPU * count_gpus(config))


def estimate_minutes(config: StudyConfig, cohort: Cohort, runs: Sequence[Run]) -> int:
    """Of wall time, of a job that trains these runs."""
    slower = _MARGIN * max(1.0, _MEASURED_ON / config.threads_per_job)
    return _START + math.ceil(slower * estimate_seconds(config, cohort, runs) / 60)


def count_gpus(config: StudyConfig) -> int:
    """One for a job that trains on one; a profile or `--set-resources train:gpu=1` may ask, too."""
    return int(config.device == "cuda")
