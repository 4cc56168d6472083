"""Examples are dealt out among workers: one that two of them had could count twice in a batch."""

from itertools import chain

import pytest
import torch
from opacus.data_loader import DPDataLoader
from tests.opacus.helpers import QUIET, examples, make
from torch.utils.data import DataLoader, TensorDataset

from oso_dp.opacus.sampler import install_sampler

EXAMPLES = 23
pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_every_example_has_one_worker_in_every_epoch(workers: int, monkeypatch) -> None:
    """At a rate of 1 a worker's batch is all that it has."""
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *group: workers)
    dealt: list[list[list[int]]] = []
    for rank in range(workers):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda *group, rank=rank: rank)
        plain = DataLoader(TensorDataset(torch.zeros(EXAMPLES, 1)), batch_size=1)
        batches = install_sampler(DPDataLoader.from_data_loader(plain, distributed=True), 2)
        assert batches.sample_rate == pytest.approx(1 / EXAMPLES, rel=1e-12)
        batches.sample_rate = 1.0
        mine = []
        for epoch in (0, 1, 2, 3, 50):
            batches.set_epoch(epoch)
            first, second = batches
            assert sorted(first) == sorted(second)
            mine.append(sorted(first))
        dealt.append(mine)
    for of_workers in zip(*dealt, strict=True):
        assert sorted(chain(*of_workers)) == list(range(EXAMPLES))


@pytest.mark.parametrize("method", ["online", "fixed_quantile"])
def test_each_worker_takes_the_first_ones_threshold_and_factor(method: str, monkeypatch) -> None:
    """Where they differ by a rounding, the workers would clip at two thresholds."""
    sent = []

    def broadcast(value: torch.Tensor, source: int) -> None:
        sent.append(source)
        value.fill_(0.125 * len(sent))

    made = make(method, **({"count_noise": 0.3} if method == "fixed_quantile" else {}))
    made.optimizer.distributed = True
    monkeypatch.setattr(torch.distributed, "get_rank", lambda *group: 1)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda value: None)
    monkeypatch.setattr(torch.distributed, "broadcast", broadcast)
    made.step(*examples(count=4))
    assert sent == [0, 0]
    assert {made.optimizer.max_grad_norm, made.optimizer.learning_rate_factor} == {0.125, 0.25}


@pytest.mark.parametrize("distributed", [True, False])
def test_each_loop_is_announced_and_has_batches_of_its_own(distributed, monkeypatch) -> None:
    """What a loop that was left early had taken would count twice; batches that come again are no
    samples."""
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *group: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda *group: 1)
    plain = DataLoader(TensorDataset(torch.zeros(200, 1)), batch_size=25)
    batches = install_sampler(DPDataLoader.from_data_loader(plain, distributed=distributed), 8)
    begun: list[int] = []
    batches.begin = lambda: begun.append(1)
    assert not batches.begun
    loops = [[tuple(batch) for batch in batches] for _ in range(3)]
    if distributed:
        batches.set_epoch(1)
    loops.append([tuple(batch) for batch in batches])
    assert (len(begun), batches.begun) == (4, True)
    drawn = [batch for loop in loops for batch in loop]
    assert len(set(drawn)) == len(drawn) == 32
