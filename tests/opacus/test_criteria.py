"""Losses that mix examples, and gradients that belong to no example, are refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.opacus.helpers import (
    BATCH,
    INPUTS,
    NOT_TRIED,
    QUIET,
    Made,
    Recorded,
    examples,
    loader_of,
    make,
    network,
    refused,
)
from tests.opacus.layer_cases import CASES
from torch import Tensor, nn
from torch.nn.utils.rnn import (
    pack_padded_sequence,
)

from oso_dp.opacus.gradient_origins import GradientOrigins, find_leaves

pytestmark = [pytest.mark.filterwarnings(text) for text in (*QUIET, NOT_TRIED)]


LEANS = "an example's loss depends on other examples"


class Straight:
    """Each loss is that of its example alone; its gradient is that of all of them."""

    reduction = "mean"

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        mean = losses.mean()
        losses = losses + mean - mean.detach()
        return losses if self.reduction == "none" else losses.mean()


def test_ghost_criterion_mixing_backward_rejected() -> None:
    made = make(mode="ghost", criterion=Straight())
    refused(lambda: made.step(*examples(count=4)), LEANS)
    assert made.optimizer.ledger.step_count == 0


DONE: dict[str, Callable[[Any], Any]] = {
    "all": lambda loss: 2 - (-loss / 4 + loss * 3 - (1 - loss)),
    "from the left": lambda loss: 5 + 3 * loss,
    "less": lambda loss: loss / 2 - 5,
    "from three times itself": lambda loss: 3 * loss - loss,
    "and itself": lambda loss: loss + 0.5 * loss,
}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("how", DONE)
def test_ghost_loss_arithmetic_matches_tensors(how, reduction) -> None:
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
def test_check_criterion_weighted_mean_rejected(mode, kind, classes) -> None:
    """NLLLoss divides by the others' weights, too; one more example would move everybody's."""
    inputs: Tensor = examples(count=20)[0]
    loader = loader_of(inputs, torch.zeros(20).long(), batch_size=4)
    model = nn.Linear(6, classes)
    refused(
        lambda: make(mode=mode, model=model, loader=loader, criterion=weighted(kind, classes)),
        "criterion: a class-weighted mean divides by",
    )
    make(mode="ghost", model=model, loader=loader, criterion=weighted(kind, classes))


class ByTheOthers(nn.Module):
    """Weighs an example by how many there are."""

    reduction = "mean"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        losses = losses * (1 + outputs.detach().mean())
        return losses if self.reduction == "none" else losses.mean()


def test_ghost_criterion_mixing_rejected_repeatedly() -> None:
    """Whoever runs a cell of a notebook a second time does not get past it."""
    made = make(mode="ghost", criterion=ByTheOthers())
    for _ in range(3):
        refused(
            lambda: made.criterion(made.model(examples(count=4)[0]), examples(count=4)[1]), LEANS
        )
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
def test_ghost_criterion_one_sided_mixing_rejected(before, detached, first) -> None:
    """Whichever example stands first has nobody before it; nor has one that is alone, so that the
    first batch of two or more is tried."""
    made = make(mode="ghost", criterion=ByThoseBeside(before, detached))
    if first < 2:
        made.step(*examples(count=first))
    refused(lambda: made.step(*examples(count=4)), LEANS)
    assert made.optimizer.ledger.step_count == (first < 2)


class Hardest(nn.Module):
    """Counts the largest losses of a batch only."""

    reduction = "mean"

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        kept = losses.detach().topk(max(1, round(self.share * len(losses)))).indices
        losses = losses * torch.zeros_like(losses).index_fill(0, kept, 1.0)
        return losses if self.reduction == "none" else losses.mean()


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("count", [10, 100])
def test_ghost_criterion_hardest_examples_rejected(count, share) -> None:
    """Most examples' losses, the first and the last among them, may depend on no other."""
    made = make(mode="ghost", criterion=Hardest(share))
    refused(lambda: made.step(*examples(count=count)), LEANS, made)


