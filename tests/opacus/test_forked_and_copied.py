"""No process and no copy draws noise or batches that another one draws."""

import copy
import io
import multiprocessing
import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.opacus.helpers import MODES, QUIET, Made, examples, make
from torch.utils.data import DataLoader, TensorDataset

from oso_dp.errors import OsoError

# The last: of torch's threads, which the forked process does not use.
pytestmark = [pytest.mark.filterwarnings(text) for text in (*QUIET, "ignore:This process")]
FORKED = "this process was forked after make_private and would repeat the noise and batches"


def said(run: Callable[[], object]) -> str:
    try:
        run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def by_fork(run: Callable[[], object]) -> str:
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writes, said(run).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writes)
    with open(reads, "rb") as pipe:
        return pipe.read().decode()


def by_multiprocessing(run: Callable[[], object]) -> str:
    context = multiprocessing.get_context("fork")
    reads, writes = context.Pipe(duplex=False)
    process = context.Process(target=lambda: writes.send(said(run)))
    process.start()
    process.join()
    return reads.recv()


def draw(made: Made) -> object:
    return next(iter(made.loader.batch_sampler))


def fetch(made: Made) -> object:
    return next(iter(made.loader))


def step(made: Made) -> object:
    return made.optimizer.step()


def load(made: Made) -> object:
    made.optimizer.load_state_dict(made.optimizer.state_dict())
    return made.optimizer.step()


@pytest.mark.parametrize("forked", [by_fork, by_multiprocessing])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("act", [draw, fetch, step, load])
def test_a_forked_process_repeats_nothing(act, own, forked) -> None:
    """With generators of the script's, too."""
    made = make(noise_generator=torch.Generator() if own else None)
    made.backward(*examples(count=5))
    what = "data_loader" if act in (draw, fetch) else "optimizer.step"
    assert forked(lambda: act(made)).startswith(f"OsoError: {what}: {FORKED}")
    made.optimizer.step()  # the parent goes on
    assert made.optimizer.ledger.step_count == 1


def test_a_worker_that_fetches_may_be_forked() -> None:
    loader = DataLoader(
        TensorDataset(*examples()), 12, num_workers=1, multiprocessing_context="fork"
    )
    made = make(loader=loader)
    for batch in made.loader:
        made.step(*batch)
    assert made.optimizer.ledger.step_count == 10


def save(value: Any) -> None:
    torch.save(value, io.BytesIO())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by", [copy.deepcopy, copy.copy, pickle.dumps, save])
@pytest.mark.parametrize("what", ["optimizer", "batches", "engine", "loader", "in a list"])
def test_a_copy_is_refused_and_breaks_nothing(what, by, mode) -> None:
    made = make(mode=mode)
    made.step(*next(iter(made.loader)))
    things = {
        "optimizer": made.optimizer,
        "batches": made.loader.batch_sampler,
        "engine": made.engine,
        "loader": made.loader,
        "in a list": [made.criterion, made.optimizer],
    }
    thing = things[what]
    if by is copy.copy and what in ("engine", "loader", "in a list"):
        by(thing)  # refers to the same optimizer, and the same batches
    else:
        with pytest.raises(
            OsoError, match=r"(optimizer|data_loader): cannot be copied or pickled"
        ) as raised:
            by(thing)
        assert "\n" not in str(raised.value)
    for other in (made, make(mode=mode)):
        other.step(*next(iter(other.loader)))
    assert made.optimizer.ledger.step_count == 2


def test_a_state_is_no_copy() -> None:
    made, other = make(), make()
    made.step(*next(iter(made.loader)))
    other.optimizer.load_state_dict(pickle.loads(pickle.dumps(made.optimizer.state_dict())))
    copy.deepcopy(made.optimizer.state_dict())
    assert other.optimizer.ledger == made.optimizer.ledger
