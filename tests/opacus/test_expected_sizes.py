"""The expected size of a batch is n over the number of batches, rounded down once."""

import math

import pytest
import torch
from tests.opacus.helpers import QUIET, OnlinePrivacyEngine, study_method
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from oso_dp.opacus.optimizer import AdaptiveDPOptimizer

pytestmark = [pytest.mark.filterwarnings(line) for line in QUIET]


@pytest.mark.parametrize(("examples", "batch"), [(49, 1), (98, 2), (103, 1), (100, 12), (214, 2)])
def test_it_is_not_rounded_twice(examples: int, batch: int) -> None:
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
def test_that_of_all_workers_is_not_rounded_down(workers: int, whole: int, monkeypatch) -> None:
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
