"""Poisson batches of all examples replace the loader's: whatever it does otherwise is refused."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from opacus.data_loader import DPDataLoader
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from tests.opacus.helpers import QUIET, examples, make
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from oso_dp.errors import OsoError
from oso_dp.opacus.validation import check_loader

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]
DATA = TensorDataset(*examples())  # 120


class Consenting(SequentialSampler):
    """The first half."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(60))

    def __len__(self) -> int:
        return 60


class Unsaid(Consenting):
    """The same, which its length does not tell."""

    def __len__(self) -> int:
        return 120


class Doubled(RandomSampler):
    def __iter__(self) -> Iterator[int]:
        return iter([*range(60)] * 2)


class Dealt(DistributedSampler):
    pass


class Twice(BatchSampler):
    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0, 0]] * 60)


class Filtered(DataLoader):
    """Leaves out what its script leaves out."""

    def __iter__(self) -> Any:
        return (batch for batch in super().__iter__() if len(batch[0]) > 5)


class Short(DataLoader):
    def __len__(self) -> int:
        return 3


class Poisson(UniformWithReplacementSampler):
    """Of the first half."""

    def __iter__(self) -> Iterator[list[int]]:
        return ([i for i in batch if i < 60] for batch in super().__iter__())


def with_sampler(sampler: Any) -> DataLoader:
    return DataLoader(DATA, batch_size=12, sampler=sampler)


def poisson(examples: int = 120, rate: float = 0.1, **more: int) -> DataLoader:
    batches = UniformWithReplacementSampler(num_samples=examples, sample_rate=rate, **more)
    return DataLoader(DATA, batch_sampler=batches)


REPLACED = "would be replaced by Poisson sampling"
REFUSED = {
    "subclass of its own length": (with_sampler(Consenting(DATA)), f"Consenting {REPLACED}"),
    "subclass of the full length": (with_sampler(Unsaid(DATA)), f"Unsaid {REPLACED}"),
    "random subclass": (with_sampler(Doubled(DATA)), f"Doubled {REPLACED}"),
    "distributed subclass": (with_sampler(Dealt(DATA, 1, 0)), f"Dealt {REPLACED}"),
    "subset": (with_sampler(SubsetRandomSampler(range(60))), f"SubsetRandomSampler {REPLACED}"),
    "weighted": (
        with_sampler(WeightedRandomSampler(torch.ones(120), 120)),
        f"WeightedRandomSampler {REPLACED}",
    ),
    "indices": (with_sampler([*range(60)]), f"list {REPLACED}"),
    "replacement": (
        with_sampler(RandomSampler(DATA, replacement=True, num_samples=120)),
        f"RandomSampler {REPLACED}",
    ),
    "fewer": (
        with_sampler(RandomSampler(DATA, num_samples=50)),
        f"RandomSampler of 50.*{REPLACED}",
    ),
    "more": (
        with_sampler(RandomSampler(DATA, num_samples=240)),
        f"RandomSampler of 240.*{REPLACED}",
    ),
    "other data": (
        with_sampler(SequentialSampler(range(60))),
        "SequentialSampler of 60 examples would be replaced by Poisson sampling of all 120; use a",
    ),
    "other data dealt out": (
        with_sampler(DistributedSampler(range(60), 1, 0)),
        "DistributedSampler of 60 examples",
    ),
    "a share": (
        with_sampler(DistributedSampler(DATA, num_replicas=4, rank=0)),
        "DistributedSampler for 4 replicas, but the module has 1",
    ),
    "batches": (
        DataLoader(DATA, batch_sampler=Twice(range(120), 2, False)),
        "no user-defined batch sampler",
    ),
    "batches of a part": (
        DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(range(60)), 12, False)),
        "SequentialSampler of 60 examples",
    ),
    "batches of a list": (
        DataLoader(DATA, batch_sampler=[[0, 1], [2, 3]]),
        "no user-defined batch sampler",
    ),
    "filtering loader": (Filtered(DATA, 12), "Filtered overrides __iter__"),
    "loader of another length": (Short(DATA, 12), "Short overrides __len__"),
    "Poisson batches of a part": (poisson(60), "UniformWithReplacementSampler of 60 examples"),
    "Poisson batches at another rate": (
        poisson(steps=1000),
        "1000 batches at sampling rate 0.1; must be 10 batches",
    ),
    "Poisson subclass": (
        DataLoader(DATA, batch_sampler=Poisson(num_samples=120, sample_rate=0.1)),
        f"Poisson {REPLACED}",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_loader_of_other_examples_is_refused(name) -> None:
    loader, message = REFUSED[name]
    with pytest.raises(OsoError, match=f"data_loader: .*{message}") as raised:
        check_loader(loader, nn.Linear(6, 3))
    assert "\n" not in str(raised.value)


class Named(DataLoader):
    """Differs in nothing that is replaced."""


ALLOWED = {
    "in order": DataLoader(DATA, 12),
    "shuffled": DataLoader(DATA, 12, shuffle=True, drop_last=True),
    "subclass": Named(DATA, 12),
    "batch sampler": DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 12, False)),
    "one worker": with_sampler(DistributedSampler(DATA, 1, 0)),
    "Poisson": DPDataLoader(DATA, sample_rate=0.1),
    "Poisson of a rate that rounds": DPDataLoader(DATA, sample_rate=1 / 49),
    "part": DataLoader(Subset(DATA, range(60)), 12),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_a_loader_of_all_examples_is_taken(name) -> None:
    made = make(loader=ALLOWED[name])
    make(loader=made.loader)  # as it came back


def test_a_repeated_example_is_refused_by_make_private() -> None:
    with pytest.raises(OsoError, match="data_loader: an example appears twice"):
        make(loader=DataLoader(Subset(DATA, [0, *range(120)]), 12))
