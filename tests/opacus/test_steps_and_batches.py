"""A step has a Poisson batch of its own: epsilon is that of one step for each batch."""

import itertools
from collections.abc import Iterable, Iterator

import pytest
import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from tests.opacus.helpers import MODES, QUIET, Made, examples, make
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from oso_dp.errors import OsoError
from oso_dp.opacus.sampler import PoissonSampler

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("replayed", "drawn"), [(one_for_all, 1), (cycled, 10), (often, 1), (kept, 10)]
)
def test_more_steps_than_batches_are_refused(replayed, drawn, mode) -> None:
    made = make(mode=mode)
    with pytest.raises(OsoError, match=WITHOUT.format(drawn + 1, drawn)) as raised:
        train(made, copies(replayed(made.loader)))
    assert "\n" not in str(raised.value)
    assert made.optimizer.ledger.step_count == drawn
    assert made.engine.accountant.history == [(1.0, 0.1, drawn)]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("persistent", [True, False])
def test_batches_that_workers_fetch_are_not_drawn_yet(workers, persistent) -> None:
    """Ahead of the script are two for each worker."""
    loader = DataLoader(
        TensorDataset(*examples()), 12, num_workers=workers, persistent_workers=persistent
    )
    made = make(loader=loader)
    for epoch in (1, 2):
        with pytest.raises(OsoError, match=WITHOUT.format(epoch + 1, epoch)):
            train(made, copies(itertools.repeat(next(iter(made.loader)))))
        made.model.zero_grad()


def again(loader: DataLoader) -> Batches:
    """The first batch twice, while another one waits."""
    first, second = itertools.islice(loader, 2)
    return first, first, second


def views_again(loader: DataLoader) -> Batches:
    return ((inputs.view_as(inputs), targets) for inputs, targets in again(loader))


def pieces_again(loader: DataLoader) -> Batches:
    return ((inputs[1:], targets[1:]) for inputs, targets in again(loader))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("replayed", [again, views_again, pieces_again])
def test_an_input_of_an_earlier_step_is_refused(replayed, mode) -> None:
    made = make(mode=mode)
    made.loader.batch_sampler.sample_rate = 1.0  # both are as large
    with pytest.raises(OsoError, match=AGAIN):
        train(made, replayed(made.loader))
    assert made.optimizer.ledger.step_count == 1


@pytest.mark.parametrize("place", [0, 1, 2])
def test_any_earlier_piece_again_refused(place) -> None:
    """Each of a logical batch's pieces is of that step, while another batch waits."""
    made = make()
    made.loader.batch_sampler.sample_rate = 1.0
    (inputs, targets), _ = itertools.islice(made.loader, 2)
    pieces = [(inputs[rows].clone(), targets[rows]) for rows in torch.arange(120).split(40)]
    for piece in pieces:
        made.optimizer.signal_skip_step(piece is not pieces[-1])
        made.step(*piece)
    with pytest.raises(OsoError, match=AGAIN):
        made.step(*pieces[place])
    assert made.optimizer.ledger.step_count == 1


def loops(loader: DataLoader) -> Batches:
    for _ in range(3):
        yield from loader


def first_batches(loader: DataLoader) -> Batches:
    return (next(iter(loader)) for _ in range(15))


def some_are_skipped(loader: DataLoader) -> Batches:
    return (batch for place, batch in enumerate(loader) if place % 2)


def backwards(loader: DataLoader) -> Batches:
    return list(loader)[::-1]


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


@pytest.mark.parametrize("rate", [0.0, 0.02, 1.0])
@pytest.mark.parametrize(
    "drawn",
    [loops, first_batches, some_are_skipped, backwards, side_by_side, by_indices, in_one_buffer],
)
def test_a_step_for_each_batch_is_taken(drawn, rate) -> None:
    """Also of batches that are empty, and of those that all examples are in."""
    made = make()
    made.loader.batch_sampler.sample_rate = rate
    train(made, drawn(made.loader))
    assert made.optimizer.ledger.step_count >= 5


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_pieces_of_one_batch_take_one(rate) -> None:
    made = make()
    made.loader.batch_sampler.sample_rate = rate
    for _ in range(2):
        with BatchMemoryManager(
            data_loader=made.loader, max_physical_batch_size=7, optimizer=made.optimizer
        ) as loader:
            train(made, loader)
    assert made.optimizer.ledger.step_count == 20
    with pytest.raises(OsoError, match=WITHOUT.format(21, 20)):
        made.step(*examples(count=5))


def test_each_optimizer_has_the_batches_of_its_loader() -> None:
    first, second = make(), make()
    batches, others = list(first.loader), iter(second.loader)
    second.step(*next(others))
    with pytest.raises(OsoError, match=WITHOUT.format(2, 1)):
        second.step(*batches[0])
    train(first, batches)
    assert (first.optimizer.ledger.step_count, second.optimizer.ledger.step_count) == (10, 1)


def test_a_resumed_run_takes_its_own_batches() -> None:
    first, second = make(), make()
    train(first, first.loader)
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    train(second, second.loader)
    assert second.optimizer.ledger.step_count == 20
    with pytest.raises(OsoError, match=WITHOUT.format(11, 10)):
        second.step(*examples(count=5))


def test_a_step_takes_the_smallest_batch_possible() -> None:
    """A larger one stays, for a step that may need it."""
    batches = make().loader.batch_sampler
    assert isinstance(batches, PoissonSampler)
    for size in (5, 2, 9):
        batches.hand_out(size)
    batches.use(4)
    assert batches.sizes == [2, 9]
