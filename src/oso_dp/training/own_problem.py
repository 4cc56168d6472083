"""The study's problem on a user's own data set, with the model that its package brings."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from oso_dp.data.arrays import Arrays
from oso_dp.data.catalogue import DatasetInfo
from oso_dp.data.installed import OWN, info_of, installed
from oso_dp.errors import OsoError
from oso_dp.files import reason
from oso_dp.gradients import GradientCode, find_precision
from oso_dp.models.losses import training_loss
from oso_dp.study.cohort import Cohort, Run
from oso_dp.training.evaluate import Evaluator
from oso_dp.training.own_model import OwnModel, classes_of
from oso_dp.training.problem import (
    Problem,
    Task,
    TensorExamples,
    examples_on_device,
    fresh_model,
    study_problem,
)

_CPU = torch.device("cpu")


def network_of(cohort: Cohort) -> Callable[[], nn.Module] | None:
    """What makes the cohort's model, where a user's package brings it; None for the study's own.

    OsoError unless the package offers what the cohort was planned for.
    """
    if cohort.data_version is None:
        return None
    info = info_of(cohort.dataset, OWN)
    planned = (cohort.data_version, cohort.examples, cohort.public)
    if (info.version, info.examples, info.public) != planned:
        raise OsoError(
            f"{cohort.name}: planned for version {cohort.data_version!r} with {cohort.examples} "
            f"examples, {_protected(cohort.public)}; installed is version {info.version!r} with "
            f"{info.examples}, {_protected(info.public)}: write the plan anew"
        )
    return partial(_made, cohort.dataset)


def problem_of(task: Task, runs: Sequence[Run], arrays: Arrays) -> Problem:
    """Of the study's networks or, if the task has one, a user's own."""
    if task.network is None:
        return study_problem(task, runs, arrays)
    device = torch.device(task.device)
    examples = TensorExamples(
        *examples_on_device(arrays.train_inputs, arrays.train_targets, task.metric, device)
    )
    test = examples_on_device(arrays.test_inputs, arrays.test_targets, task.metric, device)
    own = OwnModel(fresh_model(task, 0))
    code = own.code(training_loss(task.metric, task.loss), examples, task.products, device)
    first = torch.stack([_weights(task, own, run.seed) for run in runs]).to(device)
    scores: Any = Evaluator(code, *test, task.metric)
    classes = classes_of(code, first[0], examples)
    return Problem(code, examples, first, task.metric, scores, classes)


def check_own_model(dataset: str) -> None:
    """OsoError for a model that cannot be trained here, or does not fit the declared shapes.

    No data are read.
    """
    info = info_of(dataset, OWN)
    inputs = torch.zeros(0, *info.input_shape)
    examples = TensorExamples(
        inputs, inputs if info.metric == "mse" else inputs.new_zeros(0).long()
    )
    made = _made(dataset)
    try:
        own = OwnModel(made)
        code = own.code(training_loss(info.metric), examples, find_precision("float32", _CPU), _CPU)
    except OsoError as error:
        raise OsoError(f"data set {dataset!r}: {error}") from error
    _check_outputs(code, own.weights(_CPU), info)


def _check_outputs(code: GradientCode, weights: Tensor, info: DatasetInfo) -> None:
    with torch.no_grad():
        given = list(code.outputs(weights, torch.zeros(3, *info.input_shape)).shape)
    wanted = [3, *info.input_shape] if info.metric == "mse" else [3, info.classes]
    if given != wanted:
        raise OsoError(
            f"data set {info.name!r}: model: gives outputs {given} for three examples; with the "
            f"declared metric {info.metric} they must be {wanted}"
        )


def _made(dataset: str) -> nn.Module:
    """A new one, by the package's function."""
    try:
        model: nn.Module = installed(dataset).model()
    except Exception as error:  # whatever a user's function may do
        raise OsoError(
            f"data set {dataset!r}: model() failed ({type(error).__name__}: {reason(error)})"
        ) from error
    return model


def _weights(task: Task, own: OwnModel, seed: int) -> Tensor:
    """Fresh ones [P] of this seed; OsoError where what is not trained is another at each call."""
    other = OwnModel(fresh_model(task, seed))
    fixed = [dict(one.model.named_buffers()) | one.frozen for one in (own, other)]
    if own.shapes != other.shapes or fixed[0].keys() != fixed[1].keys():
        raise OsoError("model: its function gives another architecture at each call")
    for name, values in fixed[0].items():
        if not torch.equal(values, fixed[1][name]):
            raise OsoError(
                f"model: {name} is not trained, and is another one at each call; make it the same"
            )
    return other.weights(_CPU)


def _protected(public: bool) -> str:
    return "public" if public else "to be protected"
