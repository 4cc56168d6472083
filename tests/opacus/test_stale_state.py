"""What a script leaves behind in the middle of a step: the next one has nothing of it."""

import copy
from typing import Any

import pytest
import torch
from tests.opacus.helpers import (
    MODES,
    QUIET,
    Recorded,
    examples,
    loader_of,
    make,
    network,
    parameters_of,
)
from tests.opacus.layers import Scaled
from torch import nn

from oso_dp.errors import OsoError

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("left", ["forward", "backward"])
def test_a_loop_left_in_the_middle_of_a_step_does_not_stop_the_next_one(mode, left) -> None:
    made = make(mode=mode, loader=loader_of(*examples(count=12), batch_size=12))
    inputs, targets = next(iter(made.loader))
    loss = made.criterion(made.model(inputs), targets)
    if left == "backward":
        loss.backward()
    for inputs, targets in made.loader:
        made.backward(inputs, targets)
        made.optimizer.step()
    assert made.optimizer.ledger.step_count == 1


@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_what_is_computed_without_hooks_is_no_call_of_training(mode) -> None:
    made = make(mode=mode)
    inputs, targets = examples()
    made.model.disable_hooks()
    made.model(inputs)
    made.model.enable_hooks()
    outputs = inputs
    for part in made.model._module:
        outputs = part(outputs)
    made.criterion(outputs, targets).backward()
    with pytest.raises(OsoError, match="call the model itself"):
        made.optimizer.step()


@pytest.mark.parametrize("mode", MODES)
def test_each_groups_rate_is_the_scripts_again_after_every_step(mode) -> None:
    model = network()
    rates = {0: 0.1, 2: 0.2, 3: 0.4}  # by the layer's place
    groups = [{"params": [*model[at].parameters()], "lr": rate} for at, rate in rates.items()]
    optimizer = torch.optim.SGD(groups)
    made = make(
        mode=mode, model=model, optimizer=optimizer, learning_rate_rate=0.5, noise=Recorded()
    )
    inputs, targets = examples()
    for _ in range(3):
        made.step(inputs[:7], targets[:7])
        assert [group["lr"] for group in made.optimizer.param_groups] == [*rates.values()]
    assert made.optimizer.learning_rate_factor != 1.0


class Wrapper(nn.Module):
    """Shows its inner layer's attributes as its own, as adapters' wrappers do."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.inner(inputs)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("inner", [nn.Linear(6, 3), network(), Scaled()])
def test_a_wrapper_that_shows_its_layer_is_trained(inner, twice, mode) -> None:
    """Also after a forward pass that had no step, whose traces are at the inner layer alone."""
    inner, plain = copy.deepcopy(inner), copy.deepcopy(inner)
    model = Wrapper(Wrapper(inner)) if twice else Wrapper(inner)
    made = make(mode=mode, model=model, noise=Recorded())
    other = make(mode=mode, model=plain, noise=Recorded())
    for one in (made, other):
        one.model(examples(count=5)[0])
        one.optimizer.start_over()
        for _ in range(2):
            one.step(*examples(count=5))
    assert torch.equal(parameters_of(made.optimizer), parameters_of(other.optimizer))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -float("inf")])
def test_a_factor_that_is_not_finite_is_not_gone_on_from(value) -> None:
    made, other = make(), make()
    made.step(*(part[:7] for part in examples()))
    state = made.optimizer.state_dict()
    state["oso_dp"]["learning_rate_factor"] = torch.tensor([value])
    with pytest.raises(OsoError, match="threshold and factor must be finite"):
        other.optimizer.load_state_dict(state)
    assert other.optimizer.learning_rate_factor == 1.0
