"""Whatever constant of a method somebody sets, something is another one then."""

import dataclasses
import re
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
from tests.methods.test_methods import LAYERS, P, R, make, state

from oso_dp.errors import OsoError
from oso_dp.methods import Method, MethodOptions, State, find_method, method_names
from oso_dp.methods.base import option
from oso_dp.methods.option_checks import make_options
from oso_dp.study.config import method_options_model
from oso_dp.value_checks import check_number


def constants(name: str) -> list[str]:
    """The method's numbers that may be other ones than they are."""
    fields = dataclasses.fields(find_method(name).Options)
    return [
        one.name
        for one in fields
        if isinstance(one.default, float | int)
        and ("le" not in one.metadata or one.metadata["le"] > one.metadata.get("ge", -1))
    ]


def another(name: str, constant: str) -> float:
    """A value that is allowed and is not the default."""
    (field,) = (f for f in dataclasses.fields(find_method(name).Options) if f.name == constant)
    values = field.default * (1000 if field.default < 1e-3 else 0.5), field.default + 0.01
    if isinstance(field.default, bool):
        return not field.default
    for value in (field.default + 2,) if isinstance(field.default, int) else values:
        try:
            check_number(constant, value, **field.metadata)
        except OsoError:
            continue
        return value
    raise AssertionError(f"{name}: no other {constant} was found")


def answered(method: Method, mine: State, generator: torch.Generator) -> dict:
    answers = {}
    for query in method.queries(mine):
        width = P if query.group is None else sum(LAYERS[layer] for layer in query.group.layers)
        shape = (R,) if getattr(query, "scalar", False) else (R, width)
        answers[query.key] = torch.randn(shape, generator=generator)
    return answers


def everything(method: Method) -> list:
    """Where a run starts, what it asks for, and what becomes of it in three steps."""
    mine, generator = state(), torch.Generator().manual_seed(1)
    mine.parameters = torch.ones(R, P)
    seen = [method.initial_values(dict.fromkeys(method.search, 0.5))]
    for mine.step in (1, 2, 3):
        seen += [value for query in method.queries(mine) for value in vars(query).values()]
        method.update(mine, answered(method, mine, generator))
        seen += [mine.parameters.clone(), mine.learning_rate, mine.threshold]
    return [value.tolist() if torch.is_tensor(value) else value for value in seen]


@pytest.mark.parametrize(
    ("name", "constant"),
    [(name, constant) for name in method_names() for constant in constants(name)],
)
def test_method_constant_changes_training(name: str, constant: str) -> None:
    """A constant that no code reads would appear in the plan and the rows without effect."""
    usual = everything(make(name, 0.9))
    assert usual == everything(make(name, 0.9))
    assert usual != everything(make(name, 0.9, **{constant: another(name, constant)}))


@dataclasses.dataclass(frozen=True)
class Typed(MethodOptions):
    factor: float = option(0.5, gt=0)
    every: int = option(10, ge=1)
    nesterov: bool = option(False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"factor": 1, "every": 3, "nesterov": True}, None),
        ({"every": 2.5}, "every: 2.5; must be an integer >= 1"),
        ({"every": True}, "every: True; must be an integer >= 1"),
        ({"nesterov": 1}, "nesterov: 1; must be True or False"),
        ({"nesterov": "no"}, "nesterov: 'no'; must be True or False"),
        ({"factor": False}, "factor: False; must be a number > 0"),
    ],
)
def test_make_options_matches_study_model(given, message) -> None:
    study = "oso_dp.study.config.find_method"
    with patch(study, return_value=SimpleNamespace(Options=Typed)):
        validated = method_options_model("typed")
    if message is None:
        assert make_options(Typed, given, "f") == Typed(**validated(**given).model_dump())
        return
    with pytest.raises(OsoError, match=f"^{re.escape(message)}$"):
        make_options(Typed, given, "f")
    with pytest.raises(ValueError, match="validation error"):
        validated(**given)
