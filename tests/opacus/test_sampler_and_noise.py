"""Batches and noise: their rates and sizes, among workers, late in a run and in secure mode."""

import math
import warnings
from itertools import chain

import pytest
import torch
from opacus.data_loader import DPDataLoader
from tests.opacus.helpers import (
    ENGINES,
    QUIET,
    OnlinePrivacyEngine,
    examples,
    loader_of,
    make,
    network,
    study_method,
)
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from oso_dp.opacus import mechanism
from oso_dp.opacus.mechanism import Noise, sanitize
from oso_dp.opacus.optimizer import AdaptiveDPOptimizer
from oso_dp.opacus.sampler import install_sampler
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.queries import ClippedGradient
from oso_dp.privacy.sampling import PoissonSampling

pytestmark = [pytest.mark.filterwarnings(line) for line in QUIET]


@pytest.mark.parametrize(("examples", "batch"), [(49, 1), (100, 12)])
def test_make_private_size_and_rate_exact(examples: int, batch: int) -> None:
    """1 / 49 is a little less than that: 49 times it is below 1."""
    model = nn.Linear(3, 2)
    loader = DataLoader(
        TensorDataset(torch.randn(examples, 3), torch.zeros(examples, dtype=torch.long)), batch
    )
    engine = OnlinePrivacyEngine()
    _, optimizer, private = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    assert optimizer.batch_size == examples // len(loader) >= 1
    assert optimizer.expected_batch_size == optimizer.batch_size
    assert len(private) == len(loader)
    # Loader, ledger and accountant agree: and examples are drawn at that rate, not a little above.
    rate = 1 / len(loader)
    assert optimizer.ledger.sampling.rate == rate
    assert private.batch_sampler.sample_rate == pytest.approx(rate, rel=1e-12)
    share = private.batch_sampler._sample_mask(4_000_000).double().mean().item()
    assert share == pytest.approx(rate, abs=5 * (rate / 4_000_000) ** 0.5)


@pytest.mark.parametrize(("workers", "whole"), [(7, 61), (11, 15), (2, 12)])
def test_optimizer_workers_batch_size_rounded(workers: int, whole: int, monkeypatch) -> None:
    """Seven times 61 / 7 is a little less than 61."""
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *group: workers)
    made = AdaptiveDPOptimizer(
        torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=0.1),
        method=study_method("online"),
        quantile=math.nan,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=whole / workers,
        sample_rate=0.1,
        distributed=True,
    )
    assert made.batch_size == whole


@pytest.mark.parametrize("secure", [True, False])
def test_noise_parameters_drawn_independently(secure: bool) -> None:
    like = [torch.empty(400) for _ in range(300)]
    parts = Noise(torch.Generator().manual_seed(1), secure)("a sum", 2.5, like).view(300, 400)
    assert (parts.std(dim=1) / 2.5 - 1).abs().max() < 0.2  # 5.6 standard deviations
    assert parts.unique().numel() > 0.99 * parts.numel()


def test_sanitize_late_steps_noise_fresh() -> None:
    noise, ledger = Noise(torch.Generator().manual_seed(1), False), Ledger(PoissonSampling(0.1))
    query = ClippedGradient(1.0, torch.full((1,), 3.0))

    def step() -> torch.Tensor:
        sums, shapes = [torch.zeros(1, 4)], [(4,)]
        told = sanitize([query], sums, 1.0, 2, shapes, noise, ledger, lambda: None, False)
        return told[ClippedGradient] * 2  # the expected size

    drawn = torch.cat([step() for _ in range(10_000)])
    stds = drawn.view(-1, 500 * 4).std(dim=1)  # of each 500 steps
    assert (stds / 3.0 - 1).abs().max() < 0.1
    assert drawn.unique().numel() > 0.99 * drawn.numel()
    assert ledger.step_count == 10_000


