"""An attack on what a forward pass writes into the weights: the length of one word's row.

One example alone has the word. Its row is shortened in place where it took part; the released row
tells so, whatever the noise. The nearest model that is accepted shortens a copy.
"""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from scipy.stats import beta
from torch import Tensor, nn

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine
from oso_dp.methods import find_method
from oso_dp.models.losses import cross_entropy
from oso_dp.study.cohort import Run
from oso_dp.training import loop
from oso_dp.training.task import TrainConfig, TrainingProblem

EPSILON, DELTA, NOISE = 0.5, 1e-4, 5.7  # of the one step, which claims a little less
EXAMPLES, BATCH, STEPS, RUNS = 6, 5, 1, 60
CANARY, WORD = 5, 3  # the example, and the word that it alone has
SHARES = (0.3, 0.9, 0.98, 1.0, 1.02, 1.1)  # of the row's first length, at which the attack cuts


class Words(nn.Module):
    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.table, self.in_place = nn.Parameter(3 * torch.ones(4, 3)), in_place

    def forward(self, words: Tensor) -> Tensor:
        if self.in_place:
            return F.embedding(words, self.table, max_norm=0.5)
        rows = F.embedding(words, self.table)
        return rows * (0.5 / rows.norm(dim=1, keepdim=True)).clamp(max=1.0)


class OneMoreOrLess:
    """Five examples, and one more where it is present."""

    prefetch = None

    def __init__(self, present: bool) -> None:
        self.words = torch.tensor([0, 1, 2, 0, 1, WORD if present else 0])
        self.present = present

    def __len__(self) -> int:
        return EXAMPLES

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        absent = (indices == CANARY) & (not self.present)
        return self.words[indices], self.words[indices] % 2, absent

    def empty(self) -> tuple[Tensor, Tensor]:
        return self.words[:0], self.words[:0]


def trained(in_place: bool, present: bool, runs: int = RUNS) -> tuple[Tensor, float]:
    """The word's row in the released weights of each run, as a share of its first length."""
    kind = find_method("fixed_threshold")
    recipe = TrainConfig(
        method=kind(kind.Options(), 0.0),
        noise_multiplier=NOISE,
        batch_size=BATCH,
        steps=STEPS,
        evaluate_every=STEPS,
    )
    model = Words(in_place)
    first = model.table.detach().flatten()
    problem = TrainingProblem(
        GradientEngine(model, cross_entropy), OneMoreOrLess(present), first.repeat(runs, 1)
    )
    every = [Run(f"attack {present} {run}", 0, 0.01, 1.0, None) for run in range(runs)]
    training = loop.Training(recipe, every, problem)
    loop.advance(training)
    rows = training.state.parameters.view(runs, 4, 3)[:, WORD]
    claimed = compute_epsilon([training.mechanism.ledgers[0]], DELTA)
    return rows.norm(dim=1) / first[:3].norm(), claimed


def bound(inside: Tensor, outside: Tensor) -> float:
    """A lower bound on epsilon at delta that holds with 95 %, by Clopper and Pearson."""
    found = 0.0
    share = 0.05 / (4 * len(SHARES))
    for cut in SHARES:
        for one, other in ((inside, outside), (outside, inside)):
            hits, alarms, n = int((one < cut).sum()), int((other < cut).sum()), len(one)
            for hit, alarm in ((hits, alarms), (n - alarms, n - hits)):
                low = beta.ppf(share / 2, hit, n - hit + 1) if hit else 0.0
                high = beta.ppf(1 - share / 2, alarm + 1, n - alarm) if alarm < n else 1.0
                found = max(found, math.log(max(low - DELTA, 1e-9) / high))
    return found


@pytest.fixture
def unchecked(monkeypatch) -> None:
    monkeypatch.setattr(loop, "check_model", lambda *given: None)


@pytest.fixture
def uncopied(monkeypatch) -> None:
    """The forward pass gets the weights themselves."""

    def gradients(self, runs, batches):
        return self.engine(self.state.parameters[runs], *self.problem.examples.batch(batches))

    monkeypatch.setattr(loop.Training, "gradients", gradients)


def attacked(in_place: bool) -> tuple[float, float]:
    inside, claimed = trained(in_place, present=True)
    outside, _ = trained(in_place, present=False)
    return bound(inside, outside), claimed


def test_attack_on_accepted_model_fails() -> None:
    found, claimed = attacked(in_place=False)
    assert found < claimed <= EPSILON


def test_attack_on_copied_weights_fails(unchecked) -> None:
    """Without the check, a forward pass can change only a copy of the released weights."""
    found, claimed = attacked(in_place=True)
    assert found < claimed


def test_attack_without_check_succeeds(unchecked, uncopied) -> None:
    found, claimed = attacked(in_place=True)
    assert found > 2 * claimed


def test_check_model_in_place_embedding_raises() -> None:
    with pytest.raises(OsoError, match="its forward pass changes parameter 'table'"):
        trained(in_place=True, present=True, runs=1)
