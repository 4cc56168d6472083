"""Norms of all users' updates during a training of users, and the threshold that clips them.

Computed without privacy: for public data only. The quantiles are what FixedQuantile's threshold is
to follow, and the mean norm of each layer what per-layer clipping is to allow for (Thakkar et al.
2019, Figure 1).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from oso_dp.analysis.side_measurements import ROOT, WHOLE
from oso_dp.data.arrays import Arrays
from oso_dp.diagnostics.inputs import take_steps
from oso_dp.errors import OsoError
from oso_dp.study.cohort import Run
from oso_dp.training.loop import Training, study_training
from oso_dp.training.task import StudyTask
from oso_dp.training.user_updates import users_at_once


@dataclass(frozen=True)
class UpdateNorms:
    """The norms of all users' updates from the parameters before a step, of a layer or of all."""

    step: int  # t
    threshold: float  # C_t
    learning_rate: float  # rho_t
    layer: str  # or WHOLE
    mean: float
    q10: float
    q30: float
    q50: float
    q70: float
    q90: float


def measure_update_norms(
    task: StudyTask, run: Run, arrays: Arrays, every: int
) -> Iterator[UpdateNorms]:
    """Train the run; yield the norms before step 1 and each `every` steps, layers in their order.

    OsoError if it protects no users, or diverges.
    """
    training = study_training(task, [run], arrays)
    if training.problem.users is None:
        raise OsoError("unit: example; must be user, whose updates are measured")
    for step in chain([0], take_steps(training, task.steps)):
        if step % every or step == task.steps:
            continue
        for layer, norms in _norms(training).items():
            quantiles = torch.quantile(norms, torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9]).double())
            yield UpdateNorms(
                step + 1,
                float(training.state.threshold[0]),
                float(training.state.learning_rate[0]),
                layer,
                float(norms.mean()),
                *quantiles.tolist(),
            )


def _norms(training: Training) -> dict[str, Tensor]:
    """By layer, float64 [users]; of those with a finite update."""
    users = torch.arange(training.problem.records)
    parts: dict[str, list[Tensor]] = {}
    for batch in users.split(users_at_once(training.engine.size)):
        updates = training.gradients(slice(0, 1), batch[None])
        norms = {WHOLE: updates.norms()}
        norms |= {name or ROOT: values for name, values in updates.layer_norms().items()}
        is_finite = norms[WHOLE][0].isfinite()
        for layer, values in norms.items():
            parts.setdefault(layer, []).append(values[0, is_finite].double().cpu())
    return {layer: torch.cat(values) for layer, values in parts.items()}
