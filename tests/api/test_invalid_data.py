"""Data that are refused: one line, before anything is trained."""

import numpy as np
import pytest
import torch
from tests.api.test_invalid_arguments import nothing_is_trained, refusal  # noqa: F401
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


class Of(Dataset):
    def __init__(self, *examples) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int):
        return self.examples[index]


class Endless(Of):
    def __len__(self) -> int:
        return float("inf")


class Broken(Of):
    def __getitem__(self, index: int):
        raise KeyError("row")


X, Y = np.zeros((9, 6), dtype=np.float32), np.zeros(9, dtype=np.int64)
PAIRS = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:8]), "data: 9 inputs and 8 targets"),
        ((X,), "data: 1 elements; must be (inputs, targets)"),
        ((X, Y, Y), "data: 3 elements; must be (inputs, targets)"),
        ((X[:0], Y[:0]), "data: has no inputs; must have"),
        ((np.full((9, 6), np.nan), Y), "data: inputs contain NaN or infinity"),
        ((X, np.full(9, np.inf)), "data: targets contain NaN or infinity"),
        ((X.astype(complex), Y), "data: inputs are complex;"),
        ((np.ma.masked_array(X, X == 0), Y), "data: inputs are a masked array; fill or drop"),
        ((torch.zeros(9, 6).to_sparse(), Y), "data: inputs are a sparse, nested"),
        (Endless(), "data: has no length (TypeError: 'float' object"),
        (([["a"] * 6] * 9, Y), "data: inputs of type list; must be numbers"),
        ((X, np.array(["no", "yes", "no"] * 3)), "data: targets of type <U3; must be numbers"),
        (Stream(), "data: IterableDataset; must be a map-style data set"),
        (Of(), "data: has no examples; must have"),
        (Subset(PAIRS, [0, *range(9)]), "data: an example appears twice in a Subset or Concat"),
        (Subset(Subset(PAIRS, [3, 3, 4]), [0, 1]), "data: an example appears twice in a Subset"),
        (ConcatDataset([PAIRS, PAIRS]), "data: an example appears twice in a Subset or Concat"),
        (Of(X[0], X[0]), "data: example of type ndarray; must be a pair"),
        (Of({"x": X[0]}), "data: example of type dict; must be a pair"),
        (
            DataLoader(TensorDataset(torch.zeros(9, 6), torch.zeros(9))),
            "data: DataLoader; must be (inputs, targets) or a map-style data set",
        ),
        (
            {"x": X},
            "data: dict; must be (inputs, targets) or a map-style data set",
        ),
        (Broken(X, Y), "data: has no example at index 0 (KeyError: 'row')"),
        (
            (X, Y + 2),
            "data: targets contain 2; must be 0 to 1, for this model's 2 outputs",
        ),
        ((X, Y - 1), "data: targets contain -1; must be 0 to 1, for this model's 2 outputs"),
        (42, "data: int; must be (inputs, targets) or a map-style data set"),
        ((X[:, :5], Y), "model: fails on three examples of shape [5], targets of shape []"),
        (
            (X.astype(np.uint8), Y),
            "model: fails on three examples of shape [6] (integers; convert with float())",
        ),
    ],
)
def test_data(train, data, message) -> None:
    assert message in refusal(train, data=data, batch_size=5)


@pytest.mark.parametrize(
    "scored_on", [(X, Y[:8]), (np.full((9, 6), np.nan), Y), Stream(), Of(), Of(X[0], X[0]), 42]
)
def test_validation_data_are_called_so(search, scored_on) -> None:
    assert refusal(search, validation=scored_on).startswith("validation: ")


@pytest.mark.parametrize("targets", [8, 10])
def test_inputs_without_targets_and_the_other_way_around_are_refused(train, targets: int) -> None:
    assert f"data: 9 inputs and {targets} targets" in refusal(
        train, data=(X, np.zeros(targets, int))
    )
