"""Local updates equal each user's own SGD in plain torch, whoever else is trained beside them."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from oso_dp.gradients import GradientEngine
from oso_dp.gradients.layer_gradients import LARGEST_NORM
from oso_dp.gradients.local_updates import LocalUpdates, train_locally
from oso_dp.models import build_model
from oso_dp.models.losses import LOSSES
from oso_dp.privacy.local_training import LocalTraining
from oso_dp.privacy.users import Users

CPU = torch.device("cpu")
MODELS = {
    "linear": lambda: nn.Linear(6, 3),
    "two layers": lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)),
    "embedding": lambda: nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(24, 3)),
    "small_cnn": lambda: build_model("small_cnn"),
    "tanh_cnn": lambda: build_model("tanh_cnn"),
}
SHAPES = {"small_cnn": (1, 14, 14), "tanh_cnn": (1, 28, 28)}
# Users with one row, with many, and with more than go through the model at once.
SIZES = [1, 70, 3, 12, 1, 7]


@dataclass
class Batch:
    inputs: Tensor
    targets: Tensor
    weights: Tensor
    absent: Tensor | None = None


GROUP = 8


def relative_errors(found: Tensor, expected: Tensor) -> Tensor:
    """The relative error of each row in the Euclidean norm.

    Rounding can change the pixel that max pooling selects; single numbers then differ by more.
    How often this happens depends on the processor.
    """
    return (found - expected).norm(dim=-1) / expected.norm(dim=-1)


class Case:
    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        self.model = MODELS[name]()
        self.flat = nn.utils.parameters_to_vector(self.model.parameters()).detach()
        rows = sum(SIZES)
        shape = SHAPES.get(name, (6,))
        self.inputs = (
            torch.randint(9, (rows, 6)) if name == "embedding" else torch.randn(rows, *shape)
        )
        self.targets = torch.randint(3, (rows,))
        ids = torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))
        order = torch.randperm(rows)
        self.inputs, self.targets, ids = self.inputs[order], self.targets[order], ids[order]
        self.users = Users(ids.numpy())
        self.engine = GradientEngine(MODELS[name](), LOSSES["accuracy"])

    @staticmethod
    def shuffle(user: int, epoch: int, rows: np.ndarray) -> np.ndarray:
        return np.random.default_rng((user, epoch)).permutation(rows)

    def updates(self, chosen: list[int], local: LocalTraining, group: int = GROUP) -> Tensor:
        steps = self.users.local_steps(chosen, group, local, self.shuffle, CPU)
        batches = (
            [Batch(self.inputs[p.rows], self.targets[p.rows], p.weights) for p in step]
            for step in steps
        )
        moved = train_locally(self.engine, self.flat, group, batches, local.learning_rate)
        assert moved[len(chosen) :].isnan().all()  # nobody's
        return moved[: len(chosen)]

    def by_torch(self, user: int, local: LocalTraining) -> Tensor:
        nn.utils.vector_to_parameters(self.flat.clone(), self.model.parameters())
        optimizer = torch.optim.SGD(self.model.parameters(), lr=local.learning_rate)
        rows = self.users.rows_of(user)
        for epoch in range(local.epochs):
            order = rows if local.batch_size is None else self.shuffle(user, epoch, rows)
            for batch in np.split(order, range(local.batch_size or len(rows), len(rows),
                                               local.batch_size or len(rows))):  # fmt: skip
                optimizer.zero_grad()
                outputs = self.model(self.inputs[batch])
                nn.functional.cross_entropy(outputs, self.targets[batch]).backward()
                optimizer.step()
        return self.flat - nn.utils.parameters_to_vector(self.model.parameters()).detach()


LOCAL = {
    "FedSGD": LocalTraining(),
    "full batches": LocalTraining(epochs=3, learning_rate=0.3),
    "FedAvg": LocalTraining(epochs=2, batch_size=5, learning_rate=0.1),
    "single rows": LocalTraining(batch_size=1, learning_rate=0.05),
    "long batches": LocalTraining(epochs=2, batch_size=66, learning_rate=0.2),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("local", LOCAL.values(), ids=LOCAL)
def test_train_locally_matches_plain_sgd(name, local) -> None:
    case = Case(name)
    chosen = [4, 1, 0, 3, 2, 5]
    updates = case.updates(chosen, local)
    expected = torch.stack([case.by_torch(user, local) for user in chosen])
    assert relative_errors(updates, expected).max() < 1e-4
    assert (updates.norm(dim=1) > 0.01).all()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("local", [LOCAL["FedSGD"], LOCAL["FedAvg"]], ids=["FedSGD", "FedAvg"])
def test_train_locally_other_users_ignored(name, local) -> None:
    """A user's update is the same beside any other users, up to rounding."""
    case = Case(name)
    together = case.updates([*range(len(SIZES))], local)
    for user in range(len(SIZES)):
        for others in ([], [1], [5, 0]):
            chosen = [*dict.fromkeys([*others[:1], user, *others[1:]])]
            found = case.updates(chosen, local)[chosen.index(user)]
            assert relative_errors(found, together[user]) < 1e-5


