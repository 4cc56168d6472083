"""Parameters that learn in another optimizer have no noise."""

from collections.abc import Callable

import pytest
import torch
from tests.opacus.helpers import MODES, QUIET, examples, make, network
from torch import nn

from oso_dp.errors import OsoError

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]
UNHELD = (
    "optimizer: lacks parameter '{}', which requires a gradient and would be trained without noise"
)


def sgd(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for one in modules for p in one.parameters()], lr=0.1)


class Beside(nn.Sequential):
    """Has a parameter of its own."""

    def __init__(self) -> None:
        super().__init__(*network())
        self.scale = nn.Parameter(torch.ones(()))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("model", "held", "missing"),
    [
        (network(), lambda model: sgd(model[3]), "0.weight"),
        (network(), lambda model: sgd(model[0], model[3]), "2.weight"),
        (network(), lambda model: torch.optim.SGD([model[0].weight], 0.1), "0.bias"),
        (nn.Sequential(network(), nn.Linear(3, 3)), lambda model: sgd(model[0]), "1.weight"),
        (Beside(), lambda model: sgd(*model), "scale"),
    ],
)
def test_a_part_in_another_optimizer_is_refused(model, held, missing, mode) -> None:
    with pytest.raises(OsoError, match=UNHELD.format(missing)) as raised:
        make(mode=mode, model=model, optimizer=held(model))
    assert "\n" not in str(raised.value)


def unfreeze(model: nn.Module) -> None:
    model[0].requires_grad_(True)


def replace_last(model: nn.Module) -> None:
    model[3] = nn.Linear(5, 3)


def add_parameter(model: nn.Module) -> None:
    model.scale = nn.Parameter(torch.ones(3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize(
    ("change", "missing"),
    [(unfreeze, "0.weight"), (replace_last, "3.weight"), (add_parameter, "scale")],
)
def test_a_part_that_learns_later_is_refused(change: Callable, missing, wrapped, mode) -> None:
    model = network()
    model[0].requires_grad_(False)
    made = make(mode=mode, model=model, wrap_model=wrapped)
    made.step(*examples(count=5))
    change(model)
    with pytest.raises(OsoError, match=UNHELD.format(missing)):
        made.step(*examples(count=5))
    assert made.optimizer.ledger.step_count == 1


def test_frozen_parts_need_no_optimizer() -> None:
    model = network()
    model[0].requires_grad_(False)
    made = make(model=model, optimizer=sgd(model[2], model[3]))
    made.step(*examples(count=5))
    assert made.optimizer.ledger.step_count == 1
