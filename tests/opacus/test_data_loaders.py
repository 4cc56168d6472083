"""Which data loaders are taken: all examples, each once, and no two in one buffer."""

import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from opacus.data_loader import DPDataLoader
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from tests.opacus.helpers import (
    NOT_TRIED,
    QUIET,
    examples,
    in_pieces,
    loader_of,
    make,
    refused,
)
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from oso_dp.opacus.validation import check_loader

pytestmark = [pytest.mark.filterwarnings(text) for text in (*QUIET, NOT_TRIED)]


INPUTS, TARGETS = examples()


class Fetched(Dataset):
    """Of 120 examples, as `fetch` hands them out."""

    def __init__(self, fetch: Callable[[int], Any], count: int = 120) -> None:
        self.fetch, self.count = fetch, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.fetch(index)


def one_tensor(values: Tensor = INPUTS) -> Callable[[int], Any]:
    buffer = torch.empty(6)

    def fetch(index: int) -> Any:
        buffer.copy_(values[index])
        return buffer, TARGETS[index]

    return fetch


def views_of_one_tensor() -> Callable[[int], Any]:
    buffer = torch.empty(2, 6)

    def fetch(index: int) -> Any:
        buffer[1] = INPUTS[index]
        return {"inputs": buffer[1], "targets": TARGETS[index]}

    return fetch


def two_in_turn() -> Callable[[int], Any]:
    buffers = torch.empty(2, 6)

    def fetch(index: int) -> Any:
        buffers[index % 2] = INPUTS[index]
        return buffers[index % 2], TARGETS[index]

    return fetch


def one_array(tensor: bool = False) -> Callable[[int], Any]:
    buffer = np.empty(6, dtype=np.float32)

    def fetch(index: int) -> Any:
        buffer[:] = INPUTS[index]
        return (torch.from_numpy(buffer) if tensor else buffer), int(TARGETS[index])

    return fetch


def targets_of_one_array(target: Callable[[int], int]) -> Callable[[int], Any]:
    buffer = np.empty((), dtype=np.uint8)

    def fetch(index: int) -> Any:
        buffer[()] = target(index)
        return [INPUTS[index], [buffer]]

    return fetch


