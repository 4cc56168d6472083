"""Losses of ghost mode are numbers like any other: what is done to them is done to each of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.opacus.helpers import QUIET, Recorded, examples, loader_of, make, network
from torch import Tensor, nn

from oso_dp.errors import OsoError

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]
DONE: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda loss: loss,
    "minus": lambda loss: -loss,
    "half": lambda loss: loss / 2,
    "thrice": lambda loss: loss * 3,
    "thrice, from the left": lambda loss: 3 * loss,
    "more": lambda loss: loss + 5,
    "more, from the left": lambda loss: 5 + loss,
    "less": lambda loss: loss - 5,
    "from five": lambda loss: 5 - loss,
    "from three times itself": lambda loss: 3 * loss - loss,
    "itself from a third": lambda loss: loss / 3 - loss,
    "and itself": lambda loss: loss + 0.5 * loss,
    "all": lambda loss: 2 - (-loss / 4 + loss * 3 - (1 - loss)),
}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("how", DONE)
def test_each_loss_and_each_gradient_is_that_of_the_plain_numbers(how, reduction) -> None:
    """At a threshold that clips nobody, or another multiple of a gradient would look the same."""
    inputs, targets = examples(double=True, count=6)
    made = make(
        mode="ghost",
        model=network(double=True),
        loss_reduction=reduction,
        noise=Recorded(),
        max_grad_norm=1e6,
    )
    plain = network(double=True)
    expected = DONE[how](nn.functional.cross_entropy(plain(inputs), targets, reduction="none"))
    loss = DONE[how](made.criterion(made.model(inputs), targets))
    torch.testing.assert_close(loss.loss_per_sample, expected)
    total = expected.mean() if reduction == "mean" else expected.sum()
    assert loss.item() == pytest.approx(total.item())
    loss.backward()
    made.optimizer.step()
    expected.sum().backward()
    whole = torch.cat([p.grad.flatten() for p in plain.parameters()])
    memory = made.optimizer.driver.state.buffers["gradient"][0]
    torch.testing.assert_close(memory * made.optimizer.batch_size, whole)


def weighted(kind: type[nn.Module], classes: int) -> nn.Module:
    return kind(weight=torch.linspace(1.0, 2.0, classes))


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("kind", [nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss])
@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_a_mean_that_is_weighted_by_class_is_refused_whichever_loss_it_is(
    mode, kind, classes
) -> None:
    """NLLLoss divides by the others' weights, too; one more example would move everybody's."""
    inputs: Tensor = examples(count=20)[0]
    loader = loader_of(inputs, torch.zeros(20).long(), batch_size=4)
    model = nn.Linear(6, classes)
    with pytest.raises(OsoError, match="criterion: a class-weighted mean divides by"):
        make(mode=mode, model=model, loader=loader, criterion=weighted(kind, classes))
    make(mode="ghost", model=model, loader=loader, criterion=weighted(kind, classes))


class ByTheOthers(nn.Module):
    """Weighs an example by how many there are."""

    reduction = "mean"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        losses = losses * (1 + outputs.detach().mean())
        return losses if self.reduction == "none" else losses.mean()


def test_a_criterion_that_was_refused_is_refused_again() -> None:
    """Whoever runs a cell of a notebook a second time does not get past it."""
    made = make(mode="ghost", criterion=ByTheOthers())
    for _ in range(3):
        with pytest.raises(OsoError, match="an example's loss depends on other examples"):
            made.criterion(made.model(examples(count=4)[0]), examples(count=4)[1])
        made.optimizer.start_over()
    assert made.optimizer.ledger.step_count == 0


class ByThoseBeside(nn.Module):
    """Leans an example's loss on its neighbours on one side, by their outputs, detached or not."""

    reduction = "mean"

    def __init__(self, before: bool, detached: bool) -> None:
        super().__init__()
        self.before, self.detached = before, detached

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        beside = losses.detach() if self.detached else losses
        beside = beside if self.before else beside.flip(0)
        added = (beside.cumsum(0) - beside) * 0.1  # of the first one in this order nothing
        losses = losses + (added if self.before else added.flip(0))
        return losses if self.reduction == "none" else losses.mean()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("detached", [True, False])
@pytest.mark.parametrize("first", [0, 1, 4])
def test_a_loss_may_lean_on_no_side(before, detached, first) -> None:
    """Whichever example stands first has nobody before it; nor has one that is alone, so that the
    first batch of two or more is tried."""
    made = make(mode="ghost", criterion=ByThoseBeside(before, detached))
    if first < 2:
        made.step(*examples(count=first))
    with pytest.raises(OsoError, match="an example's loss depends on other examples"):
        made.step(*examples(count=4))
    assert made.optimizer.ledger.step_count == (first < 2)


class Held:
    """What a model may be called with that nobody sees the size of."""

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs


class Opening(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, held: Held) -> Tensor:
        return self.last(held.inputs)


@pytest.mark.filterwarnings("ignore:module. not checked whether")
def test_a_criterion_is_tried_where_nobody_knows_the_batches_size_too() -> None:
    made = make(mode="ghost", model=Opening(), criterion=ByTheOthers())
    inputs, targets = examples(count=4)
    with pytest.raises(OsoError, match="an example's loss depends on other examples"):
        made.criterion(made.model(Held(inputs)), targets)
