"""Scripts as people write them: closures, dictionaries, frozen BatchNorm, a model in eval mode."""

import pytest
import torch
from tests.opacus.helpers import (
    NOT_TRIED,
    QUIET,
    Recorded,
    examples,
    loader_of,
    make,
    network,
    parameters_of,
    refused,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

pytestmark = [pytest.mark.filterwarnings(text) for text in (*QUIET, NOT_TRIED)]


def test_a_closure_is_called_once_and_its_loss_returned(mode) -> None:
    outcomes = []
    for with_closure in (False, True):
        made = make(mode=mode, model=network(double=True), noise=Recorded())
        batch = examples(double=True, count=7)
        calls = []

        def closure(made=made, batch=batch, calls=calls) -> float:
            calls.append(torch.is_grad_enabled())
            made.optimizer.zero_grad()
            made.backward(*batch)
            return 2.5

        if with_closure:
            assert made.optimizer.step(closure) == 2.5
            assert calls == [True]
        else:
            made.step(*batch)
        assert made.optimizer.ledger.step_count == 1
        outcomes.append(parameters_of(made.optimizer))
    assert torch.equal(*outcomes)


class Rows(Dataset):
    """Dictionaries, one of them in another."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> dict:
        return {"x": {"values": self.inputs[index]}, "y": self.targets[index]}


def test_an_empty_first_batch_of_dictionaries_has_their_structure() -> None:
    inputs, targets = examples()
    made = make(loader=DataLoader(Rows(inputs, targets), batch_size=1))
    sampler = made.loader.batch_sampler
    sampler._sample_mask = lambda count: torch.zeros(count, dtype=torch.bool)
    batch = next(iter(made.loader))
    assert batch["x"]["values"].shape == (0, inputs.shape[1])
    assert (batch["y"].shape, batch["y"].dtype) == ((0,), torch.int64)
    made.step(batch["x"]["values"], batch["y"])
    assert made.optimizer.ledger.step_count == 1


def normed() -> nn.Sequential:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    model[1].running_mean += torch.randn(8)
    model[1].requires_grad_(False).eval()
    return model


def test_frozen_batch_norm_in_eval_mode_is_trained_around(mode) -> None:
    model = normed()
    before = [values.clone() for values in model[1].state_dict().values()]
    made = make(mode=mode, model=model, loader=loader_of(*examples()))
    for batch in made.loader:
        made.step(*batch)
    after = list(model[1].state_dict().values())
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert model[1].track_running_stats
    made.model.train()  # as scripts do in each epoch
    message = r"layer '1' \(BatchNorm1d\) is in training mode, in which it mixes"
    refused(lambda: made.step(*examples(count=5)), message)


@pytest.mark.parametrize(
    "spoil", [lambda norm: norm.train(), lambda norm: norm.requires_grad_(True)]
)
def test_batch_norm_that_learns_or_mixes_is_refused(spoil) -> None:
    model = normed()
    spoil(model[1])
    refused(lambda: make(model=model), r"layer '1' \(BatchNorm1d\): mixes the examples of a batch")


def test_a_model_in_eval_mode_is_refused_by_name(mode) -> None:
    made = make(mode=mode)
    made.model.eval()
    refused(lambda: made.step(*examples(count=3)), "is in eval mode, in which there are no per-exa")
    assert made.optimizer.ledger.step_count == 0


@pytest.mark.parametrize(
    "model",
    [
        lambda: nn.Sequential(nn.Linear(6, 3), nn.ReLU(inplace=True)),
        lambda: nn.Sequential(nn.Linear(6, 3), AddsInPlace()),
    ],
)
def test_changes_in_place_are_refused_with_what_to_write(model) -> None:
    refused(lambda: make(model=model()), "use inplace=False, x = x \\+ y for x \\+= y")


class AddsInPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x += 1
        return x
