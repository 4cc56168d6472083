"""A step has a Poisson batch of its own, and one row of each of its examples."""

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

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
    in_pieces,
    loader_of,
    make,
    parameters_of,
    refused,
)
from tests.opacus.layer_cases import Scaled
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

from oso_dp.opacus.sampler import PoissonSampler

pytestmark = [pytest.mark.filterwarnings(text) for text in (*QUIET, NOT_TRIED)]

Batches = Iterable[tuple[Tensor, Tensor]]


WITHOUT = "optimizer.step: step {}, but the loader has yielded {} batches; take"


AGAIN = "optimizer.step: the model's input is that of an earlier step; take a new batch"


def copies(batches: Batches) -> Batches:
    """New tensors of the same content, as those that `.to(device)` makes on a GPU."""
    return ((inputs.clone(), targets.clone()) for inputs, targets in batches)


def one_for_all(loader: DataLoader) -> Batches:
    return [next(iter(loader))] * 30


def cycled(loader: DataLoader) -> Batches:
    return itertools.islice(itertools.cycle(loader), 30)


def often(loader: DataLoader) -> Batches:
    return (batch for batch in loader for _ in range(3))


def kept(loader: DataLoader) -> Batches:
    """Two epochs over the batches of one."""
    return list(loader) * 2


def train(made: Made, batches: Batches) -> None:
    for inputs, targets in batches:
        made.step(inputs, targets)


@pytest.mark.parametrize(
    ("replayed", "drawn"), [(one_for_all, 1), (cycled, 10), (often, 1), (kept, 10)]
)
def test_optimizer_steps_beyond_batches_rejected(replayed, drawn, mode) -> None:
    made = make(mode=mode)
    refused(
        lambda: train(made, copies(replayed(made.loader))),
        WITHOUT.format(drawn + 1, drawn),
        made,
        drawn,
    )
    assert made.engine.accountant.history == [(1.0, 0.1, drawn)]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("persistent", [True, False])
def test_counted_loader_prefetched_batches_uncounted(workers, persistent) -> None:
    """Ahead of the script are two for each worker."""
    loader = DataLoader(
        TensorDataset(*examples()), 12, num_workers=workers, persistent_workers=persistent
    )
    made = make(loader=loader)
    for epoch in (1, 2):
        refused(
            lambda: train(made, copies(itertools.repeat(next(iter(made.loader))))),
            WITHOUT.format(epoch + 1, epoch),
        )
        made.model.zero_grad()


def set_rate(made: Made, rate: float) -> None:
    """For batches of a size that the test wants."""
    made.loader.batch_sampler.sample_rate = made.loader.batch_sampler.accounted_rate = rate


def again(loader: DataLoader) -> Batches:
    """The first batch twice, while another one waits."""
    first, second = itertools.islice(loader, 2)
    return first, first, second


def views_again(loader: DataLoader) -> Batches:
    return ((inputs.view_as(inputs), targets) for inputs, targets in again(loader))


def pieces_again(loader: DataLoader) -> Batches:
    return ((inputs[1:], targets[1:]) for inputs, targets in again(loader))


@pytest.mark.filterwarnings("ignore:optimizer.step. 119 rows")
@pytest.mark.parametrize("replayed", [again, views_again, pieces_again])
def test_optimizer_reused_input_rejected(replayed, mode) -> None:
    made = make(mode=mode)
    made.loader.batch_sampler.sample_rate = made.loader.batch_sampler.accounted_rate = (
        1.0  # both are as large
    )
    refused(lambda: train(made, replayed(made.loader)), AGAIN, made, 1)


@pytest.mark.parametrize("skipped", [0, 1, 2, 4])
def test_optimizer_skipped_physical_batch_rejected(skipped: int) -> None:
    """Later signals would be one batch late, and a step would be of parts of two batches."""
    made = make()
    with in_pieces(made, 3) as loader:

        def run() -> None:
            for number, batch in enumerate(loader):
                if number != skipped:
                    made.step(*batch)

        # Of random batches the next one may have more rows than any that is left.
        refused(run, "no step was taken for an earlier physical batch|a step one batch")


@pytest.mark.parametrize("workers", [0, 1])
def test_optimizer_loader_ahead_accepted(workers: int) -> None:
    data = TensorDataset(*examples())
    made = make(loader=DataLoader(data, BATCH, num_workers=workers))
    with in_pieces(made, 3) as loader:
        for batch in loader:
            made.step(*batch)
    assert made.optimizer.ledger.step_count == 10


def test_optimizer_fewer_rows_warns() -> None:
    made = make(model=nn.Linear(INPUTS, CLASSES))
    inputs, targets = next(iter(made.loader))
    with pytest.warns(
        UserWarning, match=f"optimizer.step: {len(inputs) - 1} rows; no unused batch"
    ):
        made.step(inputs[1:].clone(), targets[1:])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_optimizer_reused_physical_batch_rejected(place) -> None:
    made = make()
    set_rate(made, 1.0)
    (inputs, targets), _ = itertools.islice(made.loader, 2)
    pieces = [(inputs[rows].clone(), targets[rows]) for rows in torch.arange(120).split(40)]
    for piece in pieces:
        made.optimizer.signal_skip_step(piece is not pieces[-1])
        made.step(*piece)
    refused(lambda: made.step(*pieces[place]), AGAIN, made, 1)


