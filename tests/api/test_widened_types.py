"""A data set's first example may be whole by chance: it becomes decimal where it may."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.api.datasets import DatasetExamples, format_types, make_examples, widen
from oso_dp.api.scoring import NoisyScorer, is_correct
from oso_dp.models.losses import cross_entropy
from oso_dp.privacy.rng_sources import Seeded
from oso_dp.training.user_model import UserModel

CPU = torch.device("cpu")
ROW = torch.randn(4)


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets) ** 2


def logits(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")


def chances(outputs: Tensor, targets: Tensor) -> Tensor:
    """Takes no decimal target below 0, as made-up ones are."""
    return F.binary_cross_entropy(outputs[:, 0].sigmoid(), targets.float(), reduction="none")


def gathered(outputs: Tensor, targets: Tensor) -> Tensor:
    return -outputs.gather(1, targets[:, None])[:, 0]


def by_parity(outputs: Tensor, targets: Tensor) -> Tensor:
    """Keys that float32 does not have are other ones there."""
    return outputs[:, 0] * (targets % 2)


class Floats(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs.float() / 255)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(5, 3), nn.Linear(12, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.table(inputs).flatten(1))


class Keys(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward((inputs % 7).float())


@pytest.mark.parametrize(
    ("model", "loss", "first", "inputs", "targets"),
    [
        (nn.Linear(4, 2), squared, (ROW, 1), torch.float32, torch.float32),
        (nn.Linear(4, 2), logits, (ROW, 1), torch.float32, torch.float32),
        (nn.Linear(4, 2), squared, (ROW, True), torch.float32, torch.float32),
        (nn.Linear(4, 2), chances, (ROW, 1), torch.float32, torch.int64),
        (nn.Linear(4, 2), cross_entropy, (ROW, 1), torch.float32, torch.int64),
        (nn.Linear(4, 2), gathered, (ROW, 1), torch.float32, torch.int64),
        (nn.Linear(4, 2), by_parity, (ROW, 1), torch.float32, torch.int64),
        (nn.Linear(4, 2), cross_entropy, (ROW.long(), 1), torch.float32, torch.int64),
        (nn.Linear(4, 2), squared, (ROW.long(), 1), torch.float32, torch.float32),
        (Floats(4, 2), cross_entropy, (ROW.long(), 1), torch.float32, torch.int64),
        (Words(), cross_entropy, (ROW.long(), 1), torch.int64, torch.int64),
        (Words(), squared, (ROW.long(), 1), torch.int64, torch.float32),
        (Keys(4, 2), squared, (ROW.long(), 1), torch.int64, torch.float32),
        (nn.Linear(4, 2), squared, (ROW, 1.0), torch.float32, torch.float32),
    ],
)
def test_first_whole_numbers_become_decimal(model, loss, first, inputs, targets) -> None:
    examples = DatasetExamples([first, first], CPU)
    found = widen(examples, UserModel(model).losses_by(loss))
    assert [part.dtype for part in found.empty()] == [inputs, targets]
    batch = found.batch(torch.tensor([[0, 1]]))
    assert [part.dtype for part in batch[:2]] == [inputs, targets]
    assert not batch[2].any()


def test_types_depend_on_first_example_only() -> None:
    """What the others hold decides nothing."""
    found = [
        widen(DatasetExamples([(ROW, 1), other], CPU), UserModel(nn.Linear(4, 2)).losses_by(loss))
        for other in [(ROW, 0.5), (ROW, 2), (ROW, "cat")]
        for loss in (squared, cross_entropy)
    ]
    assert [one.empty()[1].dtype for one in found] == [torch.float32, torch.int64] * 3


def test_whole_first_target_trains_alike(train, data) -> None:
    inputs, targets = data[0], data[0].sum(dim=1).round(decimals=1)
    targets[0] = 1.0
    usual = {"loss": squared, "batch_size": 400, "epochs": 1, "randomness": "seeded", "seed": 1}
    made = [
        train(data=[(inputs[0], first), *zip(inputs[1:], targets[1:], strict=True)], **usual)
        for first in (1.0, 1)
    ]
    for one, other in zip(*(one.model.parameters() for one in made), strict=True):
        assert torch.equal(one, other)
    assert "Types: inputs float32 [6], targets float32 []; an example" in str(made[1].statement)
    assert made[0].statement.types == made[1].statement.types


@pytest.mark.parametrize(
    ("right", "dtype"),
    [
        (lambda outputs, target: float((outputs[0, 0] - target).abs() < 1), torch.float32),
        (lambda outputs, target: float(outputs.argmax() == target), torch.float32),
        (is_correct, torch.int64),
    ],
)
def test_validation_types_follow_right(right, dtype: torch.dtype) -> None:
    pairs = [(ROW, 1), (ROW, 0.5)]
    scores = NoisyScorer(DatasetExamples(pairs, CPU), right, 1.0, Seeded(), CPU, None)
    scores.check(nn.Linear(4, 2))
    assert scores.validation.empty()[1].dtype == dtype


def test_statement_of_arrays_names_types() -> None:
    examples = make_examples((torch.zeros(3, 4), torch.zeros(3).long()), CPU)
    assert format_types(examples) == "inputs float32 [4], targets int64 []"
    assert widen(examples, squared) is examples
