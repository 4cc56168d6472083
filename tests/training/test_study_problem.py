"""What is trained and what is scored, of the study's networks and of a user's own."""

import numpy as np
import pytest
import torch
from torch import nn

from oso_dp.data.arrays import Arrays
from oso_dp.errors import OsoError
from oso_dp.models import MODELS, build_model
from oso_dp.models.losses import squared_error, summed_squared_error
from oso_dp.training.loop import study_training
from oso_dp.training.study_problem import make_problem
from oso_dp.training.task import StudyTask, TrainingProblem, initial_parameters

CLASSES = 5


def own_model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, CLASSES))


def own_images() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 4))


@pytest.fixture
def rows() -> Arrays:
    """Of the training examples each is of class 0, of the test's none."""
    random = np.random.default_rng(0)
    inputs = random.random((60, 4)).astype(np.float32)
    targets = np.zeros(40, np.int64), random.integers(1, CLASSES, 20)
    return Arrays(inputs[:40], targets[0], inputs[40:], targets[1])


@pytest.fixture
def own(make_task, make_run, rows):
    """A user's problem, for as many runs as there are seeds."""

    def make(seeds=(0,), network=own_model, **changed) -> TrainingProblem:
        task: StudyTask = make_task("online", **{"model": "own", "network": network, **changed})
        return make_problem(task, [make_run(f"r{seed}", seed) for seed in seeds], rows)

    return make


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_study_training_uses_configured_precision(precision, arrays, make_task, make_run) -> None:
    task = make_task("online", precision=precision)
    training = study_training(task, [make_run()], arrays)
    problem = training.problem
    assert problem.engine.precision == problem.scores.engine.precision == task.product_precision
    other = make_task("online", precision={"float32": "bfloat16"}.get(precision, "float32"))
    moved = []
    for each_task in (task, task, other):
        one = study_training(each_task, [make_run()], arrays)
        one.take_step()
        moved.append(one.state.parameters)
    assert torch.equal(moved[0], moved[1])
    assert not torch.equal(moved[0], moved[2])


@pytest.mark.parametrize("name", MODELS)
def test_study_training_layers_match_parameter_order(name, make_task, make_run) -> None:
    """Layers are in the order of the parameter vector; "10" does not come before "2"."""
    shape = {"bag_of_words": (750,), "bag_of_words_25": (1250,), "small_cnn": (1, 14, 14)}
    shape |= {"linear": (4096,)}
    inputs = np.zeros((40, *shape.get(name, (1, 28, 28))), np.float32)
    own = Arrays(inputs, np.zeros(40, np.int64), inputs[:4], np.zeros(4, np.int64))
    metric = "mse" if "auto" in name else "accuracy"
    task = make_task("online", model=name, metric=metric)
    layers = study_training(task, [make_run()], own).state.layers
    sizes = [
        (layer, sum(p.numel() for p in module.parameters(recurse=False)))
        for layer, module in build_model(name).named_modules()
    ]
    assert [*layers.items()] == [pair for pair in sizes if pair[1]]


def test_make_problem_scores_test_set_only(own, rows) -> None:
    """Scores of training examples would be exact answers about them, in no ledger."""
    problem = own()
    inputs, targets, _ = problem.examples.batch(torch.arange(40)[None])
    assert torch.equal(inputs[0], torch.from_numpy(rows.train_inputs))
    assert torch.equal(targets[0], torch.from_numpy(rows.train_targets))
    for weights in (problem.initial_parameters[0], torch.randn(problem.engine.size)):
        outputs = problem.engine.outputs(weights, torch.from_numpy(rows.test_inputs))
        losses = nn.functional.cross_entropy(
            outputs, torch.from_numpy(rows.test_targets), reduction="none"
        )
        hits = (outputs.argmax(dim=1).numpy() == rows.test_targets).astype(float)
        for score, part in zip(
            problem.scores(weights),
            (slice(None), slice(0, None, 2), slice(1, None, 2)),
            strict=True,
        ):
            assert score.loss == pytest.approx(losses[part].mean().item())
            assert score.value == pytest.approx(hits[part].mean())


def test_make_problem_seeds_give_distinct_weights(own) -> None:
    first = own(seeds=(0, 1, 2, 1)).initial_parameters
    assert len(first.unique(dim=0)) == 3
    assert torch.equal(first[1], first[3])
    assert torch.equal(own(seeds=(2,)).initial_parameters[0], first[2])


