"""What a loss adds beside the examples' terms is told: it would have no effect, or no noise."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.opacus.helpers import MODES, QUIET, Made, Recorded, examples, loader_of, make, network
from tests.opacus.layers import CASES
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from oso_dp.errors import OsoError
from oso_dp.opacus.gradient_origins import GradientOrigins, depend_on_parameters

NOT_TRIED = "ignore:module. not checked whether"
pytestmark = [pytest.mark.filterwarnings(text) for text in (*QUIET, NOT_TRIED)]
FOREIGN = r"loss: parameter '{}' gets a gradient that belongs to no example"


def squares(model: nn.Module) -> Tensor:
    return sum(p.pow(2).sum() for p in model.parameters())


def small(model: nn.Module) -> Tensor:
    return 1e-5 * squares(model)


def one_layer(model: nn.Module) -> Tensor:
    return model[3].weight.abs().sum()


def one_bias(model: nn.Module) -> Tensor:
    return (model[0].bias - 1).pow(2).sum()


def orthogonal(model: nn.Module) -> Tensor:
    return (model[0].weight @ model[0].weight.T - torch.eye(5)).norm()


def a_part_aside(model: nn.Module) -> Tensor:
    """What functions of torch's compute with a weight has no hook."""
    return nn.functional.linear(torch.ones(2, 6), model[0].weight).mean()


PENALTIES = {
    squares: r"[03]\.\w+|2\.\w+",
    small: r"[03]\.\w+|2\.\w+",
    one_layer: r"3\.weight",
    one_bias: r"0\.bias",
    orthogonal: r"0\.weight",
    a_part_aside: r"0\.weight",
}


def after(made: Made, model: nn.Module, penalty: Callable, batch: Any) -> None:
    loss = made.criterion(made.model(batch[0]), batch[1])
    (loss + penalty(model)).backward()


def before(made: Made, model: nn.Module, penalty: Callable, batch: Any) -> None:
    term = penalty(model)
    loss = made.criterion(made.model(batch[0]), batch[1])
    (loss + term).backward()


def on_its_own(made: Made, model: nn.Module, penalty: Callable, batch: Any) -> None:
    loss = made.criterion(made.model(batch[0]), batch[1])
    loss.backward()
    penalty(model).backward()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backward", [after, before, on_its_own])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_penalty_is_refused(penalty, backward, mode) -> None:
    model = network()
    made = make(mode=mode, model=model)
    backward(made, model, penalty, examples(count=5))
    with pytest.raises(OsoError, match=FOREIGN.format(f"({PENALTIES[penalty]})")) as raised:
        made.optimizer.step()
    assert "\n" not in str(raised.value)
    assert made.optimizer.ledger.step_count == 0


class Penalised(nn.CrossEntropyLoss):
    """Adds a share of the penalty to each example's loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().forward(outputs, targets) + squares(self.model)


@pytest.mark.parametrize("mode", MODES)
def test_a_penalty_in_the_criterion_is_refused(mode) -> None:
    model = network()
    made = make(mode=mode, model=model, criterion=Penalised(model))
    with pytest.raises(OsoError, match=r"loss: parameter .* weight_decay"):
        made.step(*examples(count=5))


@pytest.mark.parametrize("mode", MODES)
def test_a_penalty_that_begins_later_is_refused(mode) -> None:
    """In the call after 1, 2, 4, 8, ..."""
    model = network()
    made = make(mode=mode, model=model)
    for _ in range(4):
        made.step(*examples(count=5))

    def train() -> None:
        while made.optimizer.ledger.step_count < 9:
            made.optimizer.zero_grad()
            after(made, model, squares, examples(count=5))
            made.optimizer.step()

    with pytest.raises(OsoError, match="loss: parameter"):
        train()
    assert made.optimizer.ledger.step_count == 7


class Angles(nn.CrossEntropyLoss):
    """Has weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().forward(self.scale * outputs, targets)


class Nested(nn.CrossEntropyLoss):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(3, 3)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().forward(self.scale(outputs), targets)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "name"), [(Angles, "scale"), (Nested, "scale.weight")])
def test_a_criterion_that_learns_is_refused(kind, name, mode) -> None:
    with pytest.raises(OsoError, match=f"criterion: parameter '{name}' requires a gradient"):
        make(mode=mode, criterion=kind())
    make(mode=mode, criterion=kind().requires_grad_(False)).step(*examples(count=5))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("body", [nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Tanh())])
def test_inputs_that_a_part_outside_computed_are_refused(body, wrapped, mode) -> None:
    """It learns from gradients without noise, in whichever optimizer."""
    made = make(mode=mode, wrap_model=wrapped)
    inputs, targets = examples(count=5)
    made.backward(body(inputs), targets)
    with pytest.raises(OsoError, match="model: inputs are computed from a parameter"):
        made.optimizer.step()
    made.model.zero_grad()
    with torch.no_grad():
        features = body(inputs)
    made.step(features, targets)
    made.step(features.clone().requires_grad_() * 2, targets)  # of no parameter
    assert made.optimizer.ledger.step_count == 2


FORMS: dict[str, Callable[[Tensor], Any]] = {
    "plain": lambda value: value,
    "view": lambda value: value.transpose(0, 1)[1:],
    "packed": lambda value: pack_padded_sequence(value, [4, 2], batch_first=True),
    "joined": lambda value: torch.cat([torch.ones_like(value), value]),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_parameter_behind_inputs_found(form) -> None:
    inputs, scale = torch.ones(2, 4, 3), nn.Parameter(torch.ones(3))
    assert depend_on_parameters([torch.ones(2), form(inputs * scale)])
    assert not depend_on_parameters([None, form(inputs), form(inputs.clone().requires_grad_() * 2)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_no_layer_of_ours_is_taken_for_a_penalty(name, mode) -> None:
    """Nor a batch without examples, nor one of numbers that are none."""
    case = CASES[name]
    inputs, targets = case.examples(9)
    made = make(mode=mode, model=case.model(), loader=loader_of(inputs, targets), noise=Recorded())
    for count in (0, 9, 1, 4):
        made.step(inputs[:count], targets[:count])
    if inputs.is_floating_point():
        made.optimizer.start_over()
        made.model.calls = 0
        made.step(inputs[:4] * torch.tensor(float("nan")), targets[:4])
    assert made.optimizer.ledger.step_count >= 4


def test_watching_leaves_no_hook() -> None:
    model = nn.Linear(3, 2)
    origins = GradientOrigins(list(model.parameters()))
    outputs = model(torch.ones(4, 3))
    origins.add_layer(outputs)
    (outputs.sum() + model.bias.sum()).backward()
    assert origins.foreign is model.bias
    origins.close()
    origins.foreign = None
    model.bias.sum().backward()
    assert origins.foreign is None
