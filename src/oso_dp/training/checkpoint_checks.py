"""Whether a state that was read of a checkpoint is one from which this job can go on."""

from copy import deepcopy

import torch
from torch import Tensor

from oso_dp.methods import Method, State


def check_state(state: State, fresh: State, runs: int, method: Method) -> None:
    """ValueError unless so many runs can go on from a state that was read."""
    for name, value in vars(fresh).items():
        other = getattr(state, name)
        if isinstance(value, Tensor):
            same = _form(other) == _form(_first(value, runs))
        elif name == "buffers":
            known = _expected_buffers(method, fresh).items()
            forms = {key: _form(_first(memory, runs)) for key, memory in known}
            same = {key: _form(memory) for key, memory in other.items()} == forms
        else:
            same = other == value or (name == "step" and type(other) is int and other > 0)
        if not same:
            raise ValueError(f"its {name} is not of this job")


def _expected_buffers(method: Method, fresh: State) -> dict[str, Tensor]:
    """What the method keeps after a step; tried on a copy, with answers of nothing but zeros."""
    trial = deepcopy(fresh)
    trial.step += 1
    runs, parameters = trial.parameters.shape
    answers = {}
    for query in method.queries(trial):
        width = parameters
        if query.group is not None:
            width = sum(trial.layers[layer] for layer in query.group.layers)
        shape = (runs,) if query.scalar else (runs, width)
        answers[query.key] = torch.zeros(shape, device=trial.parameters.device)
    method.update(trial, answers)
    return trial.buffers


def _first(tensor: Tensor, runs: int) -> Tensor:
    """As of so many runs."""
    return tensor[:1].expand(runs, *tensor.shape[1:])


def _form(value: object) -> tuple[object, ...]:
    return (value.shape, value.dtype, value.device) if isinstance(value, Tensor) else ()
