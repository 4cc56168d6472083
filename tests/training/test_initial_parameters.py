"""The weights that a seed begins with: as many different ones as there are seeds."""

import pytest
import torch

from oso_dp.models import MODELS
from oso_dp.training.task import initial_parameters

SEEDS = [*range(300), 1000, 1001, 2**16, 2**16 + 1, 2**31 - 1, 2**32, 2**32 + 1, 2**40]


def test_no_two_seeds_begin_alike(make_task) -> None:
    """Else a deviation over seeds would be that of fewer trainings than it says."""
    first = torch.stack([initial_parameters(make_task("online"), seed) for seed in SEEDS])
    assert len(first[:, :8].unique(dim=0)) == len(SEEDS)
    spread = first - first.mean(dim=0)
    alike = torch.corrcoef(spread[:60]) - torch.eye(60)
    assert alike.abs().max() < 0.2


# Of seed 1: the first and the last weight, the vector's length; of seed 2^33 + 1 the first weight.
# The stored runs began with these.
FIRST = {
    "cnn": (0.06362630426883698, -0.091420978307724, 5.5047978471901, 0.021248281002044678),
    "autoencoder": (
        0.005732099525630474,
        0.20947036147117615,
        8.98220134699896,
        0.12448740005493164,
    ),
    "autoencoder_strided": (
        *(-0.060698628425598145, -0.09522327035665512, 8.97988235932229, 0.19846849143505096),
    ),
    "bag_of_words": (
        *(-0.011924573220312595, 0.04901312664151192, 9.328106207470446, 0.002081334125250578),
    ),
    "bag_of_words_25": (
        *(0.008416883647441864, 0.022576674818992615, 9.361400484775036, -0.01783536560833454),
    ),
    "small_cnn": (
        *(-0.18667803704738617, -0.03663715720176697, 4.090151595672743, -0.011462283320724964),
    ),
    "linear": (0.0, 0.0, 0.0, 0.0),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_seeds_weights_are_those_of_the_stored_runs(name: str, make_task) -> None:
    task = make_task("online", model=name)
    first = initial_parameters(task, 1)
    found = first[0], first[-1], first.double().norm(), initial_parameters(task, 2**33 + 1)[0]
    assert [float(value) for value in found] == pytest.approx(FIRST[name], rel=1e-6)