@pytest.mark.parametrize("count", [5, 100_000])
def test_sanitize_float32_sum_noised_in_float64(count: int) -> None:
    """With 24 it is at most 5.8 standard deviations: delta does not cover what lies beyond."""
    total = torch.randn(1, count)
    query = ClippedGradient(1.0, torch.full((1,), 3.0))
    noise, ledger = Noise(torch.Generator().manual_seed(1), False), Ledger(PoissonSampling(0.1))
    told = sanitize([query], [total], 1.0, 1, [(count,)], noise, ledger, lambda: None, False)
    drawn = torch.normal(
        0.0, 3.0, (count,), generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    assert torch.equal(told[ClippedGradient], (total + drawn).float())


@pytest.mark.parametrize("distributed", [True, False])
def test_sampler_long_loop_batches_distinct(distributed: bool, monkeypatch) -> None:
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *group: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda *group: 1)
    plain = DataLoader(TensorDataset(torch.zeros(200, 1)), batch_size=25)
    loader = DPDataLoader.from_data_loader(plain, distributed=distributed)
    batches = [tuple(batch) for batch in install_sampler(loader, 6000)]
    assert len(set(batches)) == len(batches) == 6000


EXAMPLES = 23


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_sampler_workers_partition_examples(workers: int, monkeypatch) -> None:
    """At a rate of 1 a worker's batch is all that it has."""
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *group: workers)
    dealt: list[list[list[int]]] = []
    for rank in range(workers):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda *group, rank=rank: rank)
        plain = DataLoader(TensorDataset(torch.zeros(EXAMPLES, 1)), batch_size=1)
        batches = install_sampler(DPDataLoader.from_data_loader(plain, distributed=True), 2)
        assert batches.sample_rate == pytest.approx(1 / EXAMPLES, rel=1e-12)
        batches.sample_rate = batches.accounted_rate = 1.0
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
def test_method_adapter_workers_synchronized(method: str, monkeypatch) -> None:
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
def test_sampler_loops_announced_and_distinct(distributed, monkeypatch) -> None:
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


@pytest.mark.parametrize("method", ENGINES)
def test_noise_secure_mode_always_used(method, mode, monkeypatch) -> None:
    drawn, real = [], mechanism._generate_noise

    def noted(deviation, reference, generator, secure_mode):
        drawn.append((generator, secure_mode))
        return real(deviation, reference, generator, secure_mode)

    monkeypatch.setattr(mechanism, "_generate_noise", noted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = ENGINES[method](accountant="rdp")
    engine.secure_mode, engine.secure_rng = True, torch.Generator()
    model = network()
    more = {"count_noise": 0.3} if method == "fixed_quantile" else {}
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=torch.nn.CrossEntropyLoss(),
        data_loader=loader_of(*examples()),
        noise_multiplier=1.0,
        max_grad_norm=0.5,
        grad_sample_mode=mode,
        **more,
    )
    model, optimizer, loader = made[0], made[1], made[-1]
    criterion = made[2] if len(made) == 4 else torch.nn.CrossEntropyLoss()
    for _ in range(2):
        optimizer.zero_grad()
        inputs, targets = examples(count=4)
        criterion(model(inputs), targets).backward()
        optimizer.step()
        assert loader.batch_sampler.generator is engine.secure_rng
        optimizer.load_state_dict(optimizer.state_dict())
    assert len(drawn) >= 2 * len(optimizer.params)
    assert all(one is engine.secure_rng and secure for one, secure in drawn)
    assert loader.batch_sampler.generator is engine.secure_rng


@pytest.mark.parametrize("secure", [True, False])
def test_noise_matches_opacus(secure) -> None:
    like = [torch.empty(100, 200), torch.empty(()), torch.empty(7)]
    mine = Noise(torch.Generator().manual_seed(3), secure)("a sum", 2.5, like)
    generator = torch.Generator().manual_seed(3)
    parts = [mechanism._generate_noise(2.5, one, generator, secure).flatten() for one in like]
    assert torch.equal(mine, torch.cat(parts))
    assert float(mine.std()) == pytest.approx(2.5, rel=0.03)
