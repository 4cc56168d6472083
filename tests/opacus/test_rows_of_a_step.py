"""One example has one row of a step: with two, it would move a sum by twice the sensitivity."""

import itertools
from collections.abc import Callable

import pytest
import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from tests.opacus.helpers import MODES, QUIET, Made, examples, loader_of, make
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, default_collate

from oso_dp.errors import OsoError

NOT_TRIED = "ignore:module. not checked whether"
pytestmark = [pytest.mark.filterwarnings(text) for text in (*QUIET, NOT_TRIED)]
Batch = tuple[Tensor, Tensor]
ROWS = r"optimizer.step: \d+ rows; the largest unused batch has \d+ examples; an example"


def twice(inputs: Tensor, targets: Tensor) -> Batch:
    """Two views of each example."""
    return torch.cat([inputs, -inputs]), torch.cat([targets, targets])


def two_views(rows: list[Batch]) -> Batch:
    return twice(*default_collate(rows))


def as_they_are(inputs: Tensor, targets: Tensor) -> Batch:
    return inputs, targets


def train(made: Made, loader: DataLoader, view: Callable[[Tensor, Tensor], Batch]) -> None:
    for inputs, targets in loader:
        made.step(*view(inputs, targets))


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("by", ["collate", "script"])
@pytest.mark.parametrize("mode", MODES)
def test_two_rows_of_one_example_are_refused(mode: str, by: str, pieces: bool) -> None:
    collate = two_views if by == "collate" else None
    data = TensorDataset(*examples())
    made = make(mode=mode, loader=DataLoader(data, batch_size=40, collate_fn=collate))
    view = twice if by == "script" else as_they_are

    def run() -> None:
        if not pieces:
            train(made, made.loader, view)
            return
        with BatchMemoryManager(
            data_loader=made.loader, max_physical_batch_size=7, optimizer=made.optimizer
        ) as loader:
            train(made, loader, view)

    with pytest.raises(OsoError, match=ROWS) as raised:
        run()
    assert "\n" not in str(raised.value)
    assert made.optimizer.ledger.step_count == 0
    assert made.engine.accountant.history == []


@pytest.mark.parametrize("mode", MODES)
def test_a_step_over_two_batches_of_the_loader_is_refused(mode: str) -> None:
    """An example that is in both would count twice."""
    made = make(mode=mode, loader=loader_of(*examples(), batch_size=40))

    def in_pairs() -> None:
        for place, batch in enumerate(made.loader):
            made.optimizer.signal_skip_step(place % 2 == 0)
            made.step(*batch)

    with pytest.raises(OsoError, match=ROWS):
        in_pairs()
    assert made.optimizer.ledger.step_count == 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("most", [None, 3])
def test_whoever_takes_the_batches_as_they_come_is_never_refused(workers: int, most) -> None:
    """Also from workers who fetch ahead, in pieces, in loops that are left or begin in between."""
    data = TensorDataset(*examples(count=400))
    made = make(loader=DataLoader(data, batch_size=4, num_workers=workers))

    def loop() -> None:
        if most is None:
            train(made, made.loader, as_they_are)
            return
        with BatchMemoryManager(
            data_loader=made.loader, max_physical_batch_size=most, optimizer=made.optimizer
        ) as loader:
            train(made, loader, as_they_are)

    loop()
    next(iter(made.loader))
    loop()
    assert made.optimizer.ledger.step_count == 200


def test_a_loop_may_begin_while_another_ones_batches_wait() -> None:
    made = make(loader=loader_of(*examples()))
    waiting = list(made.loader)
    made.loader.batch_sampler.sample_rate = 0.0
    assert all(len(inputs) == 0 for inputs, _ in made.loader)
    for batch in waiting:
        made.step(*batch)
    assert made.optimizer.ledger.step_count == 10


def test_rows_of_a_batch_that_was_left_do_not_count() -> None:
    """Nor those from before a state was loaded."""
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


@pytest.mark.parametrize("mode", MODES)
def test_largest_batch_with_one_more_row_is_refused(mode: str) -> None:
    """One example twice, of a batch as large as any."""
    made = make(mode=mode, loader=loader_of(*examples(count=12), batch_size=12))
    ((inputs, targets),) = made.loader
    with pytest.raises(OsoError, match="13 rows; the largest unused batch has 12"):
        made.step(inputs[[*range(12), 5]], targets[[*range(12), 5]])
    assert made.optimizer.ledger.step_count == 0
    made.model.zero_grad()
    made.step(inputs, targets)
    assert made.optimizer.ledger.step_count == 1


def test_two_small_batches_are_not_one_step() -> None:
    """Though a larger one was drawn before, and has had its step."""
    made = make(loader=loader_of(*examples(count=40), batch_size=10))
    made.loader.batch_sampler.sample_rate = 1.0
    made.step(*next(iter(made.loader)))
    made.loader.batch_sampler.sample_rate = 0.2
    first, second = itertools.islice(made.loader, 2)
    made.optimizer.signal_skip_step(True)
    made.step(*first)
    with pytest.raises(OsoError, match=ROWS):
        made.step(*second)


def test_of_a_worker_its_own_batches_are_counted(monkeypatch) -> None:
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
def test_step_takes_batch_as_large(sizes) -> None:
    """Not a smaller one that waits: else the largest would be there for a second step."""
    made = make()
    batches = made.loader.batch_sampler
    next(iter(made.loader))
    batches.sizes = list(sizes)
    made.step(*examples(count=sizes[-1]))
    with pytest.raises(OsoError, match=rf"{sizes[-1]} rows; .* {sizes[-2]} examples"):
        made.step(*examples(count=sizes[-1]))
    assert batches.sizes == list(sizes[:-1])