def test_make_problem_counts_all_classes(own) -> None:
    assert own().classes == CLASSES
    assert own(network=own_images, metric="mse").classes == 2


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_make_problem_precision_matches_task(own, precision: str) -> None:
    assert own(precision=precision).engine.precision.name == precision


LOSSES = {"mean": squared_error, "sum": summed_squared_error}


@pytest.mark.parametrize("loss", LOSSES)
def test_make_problem_loss_matches_task(loss: str, own, make_task, make_run, arrays, rows) -> None:
    images = Arrays(*(np.tile(x, (1, 1, 2, 2)) if x.ndim == 4 else x for x in _parts(arrays)))
    task = make_task("online", model="autoencoder_strided", metric="mse", loss=loss)
    study = make_problem(task, [make_run()], images)
    mine = own(network=own_images, metric="mse", loss=loss)
    for problem, test in ((study, images.test_inputs), (mine, rows.test_inputs)):
        outputs, targets = torch.rand(2, 3, 7), torch.rand(2, 3, 7)
        assert torch.equal(problem.engine.loss(outputs, targets), LOSSES[loss](outputs, targets))
        given = torch.from_numpy(test)
        mean = (
            squared_error(problem.engine.outputs(problem.initial_parameters[0], given), given)
            .mean()
            .item()
        )
        assert problem.scores(problem.initial_parameters[0])[0].loss == pytest.approx(mean)


def _parts(arrays: Arrays) -> tuple[np.ndarray, ...]:
    return arrays.train_inputs, arrays.train_targets, arrays.test_inputs, arrays.test_targets


@pytest.mark.parametrize("flag", [True, False])
def test_make_problem_final_activation_applied(flag: bool, make_task, make_run, arrays) -> None:
    task = make_task("online", final_activation=flag)
    problem = make_problem(task, [make_run()], arrays)
    outputs = problem.engine.outputs(
        problem.initial_parameters[0], torch.from_numpy(arrays.test_inputs)
    )
    assert bool((outputs >= 0).all()) == flag


def test_make_problem_differing_frozen_weights_raise(own) -> None:
    def frozen() -> nn.Module:
        model = own_model()
        model[0].requires_grad_(False)
        return model

    with pytest.raises(
        OsoError, match=r"model: 0\.weight is not trained and differs between calls"
    ):
        own(seeds=(0, 1), network=frozen)


SEEDS = [*range(300), 1000, 1001, 2**16, 2**16 + 1, 2**31 - 1, 2**32, 2**32 + 1, 2**40]


def test_initial_parameters_differ_between_seeds(make_task) -> None:
    """Equal initial parameters would reduce the deviation over seeds."""
    first = torch.stack([initial_parameters(make_task("online"), seed) for seed in SEEDS])
    assert len(first[:, :8].unique(dim=0)) == len(SEEDS)
    spread = first - first.mean(dim=0)
    alike = torch.corrcoef(spread[:60]) - torch.eye(60)
    assert alike.abs().max() < 0.2


# Of seed 1: the first and the last weight, the vector's length; of seed 2^33 + 1 the first weight.
# The stored runs began with these.
FIRST = {
    "cnn": (0.06362630426883698, -0.091420978307724, 5.5047978471901, 0.021248281002044678),
    "autoencoder": (
        0.005732099525630474,
        0.20947036147117615,
        8.98220134699896,
        0.12448740005493164,
    ),
    "autoencoder_strided": (
        *(-0.060698628425598145, -0.09522327035665512, 8.97988235932229, 0.19846849143505096),
    ),
    "bag_of_words": (
        *(-0.011924573220312595, 0.04901312664151192, 9.328106207470446, 0.002081334125250578),
    ),
    "bag_of_words_25": (
        *(0.008416883647441864, 0.022576674818992615, 9.361400484775036, -0.01783536560833454),
    ),
    "small_cnn": (
        *(-0.18667803704738617, -0.03663715720176697, 4.090151595672743, -0.011462283320724964),
    ),
    "tanh_cnn": (
        *(-0.09974326193332672, 0.02322584204375744, 5.513735350134323, 0.026548370718955994),
    ),
    "softmax_regression": (0.0, 0.0, 0.0, 0.0),
    "linear": (0.0, 0.0, 0.0, 0.0),
}


@pytest.mark.parametrize("name", MODELS)
def test_initial_parameters_match_stored_values(name: str, make_task) -> None:
    task = make_task("online", model=name)
    first = initial_parameters(task, 1)
    found = first[0], first[-1], first.double().norm(), initial_parameters(task, 2**33 + 1)[0]
    assert [float(value) for value in found] == pytest.approx(FIRST[name], rel=1e-6)