BUFFERS: dict[str, Callable[[], Callable[[int], Any]]] = {
    "one tensor": one_tensor,
    "one tensor, examples of one value": lambda: one_tensor(torch.ones(120, 6)),
    "one tensor, no numbers": lambda: one_tensor(torch.full((120, 6), torch.nan)),
    "views of one tensor": views_of_one_tensor,
    "two in turn": two_in_turn,
    "one array": one_array,
    "a tensor of one array": lambda: one_array(tensor=True),
    "rising targets": lambda: targets_of_one_array(lambda index: index),
    "falling targets": lambda: targets_of_one_array(lambda index: 119 - index),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_check_examples_shared_buffer_rejected(name: str) -> None:
    loader = DataLoader(Fetched(BUFFERS[name]()), batch_size=12)
    refused(
        lambda: make(loader=loader),
        "data_loader: the data set returns each example in the same tensor",
    )


def partly_read(index: int) -> Any:
    if index > 0:  # Opacus reads the first one
        raise ValueError(f"example {index} says {TARGETS[index]}")
    return INPUTS[index], TARGETS[index]


def filled_once() -> Callable[[int], Any]:
    """Rows that are read when they are first asked for."""
    cache = torch.full((120, 6), torch.nan)

    def fetch(index: int) -> Any:
        cache[index] = INPUTS[index]
        return cache[index], TARGETS[index]

    return fetch


def moved_in_place() -> Callable[[int], Any]:
    own = INPUTS.clone()
    return lambda index: (own[index].mul_(1.01), TARGETS[index])


TABLE, MASK = torch.eye(3), torch.ones(6)


FROZEN = INPUTS.numpy().copy()


FROZEN.setflags(write=False)


TAKEN: dict[str, Callable[[], Dataset]] = {
    "rows of tensors": lambda: loader_of(INPUTS, TARGETS).dataset,
    "rows of no numbers": lambda: loader_of(torch.full((120, 6), torch.nan), TARGETS).dataset,
    "rows of arrays": lambda: Fetched(lambda index: (FROZEN[index], int(TARGETS[index]))),
    "arrays backwards": lambda: Fetched(lambda index: (FROZEN[index][::-1].copy(), 0)),
    "texts": lambda: Fetched(lambda index: (INPUTS[index], "a", np.array(["b"], dtype=object))),
    "windows": lambda: Fetched(lambda index: (INPUTS.flatten()[index : index + 6], TARGETS[index])),
    "one table of classes": lambda: Fetched(lambda index: (INPUTS[index], TABLE[index // 60])),
    "one mask": lambda: Fetched(lambda index: {"inputs": INPUTS[index], "mask": MASK}),
    "one object twice": lambda: (
        [(INPUTS[0], TARGETS[0])] * 2 + [*zip(INPUTS, TARGETS, strict=True)]
    ),
    "filled once": lambda: Fetched(filled_once()),
    "moved in place": lambda: Fetched(moved_in_place()),
    "one example": lambda: Fetched(one_tensor(), count=1),
    "examples that cannot be read": lambda: Fetched(partly_read),
    "drawn": lambda: Fetched(lambda index: (torch.randn(6), TARGETS[index])),
}


@pytest.mark.parametrize("name", TAKEN)
def test_check_examples_harmless_data_accepted(name: str) -> None:
    """Rows may share memory, and an exception of a data set's own tells what it holds."""
    data = TAKEN[name]()
    torch.manual_seed(3)
    make(loader=DataLoader(data, batch_size=min(12, len(data))), model=torch.nn.Linear(6, 3))


def test_check_examples_random_state_kept() -> None:
    """But for the first example, which Opacus reads for its shapes, and again for its types."""
    data, model = TAKEN["drawn"](), torch.nn.Linear(6, 3)
    torch.manual_seed(3)
    make(loader=DataLoader(data, batch_size=12), model=model)
    drawn = torch.rand(3)
    torch.manual_seed(3)
    _ = data[0], data[0]
    assert torch.equal(drawn, torch.rand(3))


DATA = TensorDataset(*examples())


class Consenting(SequentialSampler):
    """The first half, which its length does not tell."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(60))


class Doubled(RandomSampler):
    pass


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


LOADERS = [
    (with_sampler(Consenting(DATA)), f"Consenting {REPLACED}"),
    (with_sampler(Doubled(DATA)), f"Doubled {REPLACED}"),
    (with_sampler(Dealt(DATA, 1, 0)), f"Dealt {REPLACED}"),
    (with_sampler(SubsetRandomSampler(range(60))), f"SubsetRandomSampler {REPLACED}"),
    (
        with_sampler(WeightedRandomSampler(torch.ones(120), 120)),
        f"WeightedRandomSampler {REPLACED}",
    ),
    (with_sampler([*range(60)]), f"list {REPLACED}"),
    (
        with_sampler(RandomSampler(DATA, replacement=True, num_samples=120)),
        f"RandomSampler {REPLACED}",
    ),
    (with_sampler(RandomSampler(DATA, num_samples=50)), f"RandomSampler of 50.*{REPLACED}"),
    (with_sampler(RandomSampler(DATA, num_samples=240)), f"RandomSampler of 240.*{REPLACED}"),
    (
        with_sampler(SequentialSampler(range(60))),
        "SequentialSampler of 60 examples would be replaced by Poisson sampling of all 120; use a",
    ),
    (with_sampler(DistributedSampler(range(60), 1, 0)), "DistributedSampler of 60 examples"),
    (
        with_sampler(DistributedSampler(DATA, num_replicas=4, rank=0)),
        "DistributedSampler for 4 replicas, but the module has 1",
    ),
    (DataLoader(DATA, batch_sampler=Twice(range(120), 2, False)), "no user-defined batch sampler"),
    (
        DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(range(60)), 12, False)),
        "SequentialSampler of 60 examples",
    ),
    (DataLoader(DATA, batch_sampler=[[0, 1], [2, 3]]), "no user-defined batch sampler"),
    (Filtered(DATA, 12), "Filtered overrides __iter__"),
    (Short(DATA, 12), "Short overrides __len__"),
    (poisson(60), "UniformWithReplacementSampler of 60 examples"),
    (poisson(steps=1000), "1000 batches at sampling rate 0.1; must be 10 batches"),
    (
        DataLoader(DATA, batch_sampler=Poisson(num_samples=120, sample_rate=0.1)),
        f"Poisson {REPLACED}",
    ),
]


@pytest.mark.parametrize(("loader", "message"), LOADERS)
def test_check_loader_unsupported_sampling_rejected(loader, message) -> None:
    refused(lambda: check_loader(loader, nn.Linear(6, 3)), f"data_loader: .*{message}")


class Renamed(DataLoader):
    """Differs in nothing that is replaced."""


ALLOWED = {
    "in order": DataLoader(DATA, 12),
    "shuffled": DataLoader(DATA, 12, shuffle=True, drop_last=True),
    "subclass": Renamed(DATA, 12),
    "batch sampler": DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 12, False)),
    "one worker": with_sampler(DistributedSampler(DATA, 1, 0)),
    "Poisson": DPDataLoader(DATA, sample_rate=0.1),
    "Poisson of a rate that rounds": DPDataLoader(DATA, sample_rate=1 / 49),
    "part": DataLoader(Subset(DATA, range(60)), 12),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_check_loader_all_examples_accepted(name) -> None:
    made = make(loader=ALLOWED[name])
    make(loader=made.loader)  # as it came back


def test_make_private_repeated_example_rejected() -> None:
    refused(
        lambda: make(loader=DataLoader(Subset(DATA, [0, *range(120)]), 12)),
        "data_loader: an example appears twice",
    )


class Drawing(TensorDataset):
    """Adds a random number of each kind, as a random crop does; of 53 bits: two do not meet."""

    def __getitem__(self, index: int) -> Any:
        inputs, target = super().__getitem__(index)
        return (
            inputs,
            torch.tensor([random.random(), np.random.random(), uniform()], dtype=torch.float64),
            target,
        )


def uniform() -> float:
    """PyTorch's next draw."""
    return torch.rand((), dtype=torch.float64).item()


def drawn_in_training(workers: int, split: bool, seed: int | None) -> list[list[float]]:
    """What examples, the script and the script after the training draw; seed: of the noise."""
    generator = torch.Generator()
    data = Drawing(INPUTS, TARGETS)
    loader = DataLoader(data, 60, num_workers=workers, generator=generator.manual_seed(0))
    options = {} if seed is None else {"noise_generator": torch.Generator().manual_seed(seed)}
    made = make(model=nn.Linear(6, 3), loader=loader, **options)
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    drawn, script = [], []
    with in_pieces(made, 20) if split else nullcontext(made.loader) as batches:
        for inputs, draws, targets in batches:
            made.backward(inputs, targets)
            made.optimizer.step()
            made.optimizer.zero_grad()
            drawn += draws.tolist()
            script += [uniform()]
    script += [random.random(), np.random.random(), uniform()]
    return [*map(list, zip(*drawn, strict=True)), script]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_make_private_draws_unknown(workers: int, split: bool) -> None:
    """No draw in a loop over the loader, or after it, follows a seed that is known."""
    one, other = (drawn_in_training(workers, split, None) for _ in range(2))
    for here, there in zip(one, other, strict=True):
        assert not {*here} & {*there}
        assert len({*here}) == len(here)


def test_make_private_noise_generator_draws_repeated() -> None:
    one, other = (drawn_in_training(0, False, 5) for _ in range(2))
    assert one == other
