"""Scripts as people write them: closures, dictionaries, frozen BatchNorm, a model in eval mode."""

from collections.abc import Callable

import pytest
import torch
from tests.opacus.helpers import (
    BATCH,
    CLASSES,
    INPUTS,
    NOT_TRIED,
    QUIET,
    Made,
    Recorded,
    examples,
    loader_of,
    make,
    network,
    parameters_of,
    refused,
    untried_loader,
)
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from oso_dp.errors import OsoError

pytestmark = [pytest.mark.filterwarnings(text) for text in (*QUIET, NOT_TRIED)]


def test_optimizer_closure_called_once(mode) -> None:
    outcomes = []
    for with_closure in (False, True):
        made = make(mode=mode, model=network(double=True), noise=Recorded())
        batch = examples(double=True, count=7)
        calls = []

        def closure(made=made, batch=batch, calls=calls) -> float:
            calls.append(torch.is_grad_enabled())
            made.optimizer.zero_grad()
            made.backward(*batch)
            return 2.5

        if with_closure:
            assert made.optimizer.step(closure) == 2.5
            assert calls == [True]
        else:
            made.step(*batch)
        assert made.optimizer.ledger.step_count == 1
        outcomes.append(parameters_of(made.optimizer))
    assert torch.equal(*outcomes)


class Rows(Dataset):
    """Dictionaries, one of them in another."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> dict:
        return {"x": {"values": self.inputs[index]}, "y": self.targets[index]}


def test_learn_empty_batch_keeps_structure() -> None:
    inputs, targets = examples()
    made = make(loader=DataLoader(Rows(inputs, targets), batch_size=1))
    sampler = made.loader.batch_sampler
    sampler._sample_mask = lambda count: torch.zeros(count, dtype=torch.bool)
    batch = next(iter(made.loader))
    assert batch["x"]["values"].shape == (0, inputs.shape[1])
    assert (batch["y"].shape, batch["y"].dtype) == ((0,), torch.int64)
    made.step(batch["x"]["values"], batch["y"])
    assert made.optimizer.ledger.step_count == 1


def normed() -> nn.Sequential:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    model[1].running_mean += torch.randn(8)
    model[1].requires_grad_(False).eval()
    return model


def test_make_private_frozen_batchnorm_unchanged(mode) -> None:
    model = normed()
    before = [values.clone() for values in model[1].state_dict().values()]
    made = make(mode=mode, model=model, loader=loader_of(*examples()))
    for batch in made.loader:
        made.step(*batch)
    after = list(model[1].state_dict().values())
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert model[1].track_running_stats
    made.model.train()  # as scripts do in each epoch
    message = r"layer '1' \(BatchNorm1d\) is in training mode, in which it mixes"
    refused(lambda: made.step(*examples(count=5)), message)


def test_model_hooks_no_grad_batchnorm_rejected(mode) -> None:
    made = make(mode=mode, model=normed(), loader=loader_of(*examples()))
    made.model.train()
    with torch.no_grad():
        refused(lambda: made.model(examples()[0]), r"layer '1' \(BatchNorm1d\) is in training mode")
    inputs = DataLoader(examples()[0], batch_size=BATCH)
    message = "is in training mode, in which it mixes"
    refused(lambda: torch.optim.swa_utils.update_bn(inputs, made.model), message)


class Centres(nn.Module):
    """Without parameters; in training mode by the batch's mean, which it may keep."""

    def __init__(self, keeps: str) -> None:
        super().__init__()
        self.keeps = keeps
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return inputs - self.mean
        mean = inputs.detach().mean(dim=0)
        if self.keeps == "in place":
            self.mean.mul_(0.9).add_(mean, alpha=0.1)
        elif self.keeps == "anew":
            self.mean = 0.9 * self.mean + 0.1 * mean
        return inputs - mean


def centring(keeps: str, mode: str) -> Made:
    model = nn.Sequential(Centres(keeps), nn.Linear(6, 3))
    model[0].eval()
    return make(mode=mode, model=model, loader=loader_of(*examples()))


@pytest.mark.parametrize("keeps", ["", "in place", "anew"])
def test_model_hooks_eval_layer_training_rejected(keeps, mode) -> None:
    made = centring(keeps, mode)
    made.step(*examples(count=5))
    made.model.train()
    message = r"layer '0' \(Centres\) was in eval mode when make_private checked it"
    refused(lambda: made.step(*examples(count=5)), message, made, 1)


@pytest.mark.parametrize("keeps", ["in place", "anew"])
def test_model_hooks_no_grad_buffer_rejected(keeps, mode) -> None:
    made = centring(keeps, mode)
    made.model.train()
    with torch.no_grad():
        refused(lambda: made.model(examples()[0]), "the forward pass changes buffer '0.mean'")


@pytest.mark.parametrize(
    "spoil", [lambda norm: norm.train(), lambda norm: norm.requires_grad_(True)]
)
def test_check_module_active_batchnorm_rejected(spoil) -> None:
    model = normed()
    spoil(model[1])
    refused(lambda: make(model=model), r"layer '1' \(BatchNorm1d\): mixes the examples of a batch")


