"""An optimizer's groups of parameters: what is asked of the first is asked of every one."""

from collections.abc import Callable

import pytest
import torch
from tests.opacus.helpers import MODES, QUIET, Recorded, examples, make, network
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.opacus.model_hooks import accumulation_dtype

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]
GROUPS = 3
Changed = Callable[[list[dict]], None]


class Branches(nn.Module):
    """Layers side by side, of which one takes its neighbours' examples along."""

    def __init__(self, mixing: int) -> None:
        super().__init__()
        self.layers, self.mixing = nn.ModuleList(nn.Linear(6, 3) for _ in range(GROUPS)), mixing

    def forward(self, inputs: Tensor) -> Tensor:
        of_others = inputs - inputs.mean(dim=0)
        return sum(
            layer(of_others if place == self.mixing else inputs)
            for place, layer in enumerate(self.layers)
        )


def sgd(model: nn.Module, layers: list[nn.Module], **changed: dict) -> torch.optim.Optimizer:
    """Of a group for each layer; `changed`: what is another there, by the group's place."""
    groups = [{"params": [*layer.parameters()]} for layer in layers]
    for place, values in changed.items():
        groups[int(place[1:])] |= values
    return torch.optim.SGD(groups, lr=0.1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mixing", range(GROUPS))
def test_a_layer_that_mixes_examples_is_refused_in_whichever_group_it_is(mixing, mode) -> None:
    model = Branches(mixing)
    with pytest.raises(OsoError, match="an example's gradient in a batch differs from"):
        make(mode=mode, model=model, optimizer=sgd(model, list(model.layers)))


@pytest.mark.parametrize("place", range(GROUPS))
def test_a_parameter_of_another_module_is_refused_in_whichever_group_it_is(place) -> None:
    model = Branches(-1)
    layers = [*model.layers]
    layers[place] = nn.Linear(6, 3)
    with pytest.raises(
        OsoError, match="optimizer: has parameters that do not belong to the module"
    ):
        make(model=model, optimizer=sgd(model, layers))


@pytest.mark.parametrize("how", [{"weight_decay": 0.01}, {"momentum": 0.9, "nesterov": True}])
@pytest.mark.parametrize("place", range(GROUPS))
def test_one_group_that_is_not_plain_keeps_the_rate_from_adapting(place, how) -> None:
    """Equation (21) is derived for plain steps of all parameters."""
    model = Branches(-1)
    made = make(model=model, optimizer=sgd(model, list(model.layers), **{f"_{place}": how}))
    for _ in range(4):
        made.step(*examples(count=7))
    assert made.optimizer.learning_rate_factor == 1.0
    assert made.optimizer.max_grad_norm != 0.5


def test_the_factor_multiplies_the_rate_of_every_group() -> None:
    model = Branches(-1).double()
    made = make(
        model=model,
        optimizer=sgd(model, list(model.layers), _1={"lr": 0.01}, _2={"lr": 3.0}),
        noise=Recorded(),
        learning_rate_rate=0.5,
    )
    for _ in range(3):
        factor = made.optimizer.learning_rate_factor
        before = [[p.detach().clone() for p in layer.parameters()] for layer in model.layers]
        made.step(*examples(double=True, count=7))
        for layer, old, rate in zip(model.layers, before, (0.1, 0.01, 3.0), strict=True):
            for parameter, value in zip(layer.parameters(), old, strict=True):
                torch.testing.assert_close(parameter - value, -rate * factor * parameter.grad)
    assert factor != 1.0


@pytest.mark.parametrize(
    ("of", "taken"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_norms_and_sums_have_float32s_digits_at_least(of, taken) -> None:
    """With ten bits, what is measured and what is summed could part by a thousandth of C."""
    assert accumulation_dtype(of) == taken
    if of == torch.float64:
        return
    made = make(model=network().to(of))
    assert made.optimizer.dtype == made.optimizer.driver.state.threshold.dtype == taken


@pytest.mark.parametrize("place", range(GROUPS))
def test_what_is_frozen_stays_in_whichever_group_it_is(place) -> None:
    """An earlier pass left it a gradient that nobody sanitized."""
    model = Branches(-1)
    model(examples(count=3)[0]).sum().backward()
    model.layers[place].requires_grad_(False)
    before = model.layers[place].weight.clone()
    made = make(model=model, optimizer=sgd(model, list(model.layers)))
    made.backward(*examples(count=3))
    made.optimizer.step()  # without zero_grad, which would clear it
    assert torch.equal(model.layers[place].weight, before)
