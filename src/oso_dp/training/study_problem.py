"""The training problem of a study: a built-in data set and model, or those of a plug-in."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from oso_dp.data.arrays import Arrays
from oso_dp.data.catalogue import DatasetSpec
from oso_dp.data.plugins import USER_MODEL, find_plugin, make_dataset_info
from oso_dp.errors import OsoError
from oso_dp.files import format_os_error
from oso_dp.gradients import GradientEngine, find_precision
from oso_dp.models.losses import training_loss
from oso_dp.privacy.users import Users
from oso_dp.study.cohort import Cohort, Run
from oso_dp.training.evaluate import Evaluator
from oso_dp.training.task import (
    StudyTask,
    TensorExamples,
    TrainingProblem,
    examples_on_device,
    initial_parameters,
    make_model,
)
from oso_dp.training.user_model import UserModel, count_classes

_CPU = torch.device("cpu")


def build_user_network(cohort: Cohort) -> Callable[[], nn.Module] | None:
    """A function that builds the cohort's user-defined model; None for a built-in model.

    OsoError if the plug-in differs from what the cohort was planned for.
    """
    if cohort.data_version is None:
        return None
    info = make_dataset_info(cohort.dataset, USER_MODEL)
    unit = cohort.privacy_unit
    records = info.records(unit.name)
    planned = (cohort.data_version, cohort.examples, cohort.is_public)
    if (info.version, records, info.public) != planned:
        raise OsoError(
            f"{cohort.name}: planned for version {cohort.data_version!r}, {cohort.examples} "
            f"{unit.plural}, public: {cohort.is_public}; installed is version {info.version!r}, "
            f"{records} {unit.plural}, public: {info.public}; make a new plan"
        )
    return partial(_build_model, cohort.dataset)


def make_problem(task: StudyTask, runs: Sequence[Run], arrays: Arrays) -> TrainingProblem:
    """A built-in or user-defined model on its data set, evaluated on the test set (public)."""
    device = torch.device(task.device)
    examples = TensorExamples(
        *examples_on_device(arrays.train_inputs, arrays.train_targets, task.metric, device)
    )
    test = examples_on_device(arrays.test_inputs, arrays.test_targets, task.metric, device)
    model, loss = make_model(task, 0), training_loss(task.metric, task.loss)
    classes = TrainingProblem.classes
    if task.network is None:
        engine = GradientEngine(model, loss, task.product_precision)
        first = torch.stack([initial_parameters(task, run.seed) for run in runs]).to(device)
    else:
        user_model = UserModel(model)
        engine = user_model.make_engine(loss, examples, task.product_precision, device)
        first = torch.stack([_weights(task, user_model, run.seed) for run in runs]).to(device)
        classes = count_classes(engine, first[0], examples)
    scores: Any = Evaluator(engine, *test, task.metric)
    problem = TrainingProblem(engine, examples, first, task.metric, scores, classes)
    if task.local is None:
        return problem
    if arrays.train_users is None:
        raise OsoError("unit: user; the data do not say whose the examples are")
    users = Users(arrays.train_users, task.local.rows_per_user)
    return replace(problem, users=users, local=task.local)


def check_user_model(dataset: str) -> None:
    """OsoError for a model that is not supported or does not fit the declared shapes.

    Does not read the data.
    """
    info = make_dataset_info(dataset, USER_MODEL)
    inputs = torch.zeros(0, *info.input_shape)
    examples = TensorExamples(
        inputs, inputs if info.metric == "mse" else inputs.new_zeros(0).long()
    )
    model = _build_model(dataset)
    try:
        user_model = UserModel(model)
        engine = user_model.make_engine(
            training_loss(info.metric), examples, find_precision("float32", _CPU), _CPU
        )
    except OsoError as error:
        raise OsoError(f"data set {dataset!r}: {error}") from error
    _check_outputs(engine, user_model.weights(_CPU), info)


def _check_outputs(engine: GradientEngine, weights: Tensor, info: DatasetSpec) -> None:
    with torch.no_grad():
        found = list(engine.outputs(weights, torch.zeros(3, *info.input_shape)).shape)
    expected = [3, *info.input_shape] if info.metric == "mse" else [3, info.classes]
    if found != expected:
        raise OsoError(
            f"data set {info.name!r}: model: outputs have shape {found} for three examples; must "
            f"be {expected} for the declared metric {info.metric}"
        )


def _build_model(dataset: str) -> nn.Module:
    try:
        model: nn.Module = find_plugin(dataset).model()
    except Exception as error:  # user code may raise anything
        raise OsoError(
            f"data set {dataset!r}: model() failed ({type(error).__name__}: "
            f"{format_os_error(error)})"
        ) from error
    return model


def _weights(task: StudyTask, user_model: UserModel, seed: int) -> Tensor:
    """This seed's initial parameters [P]; OsoError if shapes or fixed values vary by call."""
    other = UserModel(make_model(task, seed))
    fixed = [dict(m.model.named_buffers()) | m.frozen for m in (user_model, other)]
    if user_model.shapes != other.shapes or fixed[0].keys() != fixed[1].keys():
        raise OsoError("model: architecture differs between calls of model(); must be the same")
    for name, values in fixed[0].items():
        if not torch.equal(values, fixed[1][name]):
            raise OsoError(
                f"model: {name} is not trained and differs between calls of model(); must be the "
                "same"
            )
    return other.weights(_CPU)