def loops(loader: DataLoader) -> Batches:
    for _ in range(3):
        yield from loader


def first_batches(loader: DataLoader) -> Batches:
    return (next(iter(loader)) for _ in range(15))


def some_are_skipped(loader: DataLoader) -> Batches:
    return (batch for place, batch in enumerate(loader) if place % 2)


def side_by_side(loader: DataLoader) -> Batches:
    return (batch for pair in zip(loader, loader, strict=True) for batch in pair)


def by_indices(loader: DataLoader) -> Batches:
    """Without the loader's own fetching, as scripts do whose data lie on the device."""
    inputs, targets = loader.dataset.tensors
    return ((inputs[batch], targets[batch]) for batch in loader.batch_sampler)


def in_one_buffer(loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
    """Every batch is written to the same memory."""
    memory = torch.empty(120, 6)
    for inputs, targets in loader:
        part = memory[: len(inputs)]
        part.copy_(inputs)
        yield part, targets


@pytest.mark.parametrize("rate", [0.0, 1.0])
@pytest.mark.parametrize(
    "drawn",
    [loops, first_batches, some_are_skipped, side_by_side, by_indices, in_one_buffer],
)
def test_optimizer_step_per_batch_accepted(drawn, rate) -> None:
    made = make()
    set_rate(made, rate)
    train(made, drawn(made.loader))
    assert made.optimizer.ledger.step_count >= 5


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_optimizer_physical_batches_counted_once(rate) -> None:
    made = make()
    set_rate(made, rate)
    for _ in range(2):
        with in_pieces(made, 7) as loader:
            train(made, loader)
    assert made.optimizer.ledger.step_count == 20
    refused(lambda: made.step(*examples(count=5)), WITHOUT.format(21, 20))


def test_optimizer_batches_counted_per_loader() -> None:
    first, second = make(), make()
    batches, others = list(first.loader), iter(second.loader)
    second.step(*next(others))
    refused(lambda: second.step(*batches[0]), WITHOUT.format(2, 1))
    train(first, batches)
    assert (first.optimizer.ledger.step_count, second.optimizer.ledger.step_count) == (10, 1)


@pytest.mark.parametrize("owner_first", [True, False])
def test_optimizer_shared_batch_rejected(owner_first) -> None:
    """Their epsilons are those of independent batches: the true one would be much larger."""
    owner, guest = make(), make()
    first, second = (owner, guest) if owner_first else (guest, owner)
    batch = next(iter(owner.loader))
    first.step(*batch)
    message = "the model's input is that of an earlier step of another private optimizer"
    refused(lambda: second.step(*batch), message, second)


def test_sampler_changed_rate_rejected() -> None:
    made = make()
    made.loader.batch_sampler.sample_rate = 1.0
    refused(lambda: next(iter(made.loader)), "data_loader: sampling rate 1; must stay 0.1, for")


@pytest.mark.parametrize("mode", ["hooks", "functorch"])  # ghost mode's loss has no retain_graph
def test_model_hooks_repeated_backward_rejected(mode) -> None:
    made = make(mode=mode)
    inputs, targets = examples(count=5)
    loss = nn.functional.cross_entropy(made.model(inputs), targets)
    loss.backward(retain_graph=True)
    refused(loss.backward, "^loss.backward: called twice in one step")


def test_optimizer_resumed_run_counts_afresh() -> None:
    first, second = make(), make()
    train(first, first.loader)
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    train(second, second.loader)
    assert second.optimizer.ledger.step_count == 20
    refused(lambda: second.step(*examples(count=5)), WITHOUT.format(11, 10))


def test_sampler_use_takes_smallest_batch() -> None:
    batches = make().loader.batch_sampler
    assert isinstance(batches, PoissonSampler)
    for size in (5, 2, 9):
        batches.hand_out(size)
    batches.use(4)
    assert batches.sizes == [2, 9]


Batch = tuple[Tensor, Tensor]


ROWS = r"optimizer.step: \d+ rows; the largest unused batch has \d+ examples; an example"


def doubled(inputs: Tensor, targets: Tensor) -> Batch:
    """Two views of each example."""
    return torch.cat([inputs, -inputs]), torch.cat([targets, targets])


def two_views(rows: list[Batch]) -> Batch:
    return doubled(*default_collate(rows))


def as_they_are(inputs: Tensor, targets: Tensor) -> Batch:
    return inputs, targets


def train_on(made: Made, loader: DataLoader, view: Callable[[Tensor, Tensor], Batch]) -> None:
    for inputs, targets in loader:
        made.step(*view(inputs, targets))


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("by", ["collate", "script"])
def test_optimizer_doubled_rows_rejected(mode: str, by: str, pieces: bool) -> None:
    collate = two_views if by == "collate" else None
    data = TensorDataset(*examples())
    made = make(mode=mode, loader=DataLoader(data, batch_size=40, collate_fn=collate))
    view = doubled if by == "script" else as_they_are

    def run() -> None:
        if not pieces:
            train_on(made, made.loader, view)
            return
        with in_pieces(made, 7) as loader:
            train_on(made, loader, view)

    refused(run, ROWS, made)
    assert made.engine.accountant.history == []


def test_optimizer_merged_batches_rejected(mode: str) -> None:
    """An example that is in both would count doubled."""
    made = make(mode=mode, loader=loader_of(*examples(), batch_size=40))

    def in_pairs() -> None:
        for place, batch in enumerate(made.loader):
            made.optimizer.signal_skip_step(place % 2 == 0)
            made.step(*batch)

    refused(in_pairs, ROWS, made)


@pytest.mark.parametrize(("workers", "most"), [(0, None), (0, 3), (2, 3)])
def test_optimizer_unchanged_batches_accepted(workers: int, most) -> None:
    data = TensorDataset(*examples(count=400))
    made = make(loader=DataLoader(data, batch_size=4, num_workers=workers))

    def loop() -> None:
        if most is None:
            train_on(made, made.loader, as_they_are)
            return
        with in_pieces(made, most) as loader:
            train_on(made, loader, as_they_are)

    loop()
    next(iter(made.loader))
    loop()
    assert made.optimizer.ledger.step_count == 200


def test_optimizer_abandoned_rows_uncounted() -> None:
    made = make(loader=loader_of(*examples(count=12), batch_size=12))  # all are in each batch
    ((inputs, targets),) = made.loader
    for leave in (
        lambda: next(iter(made.loader)),
        lambda: made.optimizer.load_state_dict(made.optimizer.state_dict()),
    ):
        made.optimizer.signal_skip_step(True)
        made.step(inputs[:5], targets[:5])
        leave()
        made.step(inputs.clone(), targets)
    assert made.optimizer.ledger.step_count == 2


def test_sampler_worker_batches_counted(monkeypatch) -> None:
    from opacus.data_loader import DPDataLoader

    from oso_dp.opacus.sampler import install_sampler

    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *group: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda *group: 1)
    plain = loader_of(torch.zeros(200, 1), batch_size=50)
    batches = install_sampler(DPDataLoader.from_data_loader(plain, distributed=True), 4)
    assert batches.sizes == []
    sizes = [len(batch) for _ in range(2) for batch in batches]
    assert batches.sizes == sorted(sizes)


