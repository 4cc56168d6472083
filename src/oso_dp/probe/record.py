"""From a probe to a CSV file that says where it comes from."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import torch

import oso_dp
from oso_dp.files import atomic_write
from oso_dp.probe.cosine import Similarity
from oso_dp.study.cohort import Cohort
from oso_dp.training.loop import Task
from oso_dp.training.provenance import code_hash, device_name


def write_similarities(
    path: Path, cohort: Cohort, task: Task, similarities: Sequence[Similarity]
) -> None:
    """One row per step and threshold, with the run that was probed and what computed it."""
    run = cohort.runs[0]
    probed = {
        **{name: getattr(cohort, name) for name in ("dataset", "model", "method", "k", "epsilon")},
        **{name: getattr(run, name) for name in ("run_id", "seed", "learning_rate")},
        "noise_multiplier": task.noise_multiplier,
    }
    source = {
        "device": device_name(task.device),
        "torch_version": torch.__version__.partition("+")[0],
        "package_version": oso_dp.__version__,
        "code_hash": code_hash(),
    }
    table = pd.DataFrame([probed | asdict(similarity) | source for similarity in similarities])
    with atomic_write(path) as file:
        file.write(table.to_csv(index=False, float_format="%.6g", lineterminator="\n").encode())
