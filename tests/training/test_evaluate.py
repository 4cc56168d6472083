"""Scores on test sets of any size, also where it is no multiple of the evaluation's batch."""

import numpy as np
import pytest
import torch

from oso_dp.gradients import GradientEngine
from oso_dp.models.losses import cross_entropy, squared_error
from oso_dp.training import evaluate
from oso_dp.training.evaluate import BATCH, Evaluator

SIZES = sorted({2, 3, 59, 60, *(BATCH * k + more for k in (1, 2) for more in (-1, 0, 1, 203))})


def scores(metric: str, size: int):
    """The evaluator's, and each example's value and loss by hand, one example at a time."""
    torch.manual_seed(size)
    model = torch.nn.Linear(5, 5 if metric == "mse" else 3)
    engine = GradientEngine(model, squared_error if metric == "mse" else cross_entropy)
    flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    inputs = torch.randn(size, 5)
    # The later, the larger: a part that is left out or counted twice is seen.
    inputs *= torch.linspace(0.5, 2, size)[:, None]
    targets = inputs if metric == "mse" else torch.randint(0, 3, (size,))
    found = Evaluator(engine, inputs, targets, metric)(flat)
    outputs = (inputs.double() @ model.weight.double().T + model.bias.double()).numpy()
    if metric == "mse":
        loss = value = ((outputs - targets.double().numpy()) ** 2).mean(axis=1)
    else:
        value = (outputs.argmax(axis=1) == targets.numpy()).astype(float)
        right = outputs[np.arange(size), targets.numpy()]
        loss = np.log(np.exp(outputs).sum(axis=1)) - right
    return {score.split: score for score in found}, value, loss


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("metric", ["accuracy", "mse"])
def test_evaluator_scores_equal_split_means(metric: str, size: int) -> None:
    found, value, loss = scores(metric, size)
    parts = {"test": slice(None), "test_even": slice(0, None, 2), "test_odd": slice(1, None, 2)}
    assert found.keys() == parts.keys()
    for split, part in parts.items():
        assert found[split].value == pytest.approx(value[part].mean(), rel=1e-5)
        assert found[split].loss == pytest.approx(loss[part].mean(), rel=1e-5)


def test_evaluator_dropout_disabled_then_restored() -> None:
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(5, 3))
    flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    engine, inputs = GradientEngine(model, cross_entropy), torch.randn(40, 5)
    targets = torch.randint(0, 3, (40,))
    found = Evaluator(engine, inputs, targets, "accuracy")(flat)[0]
    expected = cross_entropy(model[1](inputs), targets).mean().item()
    assert found.loss == pytest.approx(expected, rel=1e-5)
    assert all(layer.training for layer in model.modules())


def test_evaluator_class_accuracy_computed_per_class() -> None:
    """A split without examples of a class has no accuracy for that class."""
    model = torch.nn.Identity()
    targets = torch.tensor([0, 1, 0, 3, 0, 1, 2, 1])
    found = torch.tensor([0, 1, 1, 3, 0, 0, 2, 1])
    engine = GradientEngine(model, cross_entropy)
    outputs = torch.nn.functional.one_hot(found, 4).float()
    scores = Evaluator(engine, outputs, targets, "accuracy")(torch.zeros(0))
    assert {score.split: score.class_accuracy for score in scores} == {
        "test": (pytest.approx(2 / 3), pytest.approx(2 / 3), 1.0, 1.0),
        "test_even": (pytest.approx(2 / 3), None, 1.0, None),
        "test_odd": (None, pytest.approx(2 / 3), None, 1.0),
    }


@pytest.mark.parametrize(
    ("metric", "targets"),
    [("mse", torch.ones(4, 3)), ("accuracy", torch.tensor([0, 1, -1, 2]))],
)
def test_evaluator_class_accuracy_absent_without_classes(metric, targets) -> None:
    scorer = Evaluator(
        GradientEngine(torch.nn.Identity(), squared_error), torch.ones(4, 3), targets, metric
    )
    scorer.loss = scorer.metric = lambda outputs, targets: outputs[:, 0]
    assert all(score.class_accuracy is None for score in scorer(torch.zeros(0)))


def convolutional() -> torch.nn.Module:
    conv = torch.nn.Conv2d(1, 2, 3)
    return torch.nn.Sequential(conv, torch.nn.Flatten(), torch.nn.Linear(8, 3))


@pytest.mark.parametrize("elsewhere", [None, 7, 40])
@pytest.mark.parametrize("size", [2, 124, 125, 126, 251, 501])
def test_evaluator_convolutions_count_examples_once(size: int, elsewhere: int | None) -> None:
    """Convolutions and accelerators are evaluated in batches of other sizes."""
    torch.manual_seed(size)
    model = convolutional()
    engine = GradientEngine(model, cross_entropy)
    assert engine.chunk_size(torch.zeros(1, 1, 4, 4))
    flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    inputs, targets = torch.randn(size, 1, 4, 4), torch.randint(0, 3, (size,))
    inputs *= torch.linspace(0.5, 2, size)[:, None, None, None]
    evaluator = Evaluator(engine, inputs, targets, "accuracy")
    if elsewhere is not None:
        evaluator.batch = elsewhere
    with torch.no_grad():
        outputs = torch.cat([model(one[None]) for one in inputs])
    losses = torch.nn.functional.cross_entropy(outputs, targets, reduction="none").numpy()
    hits = (outputs.argmax(dim=1) == targets).double().numpy()
    parts = {"test": slice(None), "test_even": slice(0, None, 2), "test_odd": slice(1, None, 2)}
    for score in evaluator(flat):
        assert score.value == pytest.approx(hits[parts[score.split]].mean(), rel=1e-6)
        assert score.loss == pytest.approx(losses[parts[score.split]].mean(), rel=1e-5)


@pytest.mark.parametrize("batch", [1, 7, 61, 1000])
def test_evaluator_batch_size_has_no_effect(batch: int, monkeypatch) -> None:
    whole = scores("accuracy", 61)[0]
    monkeypatch.setattr(evaluate, "BATCH", batch)
    for split, score in scores("accuracy", 61)[0].items():
        assert score.value == whole[split].value
        assert score.loss == pytest.approx(whole[split].loss, rel=1e-6)
