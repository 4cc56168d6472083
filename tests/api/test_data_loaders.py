"""A DataLoader as data: its data set, its processes and its collate_fn, not its batches."""

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch
from tests.api.conftest import flat
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from oso_dp import OsoError
from oso_dp.api.datasets import DatasetExamples, make_examples
from oso_dp.training.loop import Training

# Of Python from 3.12 on, and of torch where a machine has few processors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]
CPU = torch.device("cpu")
SEEDED = {"randomness": "seeded", "seed": 1, "batch_size": 400, "epochs": 2}


class Pairs(Dataset):
    """Examples of a list."""

    def __init__(self, examples) -> None:
        self.examples = list(examples)

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int):
        return self.examples[index]


@pytest.fixture
def pairs(data):
    return Pairs((one, int(other)) for one, other in zip(*data, strict=True))


@pytest.fixture
def open_files():
    """How many more there are than at the beginning; no process may be left.

    A queue's own thread closes its pipe, a little after the queue itself is closed.
    """
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))

    def more() -> int:
        gc.collect()
        deadline = time.monotonic() + 10
        while (open_now := len(os.listdir("/proc/self/fd"))) > before:
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        return open_now - before

    yield more
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(("workers", "size"), [(0, 20), (1, 400), (2, 20)])
def test_data_loader_workers_have_no_effect(workers, size, train, data, pairs, open_files) -> None:
    options = {**SEEDED, "batch_size": size, "epochs": 1, "microbatch_size": 150}
    loader = DataLoader(pairs, batch_size=3, shuffle=True, num_workers=workers)
    assert torch.equal(flat(train(data=loader, **options)), flat(train(data=data, **options)))
    assert open_files() <= 0


def test_data_loader_tensor_dataset_taken_whole(data) -> None:
    loader = DataLoader(TensorDataset(*data), num_workers=2)
    assert not isinstance(make_examples(loader, CPU), DatasetExamples)


def test_data_loader_search_completes_and_closes(search, train, pairs, open_files) -> None:
    loader = DataLoader(pairs, num_workers=2)
    found = search({"learning_rate": [0.5, 1.0]}, data=loader, validation=loader, epochs=1)
    assert len(found.trials) == 2
    assert open_files() <= 0


@pytest.mark.nightly
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_data_loader_spawned_workers_match_tensors(context: str, train, data) -> None:
    loader = DataLoader(
        Subset(TensorDataset(*data), range(400)), num_workers=2, multiprocessing_context=context
    )
    assert torch.equal(flat(train(data=loader, **SEEDED)), flat(train(data=data, **SEEDED)))
    assert multiprocessing.active_children() == []


class FailureError(Exception):
    pass


class Local(Pairs):
    """Fails at an example, with an exception that no other process can read."""

    def __init__(self, examples, error: Exception) -> None:
        super().__init__(examples)
        self.error = error

    def __getitem__(self, index: int):
        if index == 150:
            raise self.error
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_dataset_error_raised(workers: int, train, pairs, open_files) -> None:
    loader = DataLoader(Local(pairs, KeyError("row", 7)), num_workers=workers)
    with pytest.raises(KeyError) as error:
        train(data=loader, **SEEDED)
    assert error.value.args == ("row", 7)
    assert any("steps were released before this error" in note for note in error.value.__notes__)
    if workers:
        assert any("in __getitem__" in note for note in error.value.__notes__)
    del error
    assert open_files() <= 0


def test_data_loader_unpicklable_error_raised(train, pairs, open_files) -> None:
    error = FailureError("no such row")
    error.handle = lambda: None
    with pytest.raises(RuntimeError, match=r"^FailureError: no such row"):
        train(data=DataLoader(Local(pairs, error), num_workers=2), **SEEDED)


