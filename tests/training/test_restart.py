"""A job goes on from a checkpoint of these very data and choices, and from no other."""

from dataclasses import replace

import numpy as np
import pytest
from tests.training.test_job import study

from oso_dp.data.arrays import Arrays
from oso_dp.study.plain import PlainConfig
from oso_dp.training.job import run_job, task_of

PARTS = ("train_inputs", "train_targets", "test_inputs", "test_targets")


@pytest.fixture(scope="module")
def glyphs(arrays) -> Arrays:
    """As many examples as the catalogue says."""
    train = np.tile(arrays.train_inputs, (30, 1, 1, 1)), np.tile(arrays.train_targets, 30)
    return Arrays(*train, arrays.test_inputs, arrays.test_targets)


@pytest.fixture(scope="module")
def begun(glyphs, tmp_path_factory):
    """A folder in which one run of the study was trained to its end."""
    folder = tmp_path_factory.mktemp("job")
    config, cohort = study()
    run_job(config, cohort, cohort.runs[:1], 1.5, glyphs, folder)
    return folder


def first_step(begun, tmp_path, arrays, config=None, cohort=None, runs=None, noise=1.5):
    """Where a call in a copy of the folder begins; None: nothing was left to do."""
    for path in begun.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    usual = study()
    config, cohort = config or usual[0], cohort or usual[1]
    steps: list[int] = []

    class EnoughError(Exception):
        pass

    def note(done: int, step: int) -> None:
        steps.append(step)
        raise EnoughError

    try:
        run_job(config, cohort, runs or cohort.runs[:1], noise, arrays, tmp_path, note)
    except EnoughError:
        return steps[0]
    return None


def test_the_same_call_has_nothing_left_to_do(begun, tmp_path, glyphs) -> None:
    assert first_step(begun, tmp_path, glyphs) is None


@pytest.mark.parametrize("place", ["first", "middle", "last"])
@pytest.mark.parametrize("part", PARTS)
def test_a_single_value_that_differs_begins_anew(part, place, begun, tmp_path, glyphs) -> None:
    """Labels and the test set, too: half of a run would be of one and half of the other."""
    changed = getattr(glyphs, part).copy()
    values = changed.reshape(-1)  # a view
    at = {"first": 0, "middle": values.size // 2, "last": values.size - 1}[place]
    if changed.dtype.kind == "i":
        values[at] = (values[at] + 1) % 10
    else:
        values[at] = np.nextafter(values[at], np.float32(2))  # one bit
    assert not np.array_equal(changed, getattr(glyphs, part))
    assert first_step(begun, tmp_path, replace(glyphs, **{part: changed})) == 1


def test_the_same_examples_in_another_order_begin_anew(begun, tmp_path, glyphs) -> None:
    """An index means an example: in another order, half of the batches would be of others."""
    turned = {part: getattr(glyphs, part)[::-1].copy() for part in PARTS[:2]}
    assert first_step(begun, tmp_path, replace(glyphs, **turned)) == 1


def test_a_longer_test_set_begins_anew(begun, tmp_path, glyphs) -> None:
    longer = {part: np.concatenate([getattr(glyphs, part)] * 2) for part in PARTS[2:]}
    assert first_step(begun, tmp_path, replace(glyphs, **longer)) == 1


@pytest.mark.parametrize("noise", [1.5000001, 1.4999999, 3.0])
def test_other_noise_begins_anew(noise, begun, tmp_path, glyphs) -> None:
    assert first_step(begun, tmp_path, glyphs, noise=noise) == 1


def test_other_runs_begin_anew(begun, tmp_path, glyphs) -> None:
    config, cohort = study()
    assert first_step(begun, tmp_path, glyphs, runs=cohort.runs[1:2]) == 1
    config, cohort = study(methods={"online": {"threshold_rate": 0.1}})
    assert first_step(begun, tmp_path, glyphs, config, cohort) == 1


# Every choice of a configuration that a training could take otherwise, and where it arrives.
CHOICES = {
    "evaluate_every": ({"evaluate_every": 3}, 3),
    "last_layer_nonlinearity": ({"last_layer_nonlinearity": True}, True),
    "randomness": ({"randomness": "system"}, "system"),
    "batch_size": ({"batch_size": 400}, 400),
    "steps": ({"epochs": 3}, 30),
}


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("plain", [False, True])
def test_a_choice_arrives_in_the_training(name: str, plain: bool) -> None:
    values, expected = CHOICES[name]
    config, cohort = study(**values)
    if plain:  # as on a machine that has no more than torch
        settings = {"online": {}}
        config = PlainConfig(**{**dict(config), "settings": settings})
    usual = task_of(*study(), 1.5)
    assert getattr(task_of(config, cohort, 1.5), name) == expected != getattr(usual, name)


@pytest.mark.parametrize("loss", ["mean", "sum"])
def test_the_loss_over_pixels_arrives_in_the_training(loss: str) -> None:
    section = {"model": "autoencoder", "epsilons": [3], "seconds_per_step": 1, "loss": loss}
    assert task_of(*study(datasets={"fashion_mnist": section}), 1.5).loss == loss


def test_a_run_that_diverged_says_so_in_its_row(glyphs, tmp_path) -> None:
    """When it did, and a ledger of so many steps; its neighbour's row is as ever."""
    config, cohort = study()
    wild = replace(cohort.runs[0], learning_rate=1e38)
    rows = run_job(config, cohort, [wild, cohort.runs[1]], 1.5, glyphs, tmp_path).runs
    assert [row["status"] for row in rows] == ["diverged", "finished"]
    assert 1 <= rows[0]["diverged_at"] <= cohort.steps
    assert rows[1]["diverged_at"] is None
