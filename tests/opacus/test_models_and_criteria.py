"""Models, data sets and losses that mix examples, or change what is released, are refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.opacus.helpers import (
    MODES,
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
from tests.opacus.layers import CASES
from torch import Tensor, nn
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
)
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from oso_dp.opacus.gradient_origins import GradientOrigins, depend_on_parameters

pytestmark = [pytest.mark.filterwarnings(text) for text in (*QUIET, NOT_TRIED)]


MIXES = "an example's gradient in a batch differs from"
LEANS = "an example's loss depends on other examples"


class Mixing(nn.Module):
    """Subtracts the batch's mean."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(inputs - inputs.mean(dim=0))


class Arrays(Dataset):
    """Pairs of a numpy array and a number."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full(6, index, dtype=np.float32), index % 2


class Named(Dataset):
    """Dictionaries, which do not say how the model is called."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"inputs": torch.full((6,), float(index)), "targets": torch.tensor(index % 2)}


@pytest.mark.parametrize(
    "untried",
    [
        {"loader": DataLoader(Named(), batch_size=4)},
        {"loader": DataLoader(Arrays(), batch_size=4, collate_fn=lambda pairs: pairs)},
        {"batch_first": False},
    ],
)
def test_model_that_nobody_could_try_is_taken_with_a_warning(untried) -> None:
    with pytest.warns(UserWarning, match="not checked whether it mixes the examples"):
        make(model=Mixing(), **untried)


class Packed(nn.Module):
    """Takes sequences of several lengths, laid out one place after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 2)

    def forward(self, packed: PackedSequence) -> Tensor:
        padded, _ = pad_packed_sequence(packed, batch_first=True)
        return self.linear(padded.mean(dim=1))


@pytest.mark.parametrize("lengths", [[3, 2, 1], [9, 1], [1, 1, 1, 1], [2, 2, 2, 1, 1, 1]])
def test_packed_sequences_are_as_many_as_they_are_whatever_their_lengths(lengths) -> None:
    """As many as that, rows i must be: the number of places is another."""
    made = make(model=Packed(), loader=DataLoader(Named(), batch_size=4))
    sequences = [torch.randn(length, 6) for length in lengths]
    outputs = made.model(pack_sequence(sequences))
    assert made.model.example_count == len(lengths)
    made.criterion(outputs, torch.zeros(len(lengths)).long()).backward()
    made.optimizer.step()
    assert made.optimizer.ledger.step_count == 1


class Counting(nn.Module):
    """Has several buffers, of which one keeps a sum of its examples."""

    def __init__(self, keeps: int) -> None:
        super().__init__()
        self.linear, self.keeps = nn.Linear(6, 3), f"number {keeps}"
        for number in range(3):
            self.register_buffer(f"number {number}", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        getattr(self, self.keeps).add_(inputs.detach().double().sum())
        return self.linear(inputs)


@pytest.mark.parametrize("keeps", range(3))
def test_whichever_buffer_keeps_something_is_named(keeps: int) -> None:
    refused(lambda: make(model=Counting(keeps)), f"changes buffer 'number {keeps}'")


class OwnNorm(nn.BatchNorm1d):
    """Of a kind that nobody has a validator for."""


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("tracks", [True, False])
@pytest.mark.parametrize("kind", [OwnNorm, nn.SyncBatchNorm])
def test_what_is_made_of_batch_norm_is_refused_by_name_also_where_nothing_is_tried(
    kind, tracks, affine
) -> None:
    norm = kind(2, affine=affine, track_running_stats=tracks)
    loader = DataLoader(Named(), batch_size=4)
    refused(
        lambda: make(model=nn.Sequential(nn.Linear(6, 2), norm), loader=loader),
        rf"layer '1' \({kind.__name__}\): mixes the examples",
    )


class Leaning(nn.Module):
    """Takes a small share of its neighbour along, beside as many units as are wanted."""

    def __init__(self, share: float, units: int) -> None:
        super().__init__()
        self.share = share
        self.first, self.second = nn.Linear(6, units), nn.Linear(units, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(self.first(inputs + self.share * inputs.roll(1, 0)).tanh())


@pytest.mark.parametrize(("share", "units"), [(1.0, 30_000), (1e-3, 5), (1e-4, 5)])
def test_model_that_mixes_a_little_or_is_large_is_refused(share, units) -> None:
    refused(lambda: make(model=Leaning(share, units)), MIXES)


class Straight:
    """Each loss is that of its example alone; its gradient is that of all of them."""

    reduction = "mean"

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        mean = losses.mean()
        losses = losses + mean - mean.detach()
        return losses if self.reduction == "none" else losses.mean()


def test_criterion_that_mixes_in_its_backward_pass_alone_is_refused() -> None:
    made = make(mode="ghost", criterion=Straight())
    refused(lambda: made.step(*examples(count=4)), LEANS)
    assert made.optimizer.ledger.step_count == 0


class Turned(nn.Module):
    """Its second layer sees the next example in each row; its last layer starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        nn.init.zeros_(self.last.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs).tanh()
        return self.last(self.second(hidden.roll(1, 0)).tanh().roll(-1, 0))