def test_data_loader_rejection_leaves_no_process(train, pairs, open_files) -> None:
    loader = DataLoader(pairs, num_workers=2)
    with pytest.raises(OsoError, match="batch_size: 401; must be"):
        train(data=loader, batch_size=401)
    with pytest.raises(OsoError, match="data: example of type int; must be a pair"):
        train(data=DataLoader(Pairs(range(9)), num_workers=1))


def fail(worker: int) -> None:
    raise ValueError("no disk")


def test_data_loader_failing_worker_init_rejected(train, pairs, open_files) -> None:
    loader = DataLoader(pairs, num_workers=1, worker_init_fn=fail)
    with pytest.raises(OsoError) as error:
        train(data=loader)
    assert str(error.value) == "data: no example from worker processes (ValueError: no disk)"


class Opened(Pairs):
    """Examples that only a process which has opened the file may read."""

    opened_by = 0

    def __getitem__(self, index: int):
        assert self.opened_by == os.getpid() != PARENT
        return super().__getitem__(index)


PARENT = os.getpid()


def open_file(worker: int) -> None:
    get_worker_info().dataset.opened_by = os.getpid()


def test_data_loader_only_workers_read_examples(train, pairs, data) -> None:
    """A file that is opened before the fork would have one position for all processes."""
    loader = DataLoader(Opened(pairs), num_workers=2, worker_init_fn=open_file)
    assert torch.equal(flat(train(data=loader, **SEEDED)), flat(train(data=data, **SEEDED)))


SCRIPT = """
import multiprocessing, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from oso_dp import train_private

class Slow(Dataset):
    def __len__(self):
        return 200
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.ones(2), index % 2

def evaluate(model):
    print("step", flush=True)
    return 0.0

made = train_private(
    nn.Linear(2, 2), nn.CrossEntropyLoss(reduction="none"), DataLoader(Slow(), num_workers=2),
    epsilon=3, delta=1e-5, batch_size=200, epochs=400, evaluate=evaluate, evaluate_every=1,
    method="online", progress=False,
)
print(made.status, multiprocessing.active_children())
"""


