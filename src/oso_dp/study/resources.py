"""Resource requests of a training job: memory, wall time, GPUs.

A job that is restarted after running out of memory requests more. After running out of time it
needs no more: it resumes from its checkpoint.
"""

import math
from collections.abc import Sequence

from oso_dp.data.plugins import USER_MODEL
from oso_dp.models import MODELS
from oso_dp.study.cohort import Cohort, Run
from oso_dp.study.config import StudyConfig
from oso_dp.study.workload import estimate_seconds

_PROGRAM = 1_000  # MB: Python with its packages, 400; two processes of Snakemake, 170 each; batches
_OF_ARRAYS = 2  # copies: as read, and as tensors
_ON_A_GPU = 3_000  # MB more of main memory for CUDA
_MARGIN = 2.0  # factor on the configured time, for slower machines
_MEASURED_ON = 2  # cores
_START = 10  # minutes


def estimate_memory_mb(config: StudyConfig, cohort: Cohort, attempt: int = 1) -> int:
    """Main memory in MiB."""
    info = config.info(cohort.dataset)
    shape = info.input_shape if cohort.model == USER_MODEL else MODELS[cohort.model].input_shape
    numbers = math.prod(shape) * (info.examples + info.test_examples)
    arrays = math.ceil(_OF_ARRAYS * 4 * numbers / 2**20)
    return attempt * (_PROGRAM + arrays + _ON_A_GPU * count_gpus(config))


def estimate_minutes(config: StudyConfig, cohort: Cohort, runs: Sequence[Run]) -> int:
    """Wall time of a job that trains these runs, in minutes."""
    slower = _MARGIN * max(1.0, _MEASURED_ON / config.threads_per_job)
    return _START + math.ceil(slower * estimate_seconds(config, cohort, runs) / 60)


def count_gpus(config: StudyConfig) -> int:
    """GPUs per training job; a profile or `--set-resources train:gpu=1` may request one, too."""
    return int(config.device == "cuda")