@pytest.mark.parametrize("mode", MODES)
def test_layers_of_zeros_hide_nothing(mode: str) -> None:
    """No gradient reaches what stands before them, in the first step: a head, LoRA's B."""
    refused(lambda: make(mode=mode, model=Turned()), MIXES)


class Half(nn.Module):
    """Calls a layer twice; the second call counts in no loss."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.end = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.twice(inputs).tanh()
        self.aside = self.twice(hidden)
        return self.end(hidden)


@pytest.mark.parametrize("mode", MODES)
def test_call_without_its_backward_pass_is_told(mode: str) -> None:
    """Else the layer's gradient would be missing, and it would move by noise alone."""
    data = TensorDataset(*examples())
    loader = DataLoader(data, batch_size=12, collate_fn=lambda rows: default_collate(rows))
    refused(
        lambda: make(mode=mode, model=Half(), loader=loader).step(*examples(count=4)),
        "training mode has no backward pass",
    )


WORDS, CLASSES = torch.randint(0, 9, (40, 5)), torch.randint(0, 3, (40,))


Write = Callable[[Tensor, Tensor], None]


def limited_rows(words: Tensor, table: Tensor) -> None:
    nn.functional.embedding(words, table, max_norm=0.5)


def limited_bags(words: Tensor, table: Tensor) -> None:
    nn.functional.embedding_bag(words, table, max_norm=0.5)


def normalised_rows(words: Tensor, table: Tensor) -> None:
    with torch.no_grad():
        table[words] = nn.functional.normalize(table[words], dim=-1)


def added(words: Tensor, table: Tensor) -> None:
    with torch.no_grad():
        table.add_(words.double().mean())


def through_data(words: Tensor, table: Tensor) -> None:
    table.data[words] *= 0.9


class Words(nn.Module):
    """A table, and a forward pass that writes to it."""

    def __init__(self, write: Write, trained: bool) -> None:
        super().__init__()
        self.write = write
        self.table = nn.Parameter(torch.randn(20, 4), requires_grad=trained)
        self.head = nn.Linear(4, 3)

    def forward(self, words: Tensor) -> Tensor:
        self.write(words, self.table)
        return self.head(nn.functional.embedding(words, self.table).mean(1))


