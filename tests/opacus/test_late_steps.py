"""Late in a run, and in its last parameters, noise and batches are as fresh as at the beginning."""

import pytest
import torch
from opacus.data_loader import DPDataLoader
from tests.opacus.helpers import QUIET
from torch.utils.data import DataLoader, TensorDataset

from oso_dp.opacus.mechanism import Noise, sanitize
from oso_dp.opacus.sampler import install_sampler
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.queries import ClippedGradient
from oso_dp.privacy.sampling import PoissonSampling

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]


@pytest.mark.parametrize("secure", [True, False])
def test_every_parameter_has_noise_of_its_own(secure: bool) -> None:
    """As many tensors as a large network has."""
    like = [torch.empty(400) for _ in range(300)]
    parts = Noise(torch.Generator().manual_seed(1), secure)("a sum", 2.5, like).view(300, 400)
    assert (parts.std(dim=1) / 2.5 - 1).abs().max() < 0.2  # 5.6 standard deviations
    assert parts.unique().numel() > 0.99 * parts.numel()


def test_noise_is_fresh_and_as_large_in_late_steps() -> None:
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


@pytest.mark.parametrize("distributed", [True, False])
def test_no_batch_of_a_long_loop_comes_again(distributed: bool, monkeypatch) -> None:
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *group: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda *group: 1)
    plain = DataLoader(TensorDataset(torch.zeros(200, 1)), batch_size=25)
    loader = DPDataLoader.from_data_loader(plain, distributed=distributed)
    batches = [tuple(batch) for batch in install_sampler(loader, 6000)]
    assert len(set(batches)) == len(batches) == 6000
