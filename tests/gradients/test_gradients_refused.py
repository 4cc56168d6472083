"""The gradient code refuses models and losses whose per-example gradients it would get wrong."""

from functools import partial

import pytest
import torch
from tests.gradients.one_run import OneRun
from torch import nn

from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine, check_independence
from oso_dp.models.losses import cross_entropy

LABELS = torch.zeros(0, dtype=torch.int64)


class Reused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(x))


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


class Unmixed(nn.Module):
    """Treats each example by itself, but keeps averages over all of them in its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 4), nn.InstanceNorm2d(1, track_running_stats=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x).view(-1, 1, 2, 2)).flatten(1)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), "mixes examples"),
        (Unmixed(), "InstanceNorm2d, which mixes examples"),
        (Reused(), "used twice"),
        (Unused(), "not used"),
        (nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.ReLU(inplace=True)), "in place"),
    ],
)
def test_models_whose_gradients_would_be_wrong_are_refused(model, message) -> None:
    def norms() -> torch.Tensor:
        code = GradientEngine(model, cross_entropy)
        check_independence(code, torch.rand(code.size), torch.zeros(0, 3), LABELS)
        return OneRun(code, torch.rand(code.size), torch.rand(2, 3), torch.tensor([0, 1])).norms()

    with pytest.raises(OsoError, match=message):
        norms()


class OwnNorm(nn.BatchNorm1d):
    """Of a kind that this package does not know."""


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", [OwnNorm, nn.SyncBatchNorm, nn.BatchNorm2d, nn.BatchNorm3d])
def test_what_is_made_of_batch_norm_is_refused_by_name(kind, affine) -> None:
    norm = kind(3, affine=affine, track_running_stats=False)
    with pytest.raises(OsoError, match=f"layer '1' is a {kind.__name__}, which mixes examples"):
        GradientEngine(nn.Sequential(nn.Linear(3, 3), norm), cross_entropy)


class Tokens(nn.Module):
    """Each example's twelve inputs as four rows of three, through one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.reshape(-1, 3)).reshape(len(x), -1, 3).sum(dim=1)


def test_an_example_spread_over_several_rows_is_refused() -> None:
    """Each row would be clipped by itself, and the example contribute four times the threshold."""
    code = GradientEngine(Tokens(), cross_entropy)
    with pytest.raises(OsoError, match="one row each"):
        OneRun(
            code, torch.rand(code.size), torch.rand(5, 12), torch.zeros(5, dtype=torch.long)
        ).norms()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_that_is_not_per_example_is_refused(reduction: str) -> None:
    """A mean's gradients are B times too small for the clip: all would pass it."""
    loss = partial(nn.functional.cross_entropy, reduction=reduction)
    code = GradientEngine(nn.Sequential(nn.Linear(3, 3)), loss)
    with pytest.raises(OsoError, match=r"loss: shape \[\] for 5 examples"):
        OneRun(
            code, torch.rand(code.size), torch.rand(5, 3), torch.zeros(5, dtype=torch.long)
        ).norms()


@pytest.mark.parametrize("share", [1.0, 1e-6])
def test_a_little_mixing_is_refused_like_much(share: float) -> None:
    """One example with huge inputs would move the others' gradients by much."""

    class Little(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x + share * x.mean(dim=0))

    code = GradientEngine(Little(), cross_entropy)
    with pytest.raises(OsoError, match="mixes examples"):
        check_independence(code, torch.rand(code.size), torch.zeros(0, 3), LABELS)


def test_a_parameter_of_two_layers_is_refused() -> None:
    """Its gradient would be that of one of them only."""
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    with pytest.raises(OsoError, match="two layers share a parameter"):
        GradientEngine(model, cross_entropy)