def held(*rows: list[float]) -> LocalUpdates:
    """Updates of a linear layer with two weights and a bias."""
    engine = GradientEngine(nn.Sequential(nn.Linear(1, 2, bias=False), nn.Linear(2, 1, bias=False)),
                            LOSSES["accuracy"])  # fmt: skip
    return LocalUpdates(engine, torch.tensor(rows))


def test_local_updates_measured_and_summed() -> None:
    updates = held([3.0, 4.0, 0.0, 12.0], [0.0, 0.0, 0.0, 0.0])
    assert updates.norms().tolist() == [[13.0, 0.0]]
    norms = updates.layer_norms()
    assert {name: one.tolist() for name, one in norms.items()} == {
        "0": [[5.0, 0.0]],
        "1": [[12.0, 0.0]],
    }
    weights = torch.tensor([[[0.5, 2.0], [1.0, 7.0]]])
    assert updates.weighted_sums(weights).tolist() == [[[1.5, 2.0, 0.0, 6.0], [3, 4, 0, 12]]]
    assert updates.weighted_sums(weights, ["1"]).tolist() == [[[0.0, 6.0], [0.0, 12.0]]]
    assert updates.plain_sums(torch.tensor([[True, False]])).tolist() == [[3, 4, 0, 12]]
    assert updates.plain_sums(torch.tensor([[False, True]])).tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), LARGEST_NORM * 2])
def test_local_updates_unusable_update_dropped(value) -> None:
    updates = held([1.0, 2.0, 3.0, 4.0], [0.0, value, 0.0, 1.0])
    assert updates.norms()[0, 1] == torch.inf
    assert all(norms[0, 1] == torch.inf for norms in updates.layer_norms().values())
    sums = updates.weighted_sums(torch.ones(1, 1, 2))
    assert sums.tolist() == [[[1.0, 2.0, 3.0, 4.0]]]


def test_train_locally_nonfinite_row_dropped() -> None:
    case = Case("linear")
    local = LOCAL["FedSGD"]
    many = int(np.argmax([len(case.users.rows_of(user)) for user in range(len(SIZES))]))
    rows = case.users.rows_of(many)
    before = case.updates([many], local)[0]
    case.inputs[rows[0]] = torch.nan
    after = case.updates([many], local)[0]
    assert after.isfinite().all()
    gradient = case.engine(
        case.flat[None], case.inputs[rows[1:]][None], case.targets[rows[1:]][None]
    )
    expected = gradient.plain_sums(torch.ones(1, len(rows) - 1, dtype=torch.bool))[0] / len(rows)
    torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-6)
    assert not torch.equal(before, after)


@pytest.mark.parametrize("local", [LOCAL["FedSGD"], LOCAL["FedAvg"]], ids=["FedSGD", "FedAvg"])
def test_local_updates_unusable_user_dropped(local) -> None:
    case = Case("two layers")
    case.inputs[case.users.rows_of(2)] = torch.nan
    updates = case.updates([0, 2, 1], local)
    held = LocalUpdates(case.engine, updates)
    assert held.norms().isfinite().tolist() == [[True, False, True]]
    assert torch.equal(held.plain_sums(torch.tensor([[False, True, False]]))[0], 0 * case.flat)


def test_local_updates_tiny_update_measured() -> None:
    """Squares underflow in float32; an update with a norm of zero would not be clipped."""
    updates = held([1e-25, 0.0, 0.0, 0.0])
    assert updates.norms().item() == pytest.approx(1e-25, rel=1e-6, abs=0)