@pytest.mark.parametrize("presses", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_data_loader_ctrl_c_ends_workers(presses: int, tmp_path) -> None:
    """Ctrl-C also reaches the workers, while the current step still needs their examples."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    process = subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "step\n"
    for _ in range(presses):
        os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    if presses == 1:
        assert out.splitlines()[-1] == "interrupted []"
        assert (process.returncode, err) == (0, "")
    else:
        # A second one in the instant of the first is one signal to Python.
        assert "KeyboardInterrupt" in err or out.splitlines()[-1] == "interrupted []"
    with pytest.raises(ProcessLookupError):  # nothing of its session is left
        os.killpg(process.pid, 0)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


class OwnBatches(DataLoader):
    def __iter__(self):
        return iter(())


class OwnOrder(RandomSampler):
    """May leave out examples."""


class OwnBatchSampler(BatchSampler):
    """May repeat examples."""


TEN = Pairs([(torch.ones(6), 0)] * 10)
BY_WEIGHT = WeightedRandomSampler([0.1] * 10, 10)


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (DataLoader(Stream()), "data: IterableDataset; must be a map-style data set"),
        (DataLoader(TEN, sampler=BY_WEIGHT), "data: DataLoader with a WeightedRandomSampler; bat"),
        (
            DataLoader(TEN, batch_sampler=BatchSampler(BY_WEIGHT, 2, False)),
            "data: DataLoader with a WeightedRandomSampler; batches are sampled here",
        ),
        (DataLoader(TEN, sampler=SubsetRandomSampler(range(5))), "with a SubsetRandomSampler; "),
        (DataLoader(TEN, sampler=DistributedSampler(TEN, 2, 0)), "with a DistributedSampler; "),
        (DataLoader(TEN, sampler=[0, 1]), "data: DataLoader with a list; batches are"),
        (DataLoader(TEN, sampler=OwnOrder(TEN)), "data: DataLoader with a OwnOrder; batches"),
        (
            DataLoader(TEN, batch_sampler=OwnBatchSampler(SequentialSampler(TEN), 2, False)),
            "data: DataLoader with a OwnBatchSampler; batches are",
        ),
        (
            DataLoader(TEN, sampler=RandomSampler(TEN, replacement=True)),
            "data: DataLoader with a RandomSampler with replacement; batches",
        ),
        (
            DataLoader(TEN, sampler=RandomSampler(TEN, num_samples=25)),
            "RandomSampler of 25 indices of a data set of 10 examples; batches are sampled here, "
            "with equal rates; pass the data set itself, or a torch.utils.data.Subset of it",
        ),
        (DataLoader(TEN, sampler=SequentialSampler(range(4))), "a SequentialSampler of 4 indices"),
        (OwnBatches(TEN), "data: OwnBatches, which makes batches in its own __iter__; batches"),
        (DataLoader(TEN, batch_size=None, collate_fn=list), "with a collate_fn and batch_size No"),
        (DataLoader(Subset(TEN, [1, 1])), "data: an example appears twice"),
    ],
)
def test_data_loader_unsupported_rejected(loader, message: str, train) -> None:
    with pytest.raises(OsoError) as error:
        train(data=loader)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 7, "drop_last": True},
        {"shuffle": True},
        {"sampler": SequentialSampler(TEN)},
        {"batch_sampler": BatchSampler(RandomSampler(TEN), 3, True)},
        {"batch_size": None},
    ],
)
def test_data_loader_whole_dataset_accepted(options) -> None:
    assert len(make_examples(DataLoader(TEN, **options), CPU)) == 10


def test_data_loader_two_pairs_give_examples() -> None:
    """Two pairs in a loader are two examples; without a loader, a pair is inputs and targets."""
    examples = make_examples(DataLoader([(torch.ones(3), 1), (torch.zeros(3), 0)]), CPU)
    inputs, targets, _ = examples.batch(torch.tensor([[1, 0]]))
    assert inputs.tolist() == [[[0, 0, 0], [1, 1, 1]]]
    assert targets.tolist() == [[0, 1]]


WORDS = [torch.arange(1, 1 + length) for length in (3, 1, 4, 2)]


def pad(examples) -> dict[str, torch.Tensor]:
    """To the longest, as collators do by default, and to 6."""
    assert len(examples) == 1
    (words, label), width = examples[0], 6
    ids = torch.zeros(1, width, dtype=torch.int64)
    ids[0, : len(words)] = words
    return {"ids": ids, "mask": ids > 0, "labels": torch.tensor([label])}


@pytest.mark.parametrize("workers", [0, 2])
def test_collate_fn_gets_one_example(workers: int, open_files) -> None:
    loader = DataLoader(
        Pairs(zip(WORDS, range(4), strict=True)), 3, collate_fn=pad, num_workers=workers
    )
    examples = make_examples(loader, CPU)
    inputs, targets, absent = examples.batch(torch.tensor([[2, 0, 2], [1, 3, 3]]))
    examples.fetch.close()
    assert targets.tolist() == [[2, 0, 2], [1, 3, 3]]
    assert inputs["ids"][0, 0].tolist() == [1, 2, 3, 4, 0, 0]
    assert inputs["mask"].dtype == torch.bool
    assert torch.equal(inputs["mask"], inputs["ids"] > 0)
    assert not absent.any()


def as_pair(examples):
    made = pad(examples)
    return {"ids": made["ids"], "mask": made["mask"]}, [made["labels"].item()]


def test_collate_fn_pair_accepted() -> None:
    loader = DataLoader(Pairs(zip(WORDS, range(4), strict=True)), collate_fn=as_pair)
    inputs, targets, _ = make_examples(loader, CPU).batch(torch.tensor([[3, 1]]))
    assert inputs["ids"].shape == (1, 2, 6)
    assert targets.tolist() == [[3, 1]]


@pytest.mark.parametrize(
    ("collate", "message"),
    [
        (lambda found: found[0], "collate_fn returns inputs [6] for one example; must be [1, ...]"),
        (
            lambda found: (torch.ones(2, 6), torch.ones(1)),
            "collate_fn returns inputs [2, 6] for one example",
        ),
        (
            lambda found: (torch.ones(1, 6), 0),
            "collate_fn returns targets [] for one example",
        ),
        (lambda found: found[1], "data: has no example at index 0 (IndexError: list index out"),
        (lambda found: torch.ones(1, 6), "data: example of type Tensor; must be a pair"),
    ],
)
def test_collate_fn_invalid_result_rejected(collate, message: str) -> None:
    with pytest.raises(OsoError) as error:
        make_examples(DataLoader(TEN, collate_fn=collate), CPU)
    assert message in str(error.value)


def unpadded(examples):
    ((words, label),) = examples
    return {"ids": words[None], "labels": torch.tensor([label])}


@pytest.mark.parametrize("workers", [0, 1])
def test_data_loader_unequal_lengths_rejected_early(workers, train, monkeypatch) -> None:
    def step(self) -> None:
        raise AssertionError("a step was taken")

    monkeypatch.setattr(Training, "take_step", step)
    loader = DataLoader(
        Pairs(zip(WORDS, range(4), strict=True)), collate_fn=unpadded, num_workers=workers
    )
    with pytest.raises(OsoError) as error:
        train(data=loader, batch_size=2)
    assert str(error.value) == (
        "data: examples of different shapes: inputs['ids'] [3] and [1]; all must have one shape: "
        "pad to a fixed length in the data set or in collate_fn, as "
        'tokenizer(padding="max_length") does'
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_later_length_mismatch_raises(workers, train, pairs, open_files) -> None:
    pairs.examples[300] = (torch.zeros(5), 1)
    with pytest.raises(OsoError, match=r"^data: examples of different shapes: inputs \[6\]"):
        train(data=DataLoader(pairs, num_workers=workers), **SEEDED)


def test_data_loader_nan_example_counted_absent(train, pairs) -> None:
    pairs.examples[7] = (pairs.examples[7][0] * torch.nan, 1)
    made = [train(data=DataLoader(pairs, num_workers=workers), **SEEDED) for workers in (0, 2)]
    assert torch.equal(flat(made[0]), flat(made[1]))
    assert flat(made[0]).isfinite().all()


class Noisy(TensorDataset):
    """Changes what its tensors hold."""

    def __getitem__(self, index: int):
        inputs, targets = super().__getitem__(index)
        return inputs + 1, targets


def test_make_examples_tensor_dataset_subclass_indexed(data) -> None:
    inputs, _, _ = make_examples(Noisy(*data), CPU).batch(torch.tensor([[5]]))
    assert torch.equal(inputs[0, 0], data[0][5] + 1)


def test_data_loader_several_inputs_trained(train) -> None:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 4)

        def forward(self, ids, mask):
            return self.head((self.table(ids) * mask[..., None]).sum(dim=1))

    examples = [(WORDS[index % 4], index % 4) for index in range(400)]
    loader = DataLoader(Pairs(examples), collate_fn=pad, num_workers=2)
    made = train(model=Bag(), data=loader, **SEEDED)
    assert made.status == "finished"
    assert "inputs['ids'] int64 [6], inputs['mask'] bool [6]" in made.statement.types


class Drawing(Pairs):
    """Adds a random number of each kind to an example, as a random crop does."""

    def __getitem__(self, index: int):
        inputs, target = super().__getitem__(index)
        drawn = torch.tensor([random.random(), np.random.random(), torch.rand(()).item()])
        return torch.cat([inputs, drawn]), target


def seed_all(seed: int = 0) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def states() -> tuple:
    return torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()


@pytest.mark.parametrize("workers", [0, 2])
def test_make_examples_private_draws_unknown(workers: int, pairs, open_files) -> None:
    """What an example draws does not depend on a seed that is known, or on those before it."""
    drawn = []
    for _ in range(2):
        seed_all()
        before = states()
        loader = DataLoader(
            Drawing(pairs), num_workers=workers, generator=torch.Generator().manual_seed(0)
        )
        examples = make_examples(loader, CPU)
        for size in (3, 5, 3):
            inputs, _, _ = examples.batch(torch.arange(size)[None])
            drawn += inputs[0, :, -3:].tolist()
        assert states() == before  # it would tell the sizes of the batches
        examples.fetch.close()
    kinds = list(zip(*drawn, strict=True))
    assert all(len({*kind}) == 22 for kind in kinds)


def test_train_private_leaves_generators(pairs, train, search) -> None:
    """Their states would tell the sizes of batches, and with random stopping how many trainings."""
    network, data = nn.Linear(9, 4), Drawing(pairs)
    before = states()
    train(model=network, data=data, epochs=1)
    search({"learning_rate": [0.3]}, model=network, data=data, validation=data, epochs=1)
    assert states() == before


def test_make_examples_public_draws_repeated(pairs, train) -> None:
    drawn, trained = [], []
    for _ in range(2):
        seed_all()
        inputs, _, _ = make_examples(Drawing(pairs), CPU, is_public=True).batch(torch.tensor([[3]]))
        drawn.append(inputs)
        seed_all()
        network = nn.Linear(9, 4)
        trained.append(train(model=network, data=Drawing(pairs), **SEEDED))
        assert not torch.equal(flat(trained[-1]), flat(train(model=network, data=Drawing(pairs))))
    assert torch.equal(*drawn)
    assert torch.equal(*map(flat, trained))


class Noting(Pairs):
    """Writes each index that is fetched to a file."""

    def __init__(self, examples, path) -> None:
        super().__init__(examples)
        self.path = path

    def __getitem__(self, index: int):
        with self.path.open("a") as file:
            file.write(f"{index}\n")
        return super().__getitem__(index)

    def fetched(self) -> list[int]:
        return [int(line) for line in self.path.read_text().split()]


def test_prefetch_next_batch_fetched_once(pairs, tmp_path, open_files) -> None:
    data = Noting(pairs, tmp_path / "fetched")
    examples = make_examples(DataLoader(data, num_workers=2), CPU)
    first, second, other = (torch.tensor([[*numbers]]) for numbers in ((3, 5, 5), (7, 8), (9,)))
    examples.prefetch(first)
    deadline = time.monotonic() + 60
    while len(data.fetched()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for indices in (first, second, other):
        # As in a step: the next batch is asked for before this one is fetched.
        examples.prefetch(second if indices is first else other)
        inputs, targets, absent = examples.batch(indices)
        expected = [pairs[index] for index in indices[0].tolist()]
        assert torch.equal(inputs[0], torch.stack([one for one, _ in expected]))
        assert targets[0].tolist() == [int(target) for _, target in expected]
        assert not absent.any()
    # Each once; what is fetched ahead of the last is never asked for.
    assert sorted(data.fetched()[:6]) == [0, 3, 5, 7, 8, 9]
    examples.fetch.close()
    del examples, inputs, targets, absent
    assert open_files() <= 0


def test_prefetch_error_delayed_to_step(train, pairs) -> None:
    """An error in the next batch waits until the current step is released, as without workers."""
    made = []
    for workers in (0, 2):
        loader = DataLoader(Local(pairs, KeyError("row", 7)), num_workers=workers)
        with pytest.raises(KeyError) as error:
            train(data=loader, **{**SEEDED, "batch_size": 20, "epochs": 5})
        made.append(next(note for note in error.value.__notes__ if "were released" in note))
    assert made[0] == made[1]