class Centred(nn.Module):
    """Subtracts an average of all outputs so far."""

    reduction = "mean"

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(3))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(outputs - self.centre, targets, reduction="none")
        self.centre.mul_(0.9999).add_(outputs.detach().mean(0), alpha=0.0001)
        return losses if self.reduction == "none" else losses.mean()


def test_ghost_criterion_changed_buffer_rejected() -> None:
    made = make(mode="ghost", criterion=Centred())
    message = "criterion: its forward pass changes buffer 'centre'"
    refused(lambda: made.step(*examples(count=6)), message, made)


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


def test_ghost_criterion_unknown_size_checked() -> None:
    made = make(mode="ghost", model=Opening(), criterion=ByTheOthers())
    inputs, targets = examples(count=4)
    refused(lambda: made.criterion(made.model(Held(inputs)), targets), LEANS)


FOREIGN = r"loss: parameter '{}' gets a gradient that belongs to no example"


def squares(model: nn.Module) -> Tensor:
    return sum(p.pow(2).sum() for p in model.parameters())


def one_bias(model: nn.Module) -> Tensor:
    return (model[0].bias - 1).pow(2).sum()


def a_part_aside(model: nn.Module) -> Tensor:
    """What functions of torch's compute with a weight has no hook."""
    return nn.functional.linear(torch.ones(2, 6), model[0].weight).mean()


PENALTIES = {
    squares: r"[03]\.\w+|2\.\w+",
    one_bias: r"0\.bias",
    a_part_aside: r"0\.weight",
}


def behind(made: Made, model: nn.Module, penalty: Callable, batch: Any) -> None:
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


@pytest.mark.parametrize(
    ("penalty", "backward"),
    [
        *((penalty, behind) for penalty in PENALTIES),
        *(
            (penalty, other)
            for penalty in (squares, a_part_aside)
            for other in (before, on_its_own)
        ),
    ],
)
def test_gradient_origins_penalty_rejected(penalty, backward, mode) -> None:
    model = network()
    made = make(mode=mode, model=model)
    backward(made, model, penalty, examples(count=5))
    refused(lambda: made.optimizer.step(), FOREIGN.format(f"({PENALTIES[penalty]})"))
    assert made.optimizer.ledger.step_count == 0


def test_gradient_origins_later_penalty_rejected(mode) -> None:
    """In the call behind 1, 2, 4, 8, ..."""
    model = network()
    made = make(mode=mode, model=model)
    for _ in range(4):
        made.step(*examples(count=5))

    def train() -> None:
        while made.optimizer.ledger.step_count < 9:
            made.optimizer.zero_grad()
            behind(made, model, squares, examples(count=5))
            made.optimizer.step()

    refused(lambda: train(), "loss: parameter")
    assert made.optimizer.ledger.step_count == 7


class Angles(nn.CrossEntropyLoss):
    """Has weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().forward(self.scale * outputs, targets)


def test_check_criterion_trained_parameter_rejected(mode) -> None:
    refused(
        lambda: make(mode=mode, criterion=Angles()),
        "criterion: parameter 'scale' requires a gradient",
    )
    make(mode=mode, criterion=Angles().requires_grad_(False)).step(*examples(count=5))


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("body", [nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Tanh())])
def test_model_hooks_trained_inputs_rejected(body, wrapped, mode) -> None:
    """It learns from gradients without noise, in whichever optimizer."""
    made = make(mode=mode, wrap_model=wrapped)
    inputs, targets = examples(count=5)
    made.backward(body(inputs), targets)
    refused(lambda: made.optimizer.step(), "model: inputs are computed from a tensor")
    made.model.zero_grad()
    with torch.no_grad():
        features = body(inputs)
    made.step(features, targets)
    assert made.optimizer.ledger.step_count == 1


def test_model_hooks_inputs_of_leaf_rejected(mode) -> None:
    """A script could move the next batch's perturbation by this gradient, which has no noise."""
    made, shift = make(mode=mode), torch.zeros(6, requires_grad=True)
    inputs, targets = examples(count=5)
    made.backward(inputs + shift, targets)
    refused(lambda: made.optimizer.step(), "model: inputs are computed from a tensor")
    made.step(inputs + shift.detach(), targets)


