"""Accuracy on the digits of each group of people who wrote MNIST's test set: a cut for fairness."""

from dataclasses import dataclass

import torch
from torch import Tensor

from oso_dp.data.arrays import Arrays
from oso_dp.data.mnist import TEST_SERIES
from oso_dp.diagnostics.inputs import take_steps
from oso_dp.study.cohort import Run
from oso_dp.training.evaluate import Evaluator
from oso_dp.training.loop import Training, study_training
from oso_dp.training.task import StudyTask


@dataclass(frozen=True)
class SeriesAccuracy:
    """Accuracy of a run after its last step on the test digits of a series of writers."""

    series: str
    accuracy: float


def measure_series(task: StudyTask, run: Run, arrays: Arrays) -> list[SeriesAccuracy]:
    """Train the run; its accuracy on each series. OsoError if it diverges."""
    training = study_training(task, [run], arrays)
    for _ in take_steps(training, task.steps):
        pass
    inputs, targets = torch.from_numpy(arrays.test_inputs), torch.from_numpy(arrays.test_targets)
    return [
        SeriesAccuracy(name, _accuracy(training, inputs[rows], targets[rows]))
        for name, rows in TEST_SERIES.items()
    ]


def _accuracy(training: Training, inputs: Tensor, targets: Tensor) -> float:
    device = training.state.parameters.device
    evaluator = Evaluator(training.engine, inputs.to(device), targets.to(device), "accuracy")
    return evaluator(training.state.eval_parameters[0])[0].value