@pytest.mark.parametrize("sizes", [(2, 9), (0, 1, 7), (4, 8, 8, 9)])
def test_optimizer_step_uses_matching_batch(sizes) -> None:
    """Not a smaller one that waits: else the largest would be there for a second step."""
    made = make()
    batches = made.loader.batch_sampler
    next(iter(made.loader))
    batches.sizes = list(sizes)
    made.step(*examples(count=sizes[-1]))
    refused(
        lambda: made.step(*examples(count=sizes[-1])), rf"{sizes[-1]} rows; .* {sizes[-2]} examples"
    )
    assert batches.sizes == list(sizes[:-1])


OTHER = "optimizer.step: the loader that make_private returned has not been iterated over"


def test_optimizer_foreign_loader_warns(mode: str) -> None:
    made, own = make(mode=mode), loader_of(*examples())
    with pytest.warns(UserWarning, match=OTHER) as told:
        made.step(*next(iter(own)))
    (said,) = (one for one in told if str(one.message).startswith(OTHER))
    assert said.filename.endswith("helpers.py")  # where the script steps


@pytest.mark.parametrize("left", ["forward", "backward"])
def test_start_over_unfinished_step_dropped(mode, left) -> None:
    made = make(mode=mode, loader=loader_of(*examples(count=12), batch_size=12))
    inputs, targets = next(iter(made.loader))
    loss = made.criterion(made.model(inputs), targets)
    if left == "backward":
        loss.backward()
    for inputs, targets in made.loader:
        made.backward(inputs, targets)
        made.optimizer.step()
    assert made.optimizer.ledger.step_count == 1


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


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("inner", [nn.Linear(6, 3), Scaled()])
def test_model_hooks_attribute_wrapper_matches_plain(inner, twice, mode) -> None:
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


@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_model_hooks_disabled_call_uncounted(mode) -> None:
    made = make(mode=mode)
    inputs, targets = examples()
    made.model.disable_hooks()
    made.model(inputs)
    made.model.enable_hooks()
    outputs = inputs
    for part in made.model._module:
        outputs = part(outputs)
    made.criterion(outputs, targets).backward()
    refused(lambda: made.optimizer.step(), "call the model itself")


def test_optimizer_extra_row_rejected(mode: str) -> None:
    """One example doubled, of a batch as large as any."""
    made = make(mode=mode, loader=loader_of(*examples(count=12), batch_size=12))
    ((inputs, targets),) = made.loader
    refused(
        lambda: made.step(inputs[[*range(12), 5]], targets[[*range(12), 5]]),
        "13 rows; the largest unused batch has 12",
        made,
    )
    made.model.zero_grad()
    made.step(inputs, targets)
    assert made.optimizer.ledger.step_count == 1
