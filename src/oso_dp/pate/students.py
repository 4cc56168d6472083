"""Students: networks that learn from the private labels of public inputs."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from oso_dp.data.arrays import Arrays
from oso_dp.errors import OsoError
from oso_dp.pate.aggregate import UNANSWERED
from oso_dp.pate.config import PateConfig, Student
from oso_dp.pate.networks import NetworkTraining, accuracy, predict, train_network
from oso_dp.pate.teachers import POOL, TEST
from oso_dp.training.provenance import commit, device_name


def train_students(
    config: PateConfig, labels: npt.NDArray[np.int64], facts: dict[str, Any], arrays: Arrays
) -> list[dict[str, Any]]:
    """A row for each way of learning: the facts of the labels, and the student's accuracy.

    The accuracy is NaN where no query was answered. OsoError for labels of other data.
    """
    if facts["data"] != arrays.digest:
        raise OsoError(f"labels: of data {facts['data'][:12]}; must be {arrays.digest[:12]}")
    dataset = facts["dataset"]
    model, training = config.find_dataset(dataset).model, config.student.make_training(dataset)
    pool = torch.from_numpy(arrays.test_inputs[POOL])
    test = torch.from_numpy(arrays.test_inputs[TEST])
    truth = torch.from_numpy(arrays.test_targets[TEST])
    rows = []
    for learning in config.student.learning:
        began = time.monotonic()
        name = f"student of {dataset}, seed {facts['seed']}, {facts['ledger']}, {learning}"
        reached = float("nan")  # without labels there is no student
        if (labels != UNANSWERED).any():
            student = train_student(
                model, pool, torch.from_numpy(labels), training, config.student, learning, name
            )
            reached = accuracy(student, test, truth)
        rows.append(
            {
                **facts,
                "learning": learning,
                "student": config.student.options_text({"learning"}),
                "student_accuracy": reached,
                "test_examples": len(truth),
                "seconds": time.monotonic() - began,
                "device": device_name("cpu"),
                "commit": commit(),
                "torch_version": torch.__version__,
            }
        )
    return rows


def train_student(
    model: str,
    pool: Tensor,
    labels: Tensor,
    training: NetworkTraining,
    options: Student,
    learning: str,
    name: str,
) -> nn.Module:
    """A network of the pool's labelled inputs; with pseudo-labels, also of its own predictions.

    Then, in each round, a new network learns from the labels and from those other inputs that the
    last one was confident of.
    """
    is_labelled = labels != UNANSWERED
    inputs, targets = pool[is_labelled], labels[is_labelled]
    student = train_network(model, inputs, targets, training, name)
    for number in range(options.rounds if learning == "pseudo_labels" else 0):
        sure, guessed = predict(student, pool[~is_labelled]).max(dim=1)
        kept = sure >= options.confidence
        every = torch.cat([inputs, pool[~is_labelled][kept]])
        known = torch.cat([targets, guessed[kept]])
        fewer = replace(training, epochs=options.round_epochs)
        student = train_network(model, every, known, fewer, f"{name}, round {number + 1}")
    return student