def test_model_hooks_eval_model_rejected(mode) -> None:
    made = make(mode=mode)
    made.model.eval()
    refused(lambda: made.step(*examples(count=3)), "is in eval mode, in which there are no per-exa")
    assert made.optimizer.ledger.step_count == 0


@pytest.mark.parametrize(
    "model",
    [
        lambda: nn.Sequential(nn.Linear(6, 3), nn.ReLU(inplace=True)),
        lambda: nn.Sequential(nn.Linear(6, 3), AddsInPlace()),
    ],
)
def test_check_independence_inplace_change_rejected(model) -> None:
    refused(lambda: make(model=model()), "use inplace=False, x = x \\+ y for x \\+= y")


class AddsInPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x += 1
        return x


class Checkpointed(nn.Module):
    """The middle part is computed once more in the backward pass, `twice` with one layer's weights.

    reentrant: None to compute it once.
    """

    def __init__(self, reentrant: bool | None, twice: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.middle, self.last = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.reentrant, self.twice = reentrant, twice

    def part(self, values: Tensor) -> Tensor:
        values = self.middle(values).tanh()
        return self.middle(values).tanh() if self.twice else values

    def forward(self, inputs: Tensor) -> Tensor:
        values = self.first(inputs).tanh()
        if self.reentrant is None:
            return self.last(self.part(values))
        return self.last(checkpoint(self.part, values, use_reentrant=self.reentrant))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_model_hooks_checkpointing_matches_plain(reentrant, twice, mode) -> None:
    trained = []
    for how in (None, reentrant):
        made = make(mode=mode, model=Checkpointed(how, twice), noise=Recorded())
        for count in (7, 0, 1, 12):
            made.step(*examples(count=count, seed=count))
        assert made.optimizer.ledger.step_count == 4
        trained.append(parameters_of(made.optimizer))
    assert torch.equal(*trained)


class Words(nn.Module):
    """Words and their places, a table with one row for all examples, as HuggingFace's models have.

    add: of the rows of places to those of words.
    """

    def __init__(self, add: Callable[[Tensor, Tensor], Tensor], dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(9, 4), nn.Embedding(7, 4)
        self.drop, self.head, self.add = Drop(dropout), nn.Linear(4, 3), add

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        places = torch.arange(tokens.shape[1])[None]
        rows = self.drop(self.add(self.words(tokens), self.places(places)).tanh())
        mask = torch.ones_like(tokens) if mask is None else mask
        return self.head((rows * mask[..., None]).sum(dim=1))


class Drop(nn.Module):
    """Drops in a function, as attention does."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        return nn.functional.dropout(values, self.rate, self.training)


class Texts(Dataset):
    """Dictionaries of the arguments of `Words`, and labels."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = (torch.arange(6) * (index + 1)) % 9
        return {"tokens": tokens, "mask": (tokens > 2).long(), "label": torch.tensor(index % 3)}


def added(words: Tensor, places: Tensor) -> Tensor:
    return words + places


@pytest.mark.filterwarnings("error:module. not checked")
@pytest.mark.parametrize("count", [0, 1, 5])
def test_expand_position_ids_matches_single_examples(count, mode) -> None:
    """The sum of a step is that of each example alone, clipped."""
    model = Words(added).double()
    sums = [torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.double)]
    tokens, targets = torch.arange(6).repeat(count, 1), torch.arange(count) % 3
    tokens = (tokens * torch.arange(1, count + 1)[:, None]) % 9
    for row, target in zip(tokens, targets, strict=True):
        loss = nn.functional.cross_entropy(model(row[None]), target[None])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        flat = torch.cat([one.flatten() for one in gradients])
        sums.append(flat * min(1.0, 0.02 / float(flat.norm())))
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    loader = DataLoader(Texts(), batch_size=12)
    made = make("fixed_quantile", mode, model, loader, noise=Recorded(), max_grad_norm=0.02)
    made.step(tokens, targets)
    step = before - nn.utils.parameters_to_vector(model.parameters()).detach()
    torch.testing.assert_close(step, 0.1 * torch.stack(sums).sum(dim=0) / 12)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize(
    "add",
    [
        lambda words, places: words + places[0],  # all of it would be the first example's
        lambda words, places: words + places.mean(dim=0),
        lambda words, places: words + places - 1e-3 * words.mean(dim=0),
    ],
)
def test_check_independence_mixed_positions_rejected(add, dropout) -> None:
    refused(
        lambda: make(model=Words(add, dropout), loader=DataLoader(Texts(), batch_size=6)),
        "mixes examples",
    )


@pytest.mark.filterwarnings("error:module. not checked")
def test_check_independence_functional_dropout_checked(mode) -> None:
    made = make(mode=mode, model=Words(added, 0.5), loader=DataLoader(Texts(), batch_size=6))
    for batch in made.loader:
        made.step(batch["tokens"], batch["label"])
    assert made.optimizer.ledger.step_count == 10


def test_expand_position_ids_untried_model_rejected(mode) -> None:
    made = make(mode=mode, model=Words(added), loader=untried_loader(*examples()))
    message = "layers see 1 and 4 examples" if mode != "ghost" else "4 losses for a batch of 1"
    refused(lambda: made.step(torch.arange(24).view(4, 6) % 9, torch.zeros(4).long()), message)


def test_model_hooks_outside_layer_call_rejected(mode) -> None:
    """At any step: most are not watched for gradients of other origins."""
    model = Words(added)
    made = make(mode=mode, model=model, loader=DataLoader(Texts(), batch_size=6))
    inputs, targets = torch.arange(24).view(4, 6) % 9, torch.zeros(4).long()
    for _ in range(4):
        made.step(inputs, targets)

    def step() -> None:
        made.optimizer.zero_grad()
        made.model(inputs)
        rows = model.head(torch.randn(4, 4))  # in place of the model's outputs
        made.criterion(rows, targets).backward()
        made.optimizer.step()

    with pytest.raises(OsoError):
        step()
    assert made.optimizer.ledger.step_count == 4


class Balanced(nn.Module):
    """Also returns a term that mixes the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.linear(inputs)
        return outputs, outputs.softmax(dim=1).mean(dim=0).square().sum()


def test_check_independence_batch_output_warns() -> None:
    with pytest.warns(UserWarning, match="not checked whether it mixes"):
        make(model=Balanced(), loader=loader_of(*examples()))


def old(made: Made) -> torch.optim.Optimizer:
    return made.optimizer.original_optimizer


def another(made: Made) -> torch.optim.Optimizer:
    return torch.optim.SGD(made.model.parameters(), lr=0.1)


def fused(made: Made) -> torch.optim.Optimizer:
    return torch.optim.Adam(made.model.parameters(), lr=0.1, fused=True)


@pytest.mark.parametrize("drops", [True, False])
@pytest.mark.parametrize("optimizer_of", [old, another, fused])
def test_model_hooks_repeated_foreign_step_rejected(mode, optimizer_of, drops) -> None:
    """It has no noise, and is in no ledger. In ghost mode there is no gradient for it."""
    made = make(mode=mode, model=nn.Linear(INPUTS, CLASSES))
    optimizer = optimizer_of(made)
    batch = examples(count=BATCH)

    def step() -> None:
        (made.model if drops else optimizer).zero_grad()
        made.backward(*batch)
        optimizer.step()

    before = parameters_of(made.optimizer).clone()
    step()
    if mode == "ghost":
        assert torch.equal(parameters_of(made.optimizer), before)
        return
    refused(step, "^model: its parameters were changed after a call in training mode", made)


def evaluate(made: Made) -> Tensor:
    return made.model.eval()(examples()[0])


def epsilon(made: Made) -> float:
    return made.engine.get_epsilon(1e-5)


@pytest.mark.parametrize("drops", [True, False])
@pytest.mark.parametrize("looks", [evaluate, epsilon])
def test_model_hooks_last_foreign_step_rejected(mode, looks, drops) -> None:
    made = make(mode=mode)
    made.backward(*examples(count=BATCH))
    shrink(next(made.model.parameters()))
    if drops:  # what tells of the backward pass
        made.model.zero_grad()
    refused(lambda: looks(made), "^model: its parameters were changed after a call", made)


def test_start_over_foreign_step_rejected(mode) -> None:
    made = make(mode=mode, loader=loader_of(*examples()))

    def step() -> None:
        made.backward(*next(iter(made.loader)))
        shrink(next(made.model.parameters()))

    step()
    refused(step, "^model: its parameters were changed after a call", made)


def test_optimizer_skipped_step_clears_gradients(mode) -> None:
    made = make(mode=mode)
    made.optimizer.signal_skip_step(True)
    made.step(*examples(count=BATCH))
    assert all(parameter.grad is None for parameter in made.model.parameters())


def test_check_module_unregistered_tensor_rejected(mode) -> None:
    model = nn.Sequential(nn.Linear(INPUTS, CLASSES))
    model.scale = torch.zeros(CLASSES, requires_grad=True)
    refused(lambda: make(mode=mode, model=model), "'scale' requires a gradient but is no param")


def shrink(parameter: nn.Parameter) -> None:
    with torch.no_grad():
        parameter.mul_(0.9)


def shrink_data(parameter: nn.Parameter) -> None:
    parameter.data.mul_(0.9)


def replace_data(parameter: nn.Parameter) -> None:
    parameter.data = 0.9 * parameter.data


@pytest.mark.parametrize("change", [shrink, shrink_data, replace_data])
def test_optimizer_changed_parameter_rejected(mode, change) -> None:
    made = make(mode=mode)
    made.backward(*examples(count=BATCH))
    change(next(made.model.parameters()))
    refused(made.optimizer.step, "^model: its parameters were changed after a call", made)


def test_optimizer_change_after_step_accepted(mode) -> None:
    """That is post-processing, such as bounds of weights or an average."""
    made = make(mode=mode)
    for _ in range(3):
        made.step(*examples(count=BATCH))
        with torch.no_grad():
            for parameter in made.model.parameters():
                parameter.clamp_(-1, 1)
    assert made.optimizer.ledger.step_count == 3
