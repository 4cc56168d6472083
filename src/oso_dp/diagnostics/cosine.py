"""Cosine similarity of the true and the sanitized gradient over C (Galli et al. 2024, Figure 1).

A run is trained first. At some of its steps t, the gradient at theta_t is released with many
clipping thresholds, by the same mechanism, and compared with

- the batch's mean gradient (equation 1), which shows the effect of clipping and noise;
- the mean gradient over all training examples, of which the batch is a sample.

The paper shows a CNN for character recognition and 20 realizations of the mechanism, and does not
state its data, C, rho or noise. So gradients are released with the run's noise, and with almost
none, at the same parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from oso_dp.data.arrays import Arrays
from oso_dp.diagnostics.inputs import take_steps
from oso_dp.gradients import BatchGradients
from oso_dp.methods import State
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedGradient
from oso_dp.study.cohort import Run
from oso_dp.training.loop import study_training
from oso_dp.training.study_problem import make_problem
from oso_dp.training.task import StudyTask

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers, Runs


def cosine_between(one: Tensor, other: Tensor) -> float:
    """Cosine similarity of two vectors [P], in float64; NaN if one of them is zero."""
    one, other = one.double(), other.double()
    return float(one @ other / (one.norm() * other.norm()))


STEPS = (100, 250, 500, 750, 950)  # as in the paper
REALISATIONS = 20  # as in the paper
THRESHOLDS = tuple(float(f"{c:.6g}") for c in np.geomspace(1e-2, 1e2, 13))  # the paper's range
TINY_NOISE = 0.01  # a noise multiplier
_BATCH = 500  # examples per forward pass


@dataclass(frozen=True)
class Similarity:
    """Cosines at one step, noise and C: mean and standard deviation over realizations."""

    step: int  # t
    noise_multiplier: float  # of the releases
    threshold: float  # C of the releases
    run_threshold: float | None  # C_t of the run
    realisations: int
    batch_mean: float  # with the batch's mean gradient
    batch_std: float
    data_mean: float  # with the mean gradient of all training examples
    data_std: float


def measure_similarities(
    task: StudyTask,
    run: Run,
    arrays: Arrays,
    steps: Sequence[int] = STEPS,
    thresholds: Sequence[float] = THRESHOLDS,
    realisations: int = REALISATIONS,
    noise_multipliers: Sequence[float] | None = None,
) -> list[Similarity]:
    """Train a run up to the last of `steps`, and compare gradients at each of them.

    Args:
        task: The training task.
        run: The run.
        arrays: The data, which must be public.
        steps: At which steps to compare.
        thresholds: Clipping thresholds C of the releases.
        realisations: Number of releases per step, noise and threshold.
        noise_multipliers: Of the releases. Default: the task's.

    Raises:
        OsoError: If the run diverges before the last of `steps`.
    """
    seen: dict[int, tuple[Tensor, float | None]] = {}

    def watch(state: State, answers: Answers) -> None:
        if state.step in steps:
            threshold = float(state.threshold[0])
            known = None if math.isnan(threshold) else threshold
            seen[state.step] = (state.parameters[0].clone(), known)

    levels = [task.noise_multiplier] if noise_multipliers is None else noise_multipliers
    probe = Probe(task, run, arrays, realisations)  # first, since it validates the task
    training = study_training(task, [run], arrays, watch)  # has the schedule of the complete run
    for _ in take_steps(training, max(steps)):
        pass
    return [
        probe.compare(step, *seen[step], threshold, noise)
        for step in steps
        for noise in levels
        for threshold in thresholds
    ]


class Probe:
    """Releases gradients at given parameters, and computes the true ones."""

    def __init__(self, task: StudyTask, run: Run, arrays: Arrays, realisations: int) -> None:
        # In float32 for any task: the subject is the effect of clipping and noise.
        problem = make_problem(replace(task, precision="float32"), [run], arrays)
        indices = torch.arange(len(problem.examples), device=problem.initial_parameters.device)
        self.engine = problem.engine
        (self.inputs,), (self.targets,), _ = problem.examples.batch(indices[None])
        self.run, self.batch_size, self.realisations = run, task.batch_size, realisations
        self.mechanisms: dict[float, Mechanism] = {}  # by noise multiplier
        self.released = 0  # releases so far; each has its own step number
        self.data_sum: tuple[int, Tensor] | None = None

    def compare(
        self,
        step: int,
        parameters: Tensor,
        run_threshold: float | None,
        threshold: float,
        noise: float,
    ) -> Similarity:
        if self.data_sum is None or self.data_sum[0] != step:
            self.data_sum = (
                step,
                self._sum(parameters, torch.arange(len(self.inputs), device=self.inputs.device)),
            )
        self.released += 1
        pairs = [
            self._release(index, parameters, threshold, noise) for index in range(self.realisations)
        ]
        batch = np.array([cosine_between(released, true) for released, true in pairs])
        data = np.array([cosine_between(released, self.data_sum[1]) for released, _ in pairs])
        return Similarity(
            step,
            noise,
            threshold,
            run_threshold,
            self.realisations,
            float(batch.mean()),
            _std(batch),
            float(data.mean()),
            _std(data),
        )

    def _release(
        self, index: int, parameters: Tensor, threshold: float, noise: float
    ) -> tuple[Tensor, Tensor]:
        """The sanitized mean and the true sum over one batch, [P] each."""

        def gradients(runs: Runs, batch: Tensor) -> BatchGradients:
            return self._gradients(parameters, batch[0])

        mechanism = self._mechanism(noise)
        query = ClippedGradient(noise, parameters.new_full((self.realisations,), threshold))
        one = slice(index, index + 1)
        answers = mechanism.release(one, self.released, (query,), gradients)
        batches, present = mechanism.random_numbers.batches(mechanism.run_ids[one], self.released)
        return answers[ClippedGradient][0], self._sum(parameters, batches[0][present[0]])

    def _mechanism(self, noise: float) -> Mechanism:
        """The mechanism with this noise; seeded, so that its batches can be drawn again."""
        if noise not in self.mechanisms:
            self.mechanisms[noise] = Mechanism(
                [f"{self.run.run_id} cosine {noise!r} {i}" for i in range(self.realisations)],
                len(self.inputs),
                self.batch_size,
                noise,
                device=self.inputs.device,
            )
        return self.mechanisms[noise]

    def _sum(self, parameters: Tensor, batch: Tensor) -> Tensor:
        """The true gradient sum over these examples (indices)."""
        total = torch.zeros_like(parameters, dtype=torch.float64)
        for chunk in batch.split(_BATCH):
            present = torch.ones(1, len(chunk), dtype=torch.bool, device=chunk.device)
            total += self._gradients(parameters, chunk).plain_sums(present)[0]
        return total

    def _gradients(self, parameters: Tensor, batch: Tensor) -> BatchGradients:
        return self.engine(parameters[None], self.inputs[batch][None], self.targets[batch][None])


def _std(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else float("nan")
