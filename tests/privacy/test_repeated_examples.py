"""An example that a data set has twice moves a sum by twice the threshold."""

import time

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset

from oso_dp.errors import OsoError
from oso_dp.privacy.repeated_examples import check_no_repeats

INPUTS, TARGETS = torch.randn(20, 3), torch.zeros(20).long()
DATA, OTHER = TensorDataset(INPUTS, TARGETS), TensorDataset(torch.randn(20, 3), TARGETS)
PAIRS = [(0.0, 1)] * 20  # equal ones: content, of which nothing is told


class Own(Dataset):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, place: int) -> tuple[float, int]:
        return float(place), 0


def first_ten(data: Dataset) -> Subset:
    return Subset(data, range(10))


def last_ten(data: Dataset) -> Subset:
    return Subset(data, range(9, 20))


OWN = Own()
REPEATED = {
    "list": Subset(DATA, [0, *range(20)]),
    "numpy": Subset(DATA, np.array([3, 4, 3])),
    "tensor": Subset(DATA, torch.tensor([3, 4, 3])),
    "tensors": Subset(DATA, [torch.tensor(3), torch.tensor(3)]),
    "from the end": Subset(DATA, [0, 19, -1]),
    "a mask": Subset(DATA, [True, False, True]),
    "of a list": Subset(PAIRS, [1, 1]),
    "of a class of one's own": Subset(OWN, [1, 1]),
    "inner": first_ten(Subset(DATA, [7] * 20)),
    "outer": Subset(first_ten(DATA), [2, 2]),
    "third": first_ten(first_ten(Subset(DATA, [7] * 20))),
    "twice": ConcatDataset([DATA, DATA]),
    "sum": DATA + DATA,
    "own twice": ConcatDataset([OWN, OTHER, OWN]),
    "same tensors": ConcatDataset([DATA, TensorDataset(INPUTS, TARGETS)]),
    "overlapping": ConcatDataset([first_ten(DATA), last_ten(DATA)]),
    "overlapping sums": ConcatDataset([first_ten(DATA) + OTHER, last_ten(DATA) + OWN]),
    "whole and part": first_ten(DATA) + DATA,
    "subset of a sum": Subset(DATA + OTHER, [21, -19]),
    "stacked": StackDataset(Subset(INPUTS, [1, 1]), Subset(TARGETS, [1, 1])),
    "stacked by name": StackDataset(x=Subset(INPUTS, [1, 1]), y=Subset(TARGETS, [1, 1])),
    "stacks": StackDataset(first_ten(OWN), first_ten(DATA)) + StackDataset(OWN, DATA),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_repeated_example_is_refused(name) -> None:
    with pytest.raises(OsoError, match="data_loader: an example appears twice in a") as raised:
        check_no_repeats(REPEATED[name], "data_loader")
    assert "\n" not in str(raised.value)


ONCE = {
    "data": DATA,
    "equal examples": PAIRS,
    "no data set": None,
    "part": Subset(DATA, [5, 3, -1]),
    "nothing": Subset(DATA, []),
    "nothing twice": ConcatDataset([Subset(DATA, []), Subset(DATA, [])]) + DATA,
    "complements": ConcatDataset([first_ten(DATA), Subset(DATA, range(10, 20))]),
    "others": ConcatDataset([DATA, OTHER, OWN]),
    "equal content": Subset([*PAIRS], range(20)),
    "shuffled": Subset(ConcatDataset([DATA, OTHER]), np.random.default_rng(0).permutation(40)),
    "prompts that repeat": StackDataset(Subset(INPUTS, [1] * 20), TARGETS),
    "stacks of others": StackDataset(DATA, OWN) + StackDataset(OTHER, OWN),
    "no indices": Subset(DATA, ["a", "a"]),
    "out of range": Subset(first_ten(DATA), [50, 50]),
}


@pytest.mark.parametrize("name", ONCE)
def test_examples_that_appear_once_pass(name) -> None:
    check_no_repeats(ONCE[name], "data")


def test_a_million_indices_take_seconds() -> None:
    begin = time.perf_counter()
    data = Subset(ConcatDataset([range(100_000)] * 10), range(1_000_000))
    with pytest.raises(OsoError):
        check_no_repeats(data, "data")
    assert time.perf_counter() - begin < 5
