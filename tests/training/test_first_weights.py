"""The weights that a seed begins with: as many different ones as there are seeds."""

import torch

from oso_dp.training.problem import initial_parameters

SEEDS = [*range(300), 1000, 1001, 2**16, 2**16 + 1, 2**31 - 1, 2**32, 2**32 + 1, 2**40]


def test_no_two_seeds_begin_alike(make_task) -> None:
    """Else a deviation over seeds would be that of fewer trainings than it says."""
    first = torch.stack([initial_parameters(make_task("online"), seed) for seed in SEEDS])
    assert len(first[:, :8].unique(dim=0)) == len(SEEDS)
    spread = first - first.mean(dim=0)
    alike = torch.corrcoef(spread[:60]) - torch.eye(60)
    assert alike.abs().max() < 0.2