FORMS: dict[str, Callable[[Tensor], Any]] = {
    "plain": lambda value: value,
    "view": lambda value: value.transpose(0, 1)[1:],
    "packed": lambda value: pack_padded_sequence(value, [4, 2], batch_first=True),
    "joined": lambda value: torch.cat([torch.ones_like(value), value]),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_find_leaves_input_leaf_found(form) -> None:
    inputs, scale = torch.ones(2, 4, 3), nn.Parameter(torch.ones(3))
    (found,) = find_leaves([torch.ones(2), form(inputs * scale)])
    assert found is scale
    perturbed = inputs.clone().requires_grad_()
    (found,) = find_leaves([None, form(inputs), form(perturbed * 2)])
    assert found is perturbed


@pytest.mark.parametrize("name", CASES)
def test_gradient_origins_layer_cases_accepted(name, mode) -> None:
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


def test_gradient_origins_close_removes_hooks() -> None:
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


def test_make_private_probability_criterion_accepted(mode) -> None:
    model = nn.Sequential(nn.Linear(INPUTS, 1), nn.Sigmoid(), nn.Flatten(0))
    made = make(mode=mode, model=model, criterion=nn.BCELoss())
    inputs, labels = examples(count=BATCH)
    made.step(inputs, (labels > 0).float())
    assert made.optimizer.ledger.step_count == 1


def test_ghost_criterion_column_losses_flattened() -> None:
    inputs, labels = examples(count=BATCH)
    found = []
    for targets, outputs in ((labels[:, None], nn.Identity()), (labels, nn.Flatten(0))):
        made = make(
            mode="ghost", model=nn.Linear(INPUTS, 1), criterion=nn.MSELoss(), noise=Recorded()
        )
        with torch.no_grad():
            for parameter in made.optimizer.trained:
                parameter.fill_(0.1)
        made.criterion(outputs(made.model(inputs)), targets.float()).backward()
        made.optimizer.pre_step()
        found.append(torch.cat([p.grad.flatten() for p in made.optimizer.trained]))
    assert torch.equal(*found)


@pytest.mark.parametrize(
    "scale", [lambda loss: loss / loss.item(), lambda loss: loss.item() * loss]
)
def test_ghost_loss_factor_of_batch_rejected(scale) -> None:
    """The factor depends on all examples and multiplies the gradient of each."""
    made = make(mode="ghost")

    def backward(count: int) -> None:
        inputs, targets = examples(count=count, seed=count)
        made.optimizer.zero_grad()
        scale(made.criterion(made.model(inputs), targets)).backward()

    backward(5)
    made.optimizer.step()
    refused(lambda: backward(6), "loss: is multiplied by ", made, 1)


def after_criterion(change, *, count: int):
    """A ghost training and its backward pass of `change(losses, outputs)`."""
    made = make(mode="ghost", model=nn.Linear(INPUTS, 2))
    inputs, targets = examples(count=count)

    def backward() -> None:
        made.optimizer.zero_grad()
        outputs = made.model(inputs.clone())
        change(made.criterion(outputs, targets % 2), outputs).backward()

    return made, backward


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize(
    "change",
    [
        lambda loss, outputs: loss + 0.1 * outputs.square().mean(),
        lambda loss, outputs: loss - outputs.square().sum(1).cumsum(0),
        lambda loss, outputs: outputs.flip(0).sum(1) + loss,
        lambda loss, outputs: loss * (outputs.exp().sum(1) / outputs.exp().sum()),
        lambda loss, outputs: loss + (loss.loss_per_sample.sum() - loss.loss_per_sample),
    ],
)
def test_ghost_loss_terms_of_batch_rejected(change, count) -> None:
    made, backward = after_criterion(change, count=count)
    refused(backward, "loss: a term or factor that was computed from the whole batch", made)


def test_ghost_loss_terms_checked_after_single_example() -> None:
    made, backward = after_criterion(lambda loss, outputs: loss + outputs.mean(), count=1)
    backward()
    made.optimizer.step()
    inputs, targets = examples(count=3)
    made.optimizer.zero_grad()
    outputs = made.model(inputs)
    loss = made.criterion(outputs, targets % 2) + outputs.mean()
    refused(loss.backward, "loss: a term or factor that was computed from the whole batch", made, 1)


def test_ghost_loss_terms_checked_after_nonfinite_example() -> None:
    made = make(mode="ghost", model=nn.Linear(INPUTS, 2))
    inputs, targets = examples(count=4)
    spoilt = inputs.clone()
    spoilt[1] = torch.inf
    made.criterion(made.model(spoilt), targets % 2).backward()
    made.optimizer.step()
    made.optimizer.zero_grad()
    outputs = made.model(inputs)
    loss = made.criterion(outputs, targets % 2) + outputs.mean()
    refused(loss.backward, "loss: a term or factor that was computed from the whole batch", made, 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda loss, outputs: loss + 0.1 * outputs.square().mean(1),
        lambda loss, outputs: loss * outputs.softmax(1)[:, 0],
        lambda loss, outputs: loss + 3.0,
    ],
)
def test_ghost_loss_terms_by_example_accepted(change) -> None:
    made, backward = after_criterion(change, count=5)
    for _ in range(2):
        backward()
        made.optimizer.step()
    assert made.optimizer.ledger.step_count == 2