def nested(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Identity(), nn.Sequential(nn.Sequential(layer)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize(
    "write", [limited_rows, limited_bags, normalised_rows, added, through_data]
)
def test_forward_that_changes_parameters_is_refused(write, depth, trained, mode) -> None:
    model = nested(Words(write, trained)) if depth else Words(write, trained)
    table = next(p for p in model.parameters() if len(p) == 20).detach().clone()
    refused(
        lambda: make(mode=mode, model=model, loader=loader_of(WORDS, CLASSES)),
        r"module: .* changes parameter '[\w.]*table'",
    )
    assert torch.equal(table, next(p for p in model.parameters() if len(p) == 20))


def untried() -> DataLoader:
    data = TensorDataset(WORDS, CLASSES)
    return DataLoader(data, batch_size=8, collate_fn=lambda rows: default_collate(rows))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("write", [limited_rows, limited_bags, normalised_rows, added])
def test_untried_forward_that_changes_parameters_is_refused(write, trained, mode) -> None:
    """In its first call, by how often each parameter was written to."""
    made = make(mode=mode, model=nested(Words(write, trained)), loader=untried())
    refused(lambda: made.model(WORDS[:4]), r"module: .* changes parameter '1\.0\.0\.table'")
    assert made.optimizer.ledger.step_count == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize(
    "inside",
    [nested, lambda layer: nn.ModuleList([nested(layer)]), lambda layer: nested(nested(layer))],
)
def test_nested_max_norm_is_refused(inside, kind, mode) -> None:
    """By its layer's name, also where nothing is tried."""
    model = nn.Sequential(inside(kind(20, 4, max_norm=1.0)), nn.Linear(4, 3))
    refused(
        lambda: make(mode=mode, model=model, loader=untried()),
        r"module: layer '0\.[\d.]+' \(.*\): max_norm changes",
    )


INPUTS, TARGETS = examples()


class Fetched(Dataset):
    """Of 120 examples, as `fetch` hands them out."""

    def __init__(self, fetch: Callable[[int], Any], count: int = 120) -> None:
        self.fetch, self.count = fetch, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.fetch(index)


def one_tensor(values: Tensor = INPUTS) -> Callable[[int], Any]:
    buffer = torch.empty(6)

    def fetch(index: int) -> Any:
        buffer.copy_(values[index])
        return buffer, TARGETS[index]

    return fetch


def views_of_one_tensor() -> Callable[[int], Any]:
    buffer = torch.empty(2, 6)

    def fetch(index: int) -> Any:
        buffer[1] = INPUTS[index]
        return {"inputs": buffer[1], "targets": TARGETS[index]}

    return fetch


def two_in_turn() -> Callable[[int], Any]:
    buffers = torch.empty(2, 6)

    def fetch(index: int) -> Any:
        buffers[index % 2] = INPUTS[index]
        return buffers[index % 2], TARGETS[index]

    return fetch


def one_array(tensor: bool = False) -> Callable[[int], Any]:
    buffer = np.empty(6, dtype=np.float32)

    def fetch(index: int) -> Any:
        buffer[:] = INPUTS[index]
        return (torch.from_numpy(buffer) if tensor else buffer), int(TARGETS[index])

    return fetch


def targets_of_one_array() -> Callable[[int], Any]:
    buffer = np.empty((), dtype=np.int64)

    def fetch(index: int) -> Any:
        buffer[()] = index % 3
        return [INPUTS[index], [buffer]]

    return fetch


BUFFERS: dict[str, Callable[[], Callable[[int], Any]]] = {
    "one tensor": one_tensor,
    "one tensor, examples of one value": lambda: one_tensor(torch.ones(120, 6)),
    "one tensor, no numbers": lambda: one_tensor(torch.full((120, 6), torch.nan)),
    "views of one tensor": views_of_one_tensor,
    "two in turn": two_in_turn,
    "one array": one_array,
    "a tensor of one array": lambda: one_array(tensor=True),
    "targets": targets_of_one_array,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BUFFERS)
def test_data_set_that_fills_one_buffer_is_refused(name: str, mode: str) -> None:
    loader = DataLoader(Fetched(BUFFERS[name]()), batch_size=12)
    refused(
        lambda: make(mode=mode, loader=loader),
        "data_loader: the data set returns each example in the same tensor",
    )


def partly_read(index: int) -> Any:
    if index > 0:  # Opacus reads the first one
        raise ValueError(f"example {index} says {TARGETS[index]}")
    return INPUTS[index], TARGETS[index]


def filled_once() -> Callable[[int], Any]:
    """Rows that are read when they are first asked for."""
    cache = torch.full((120, 6), torch.nan)

    def fetch(index: int) -> Any:
        cache[index] = INPUTS[index]
        return cache[index], TARGETS[index]

    return fetch


def moved_in_place() -> Callable[[int], Any]:
    own = INPUTS.clone()
    return lambda index: (own[index].mul_(1.01), TARGETS[index])


TABLE, MASK = torch.eye(3), torch.ones(6)


FROZEN = INPUTS.numpy().copy()


FROZEN.setflags(write=False)


TAKEN: dict[str, Callable[[], Dataset]] = {
    "rows of tensors": lambda: loader_of(INPUTS, TARGETS).dataset,
    "rows of no numbers": lambda: loader_of(torch.full((120, 6), torch.nan), TARGETS).dataset,
    "rows of arrays": lambda: Fetched(lambda index: (FROZEN[index], int(TARGETS[index]))),
    "arrays backwards": lambda: Fetched(lambda index: (FROZEN[index][::-1].copy(), 0)),
    "texts": lambda: Fetched(lambda index: (INPUTS[index], "a", np.array(["b"], dtype=object))),
    "windows": lambda: Fetched(lambda index: (INPUTS.flatten()[index : index + 6], TARGETS[index])),
    "one table of classes": lambda: Fetched(lambda index: (INPUTS[index], TABLE[index // 60])),
    "one mask": lambda: Fetched(lambda index: {"inputs": INPUTS[index], "mask": MASK}),
    "one object twice": lambda: (
        [(INPUTS[0], TARGETS[0])] * 2 + [*zip(INPUTS, TARGETS, strict=True)]
    ),
    "filled once": lambda: Fetched(filled_once()),
    "moved in place": lambda: Fetched(moved_in_place()),
    "one example": lambda: Fetched(one_tensor(), count=1),
    "examples that cannot be read": lambda: Fetched(partly_read),
    "drawn": lambda: Fetched(lambda index: (torch.randn(6), TARGETS[index])),
}


@pytest.mark.parametrize("name", TAKEN)
def test_any_other_data_set_is_taken(name: str) -> None:
    """Rows may share memory, and an exception of a data set's own tells what it holds."""
    data = TAKEN[name]()
    torch.manual_seed(3)
    make(loader=DataLoader(data, batch_size=min(12, len(data))), model=torch.nn.Linear(6, 3))


def test_looking_at_examples_leaves_the_scripts_random_numbers() -> None:
    """But for the first example, which Opacus reads for its shapes, and again for its types."""
    data, model = TAKEN["drawn"](), torch.nn.Linear(6, 3)
    torch.manual_seed(3)
    make(loader=DataLoader(data, batch_size=12), model=model)
    drawn = torch.rand(3)
    torch.manual_seed(3)
    _ = data[0], data[0]
    assert torch.equal(drawn, torch.rand(3))


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
def test_mean_that_is_weighted_by_class_is_refused_whichever_loss_it_is(
    mode, kind, classes
) -> None:
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


def test_criterion_that_was_refused_is_refused_again() -> None:
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
def test_loss_may_lean_on_no_side(before, detached, first) -> None:
    """Whichever example stands first has nobody before it; nor has one that is alone, so that the
    first batch of two or more is tried."""
    made = make(mode="ghost", criterion=ByThoseBeside(before, detached))
    if first < 2:
        made.step(*examples(count=first))
    refused(lambda: made.step(*examples(count=4)), LEANS)
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


def test_criterion_is_tried_where_nobody_knows_the_batches_size_too() -> None:
    made = make(mode="ghost", model=Opening(), criterion=ByTheOthers())
    inputs, targets = examples(count=4)
    refused(lambda: made.criterion(made.model(Held(inputs)), targets), LEANS)


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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backward", [behind, before, on_its_own])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_penalty_is_refused(penalty, backward, mode) -> None:
    model = network()
    made = make(mode=mode, model=model)
    backward(made, model, penalty, examples(count=5))
    refused(lambda: made.optimizer.step(), FOREIGN.format(f"({PENALTIES[penalty]})"))
    assert made.optimizer.ledger.step_count == 0


class Penalised(nn.CrossEntropyLoss):
    """Adds a share of the penalty to each example's loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().forward(outputs, targets) + squares(self.model)


@pytest.mark.parametrize("mode", MODES)
def test_penalty_in_the_criterion_is_refused(mode) -> None:
    model = network()
    made = make(mode=mode, model=model, criterion=Penalised(model))
    refused(lambda: made.step(*examples(count=5)), r"loss: parameter .* weight_decay")


@pytest.mark.parametrize("mode", MODES)
def test_penalty_that_begins_later_is_refused(mode) -> None:
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


class Nested(nn.CrossEntropyLoss):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(3, 3)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().forward(self.scale(outputs), targets)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "name"), [(Angles, "scale"), (Nested, "scale.weight")])
def test_criterion_that_learns_is_refused(kind, name, mode) -> None:
    refused(
        lambda: make(mode=mode, criterion=kind()),
        f"criterion: parameter '{name}' requires a gradient",
    )
    make(mode=mode, criterion=kind().requires_grad_(False)).step(*examples(count=5))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("body", [nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Tanh())])
def test_inputs_that_a_part_outside_computed_are_refused(body, wrapped, mode) -> None:
    """It learns from gradients without noise, in whichever optimizer."""
    made = make(mode=mode, wrap_model=wrapped)
    inputs, targets = examples(count=5)
    made.backward(body(inputs), targets)
    refused(lambda: made.optimizer.step(), "model: inputs are computed from a parameter")
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
