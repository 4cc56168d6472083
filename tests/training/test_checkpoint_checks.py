"""A state that was read is gone on from only if each part of it has this job's own form."""

from copy import deepcopy
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from oso_dp.methods import State
from oso_dp.training.checkpoint_checks import check_state
from oso_dp.training.loop import study_training

METHODS = ("online", "fixed_quantile", "adam_wosm", "auto_dog")
OTHER_FORMS = {
    "a run more": lambda value: torch.cat([value, value[:1]]),
    "another axis": lambda value: value[..., None],
    "a type with fewer digits": lambda value: value.half(),
    "no tensor": lambda value: value.tolist(),
    "nothing": lambda _: None,
}
TENSORS = ("parameters", "learning_rate", "threshold", "quantile", "average")


@pytest.fixture(params=METHODS)
def training(request, arrays, make_task, make_run):
    """Two runs after a step, with an average of their parameters."""
    task = make_task(request.param, averaging=0.9)
    made = study_training(task, [make_run("a"), make_run("b", seed=1)], arrays)
    made.take_step()
    return made


def check(state: State, training) -> None:
    check_state(state, training.state, 2, training.task.method)


def test_its_own_state_fits(training) -> None:
    check(deepcopy(training.state), training)


def test_no_part_is_left_out() -> None:
    others = {"noise_multiplier", "batch_size", "step", "layers", "buffers"}
    assert {field.name for field in fields(State)} == {*TENSORS, *others}


@pytest.mark.parametrize("form", OTHER_FORMS)
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_of_another_form_is_refused_by_its_name(name, form, training) -> None:
    state = deepcopy(training.state)
    setattr(state, name, OTHER_FORMS[form](getattr(state, name)))
    with pytest.raises(ValueError, match=f"its {name} is not of this job"):
        check(state, training)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("noise_multiplier", 0.999),
        ("batch_size", 1),
        ("step", 0),
        ("step", 2.0),
        ("layers", {}),
    ],
)
def test_another_choice_is_refused_by_its_name(name, value, training) -> None:
    state = deepcopy(training.state)
    setattr(state, name, value)
    with pytest.raises(ValueError, match=f"its {name} is not of this job"):
        check(state, training)


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_what_the_method_remembers_has_its_form(form, training) -> None:
    assert training.state.buffers
    for key in training.state.buffers:
        state = deepcopy(training.state)
        remembered: Tensor = state.buffers[key]
        state.buffers[key] = OTHER_FORMS[form](remembered)
        with pytest.raises(ValueError, match="its buffers is not of this job"):
            check(state, training)


def test_another_methods_memory_is_refused(training) -> None:
    for change in ({"more": torch.zeros(2)}, None):
        state = deepcopy(training.state)
        state.buffers = {} if change is None else state.buffers | change
        with pytest.raises(ValueError, match="its buffers is not of this job"):
            check(state, training)
