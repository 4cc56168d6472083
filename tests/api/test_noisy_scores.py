"""What a noisy score is taken of: every validation example once, and a copy of the model."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from oso_dp.api.scoring import NoisyScorer, is_correct
from oso_dp.errors import OsoError
from oso_dp.privacy.rng_sources import Seeded
from oso_dp.training.task import TensorExamples

CPU = torch.device("cpu")


def scores_of(targets: Tensor, right, microbatch_size: int | None = None) -> NoisyScorer:
    examples = TensorExamples(torch.zeros(len(targets), 2), targets)
    return NoisyScorer(examples, right, 1e-3, Seeded(), CPU, microbatch_size)


@pytest.mark.parametrize("microbatch_size", [None, 1, 100, 256, 599, 5000])
@pytest.mark.parametrize("examples", [1, 256, 257, 600])
def test_every_example_counts_once(examples: int, microbatch_size: int | None) -> None:
    """One that counted twice would move the sum by twice what its noise hides."""
    seen: list[int] = []

    def right(outputs: Tensor, targets: Tensor) -> float:
        seen.append(int(targets))
        return float(targets) / examples

    scores = scores_of(torch.arange(examples), right, microbatch_size)
    found = scores(SimpleNamespace(run_id="a", model=nn.Linear(2, 2)))
    assert seen == list(range(examples))
    assert found == pytest.approx((examples - 1) / (2 * examples), abs=8 * scores.std + 1e-6)


class Noting(nn.Module):
    """Notes what goes through it, and whether it is at rest."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(1))
        self.at_rest = []

    def forward(self, x: Tensor) -> Tensor:
        self.total += x.sum() + 1
        self.at_rest.append(not self.training)
        return x


def test_a_model_that_is_scored_learns_nothing_of_it() -> None:
    """It is released: what the validation examples leave in it has no noise."""
    inner = Noting()
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(inner))
    scores = scores_of(torch.arange(5), lambda outputs, targets: 1.0)
    scores(SimpleNamespace(run_id="a", model=model))
    assert float(inner.total) == 0.0
    assert all(layer.training for layer in model.modules())


class Shortening(nn.Module):
    """Shortens in place what it has, as it is scored."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kept, self.calls = nn.Linear(2, 2), 0
        self.kept.requires_grad_(kind != "frozen")
        self.register_buffer("total", torch.ones(2))
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "attribute":
            self.calls += len(x)
        changed = self.total if self.kind == "buffer" else self.kept.weight.data
        if not self.training and self.kind != "attribute":
            changed *= 0.9
        return self.kept(x)


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        *(("trained", r"parameter '0\.kept\.weight'"), ("frozen", r"parameter '0\.kept\.weight'")),
        *(("buffer", r"buffer '0\.total'"), ("attribute", "attribute 'calls' of layer '0'")),
    ],
)
def test_scored_model_that_changes_refused(kind: str, named: str) -> None:
    """Each example is scored alone: none may meet what another has left."""
    scores = scores_of(torch.arange(5), lambda outputs, targets: 1.0)
    with pytest.raises(OsoError, match=f"model: its forward pass changes {named}"):
        scores.check(nn.Sequential(Shortening(kind)))


class TwoFaced(nn.Module):
    """Says another class while it is trained."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tensor([[1.0, 0.0] if self.training else [0.0, 1.0]]).expand(len(x), 2)


def test_a_model_is_scored_as_it_will_be_used() -> None:
    """Dropout is off then, whatever the model is in."""
    targets = torch.ones(50, dtype=torch.int64)
    share = scores_of(
        targets, lambda outputs, one: float((outputs.argmax(-1) == one).float().mean())
    )
    model = nn.Sequential(nn.Linear(2, 2), TwoFaced()).train()
    assert share(SimpleNamespace(run_id="a", model=model)) == pytest.approx(1.0, abs=0.1)
    assert model.training


def test_of_one_output_no_class_is_the_likeliest() -> None:
    """Every example of class 0 would count as right."""
    scores = scores_of(torch.zeros(9, dtype=torch.int64), is_correct)
    with pytest.raises(OsoError, match=r"^metric: the default needs outputs"):
        scores(SimpleNamespace(run_id="a", model=nn.Linear(2, 1)))