def standardised(outputs: Tensor) -> Tensor:
    return (outputs - outputs.mean(0)) / outputs.std(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (standardised, "criterion: its inputs mix the examples"),
        (nn.BatchNorm1d(2, affine=False), "criterion: its inputs mix the examples"),
        (lambda outputs: outputs + outputs[-1:], "criterion: its inputs mix the examples"),
        (nn.Linear(2, 2), "criterion: its inputs are computed from a tensor that requires"),
    ],
)
def test_ghost_criterion_unsafe_inputs_rejected(change, message) -> None:
    made = make(mode="ghost", model=nn.Linear(INPUTS, 2))
    inputs, targets = examples(count=5)
    refused(lambda: made.criterion(change(made.model(inputs)), targets % 2), message, made)


def test_ghost_criterion_checked_after_evaluation() -> None:
    made = make(mode="ghost", model=nn.Linear(INPUTS, 2))
    inputs, targets = examples(count=5)
    with torch.no_grad():
        made.criterion(made.model(inputs), targets % 2)
    made.model.eval()
    made.criterion(made.model(inputs), targets % 2)
    made.model.train()
    message = "criterion: its inputs mix the examples"
    refused(lambda: made.criterion(standardised(made.model(inputs)), targets % 2), message, made)


@pytest.mark.parametrize(
    "change",
    [lambda o: o.log_softmax(1), lambda o: 3 * o[:, :2], lambda o: o.flip(1).clamp(min=-1)],
)
def test_ghost_criterion_inputs_by_example_accepted(change) -> None:
    made = make(mode="ghost", model=nn.Sequential(nn.Linear(INPUTS, 3), nn.Tanh()))
    inputs, targets = examples(count=5)
    for _ in range(2):
        made.optimizer.zero_grad()
        made.criterion(change(made.model(inputs.clone())), targets % 2).backward()
        made.optimizer.step()
    assert made.optimizer.ledger.step_count == 2


def test_ghost_mode_other_criterion_rejected() -> None:
    """Its losses may depend on other examples: by a mean over class weights, for instance."""
    inputs, targets = examples()
    made = make(mode="ghost", model=nn.Linear(6, 3), loader=loader_of(inputs, targets))
    outputs = made.model(inputs[:5])
    loss = nn.functional.cross_entropy(outputs, targets[:5], torch.tensor([50.0, 1.0, 1.0]))
    refused(loss.backward, "not of the criterion that make_private returned", made)
