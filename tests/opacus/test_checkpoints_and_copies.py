"""No state, process or copy takes steps out of a ledger, or repeats noise or batches."""

import copy
import io
import os
import pickle
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tests.opacus.helpers import (
    QUIET,
    Made,
    examples,
    loader_of,
    make,
    network,
    parameters_of,
    refused,
)

FORKS = "ignore:This process"  # has threads, which the forked one does not use
pytestmark = [pytest.mark.filterwarnings(text) for text in (*QUIET, FORKS)]

TOLD = "this optimizer has released 3 steps, the state 2; released steps count towards epsilon"
FORGOTTEN = "accountant: this engine has released 3 steps since it was made or resumed, and the"


def trained(steps: int, mode: str = "hooks") -> Made:
    made = make(mode=mode)
    for _ in range(steps):
        made.step(*examples(count=7))
    return made


def saved(made: Made) -> io.BytesIO:
    file = io.BytesIO()
    made.engine.save_checkpoint(path=file, module=made.model, optimizer=made.optimizer)
    file.seek(0)
    return file


def load(made: Made, file: io.BytesIO) -> None:
    made.engine.load_checkpoint(path=file, module=made.model, optimizer=made.optimizer)


@pytest.mark.parametrize("by", ["optimizer", "engine"])
def test_optimizer_earlier_state_rejected(by: str, mode: str) -> None:
    made = trained(2, mode)
    state, file = made.optimizer.state_dict(), saved(made)
    made.step(*examples(count=7))
    before = parameters_of(made.optimizer)
    kept = made.optimizer.max_grad_norm, made.optimizer.learning_rate_factor
    run: dict[str, Callable[[], None]] = {
        "optimizer": lambda: made.optimizer.load_state_dict(state),
        "engine": lambda: load(made, file),
    }
    refused(lambda: run[by](), TOLD if by == "optimizer" else FORGOTTEN)
    assert torch.equal(before, parameters_of(made.optimizer))
    assert kept == (made.optimizer.max_grad_norm, made.optimizer.learning_rate_factor)
    assert made.optimizer.ledger.step_count == 3
    assert made.engine.accountant.history == [(1.0, 0.1, 3)]


@pytest.mark.parametrize("there", [1, 3])
def test_load_checkpoint_foreign_run_rejected(there: int) -> None:
    first, second = trained(3), trained(there)
    before = parameters_of(second.optimizer)
    refused(
        lambda: load(second, saved(first)),
        "has released 1 steps" if there == 1 else "the state of another run 3; re",
    )
    assert torch.equal(before, parameters_of(second.optimizer))
    assert second.optimizer.ledger.step_count == there
    assert second.engine.accountant.history == [(1.0, 0.1, there)]


def test_load_checkpoint_other_rate_rejected() -> None:
    other = make(loader=loader_of(*examples(), batch_size=20))
    refused(lambda: load(other, saved(trained(2))), "state_dict: sampling rate 0.1; must be 0.16")
    assert other.engine.accountant.history == []


def test_load_checkpoint_later_steps_counted() -> None:
    first, second = trained(3), trained(0)
    load(second, saved(first))
    second.step(*examples(count=7))
    first.step(*examples(count=7))
    refused(
        lambda: load(second, saved(first)), "has released 4 steps, the state of another run 4; re"
    )


def test_optimizer_foreign_state_after_own_rejected() -> None:
    made, other = trained(3), trained(5)
    made.optimizer.load_state_dict(made.optimizer.state_dict())
    refused(
        lambda: made.optimizer.load_state_dict(other.optimizer.state_dict()),
        "this optimizer has released 3 steps, the state of another run 5",
    )


@pytest.mark.parametrize("then", [0, 2])
def test_get_epsilon_noisier_accountant_rejected(then) -> None:
    """As many steps as the ledger's are not enough: each may have less noise than it has there."""
    made, other = trained(3), make(noise_multiplier=20.0)
    for _ in range(9):
        other.step(*examples(count=7))
    made.engine.accountant.history = other.engine.accountant.history
    for _ in range(then):
        made.step(*examples(count=7))
    steps = f"ledgers have {3 + then} steps, the accountant has {then} "
    refused(lambda: made.engine.get_epsilon(1e-5), steps)


@pytest.mark.parametrize("by_engine", [True, False])
def test_accountant_foreign_history_rejected(by_engine) -> None:
    """A state with more steps than this engine's would hide that it has released its own."""
    first, second = trained(5), trained(3)
    file, state = saved(first), first.engine.accountant.state_dict()

    def load_other() -> None:
        if by_engine:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that no optimizer is given
                second.engine.load_checkpoint(path=file, module=second.model)
        else:
            second.engine.accountant.load_state_dict(state)

    refused(load_other, FORGOTTEN)
    assert second.engine.accountant.history == [(1.0, 0.1, 3)]
    second.engine.accountant.load_state_dict(second.engine.accountant.state_dict())  # its own
    fresh = trained(0)
    fresh.engine.accountant.load_state_dict(state)
    fresh.step(*examples(count=7))
    assert fresh.engine.accountant.history == [(1.0, 0.1, 6)]


def test_get_epsilon_changing_noise_steps_compared() -> None:
    made = make()
    for noise in (1.0, 0.7, 2.0, 0.7):
        made.optimizer.noise_multiplier = noise
        made.step(*examples(count=7))
    assert made.engine.get_epsilon(1e-5) > 0
    made.engine.accountant.history = [(1.0, 0.1, 3), (2.0, 0.1, 1)]
    refused(lambda: made.engine.get_epsilon(1e-5), "ledgers have 2 steps, the accountant has 0 ")
    made.engine.accountant.history = [(0.7, 0.1, 2), (2.0, 0.1, 1)]
    refused(lambda: made.engine.get_epsilon(1e-5), "ledgers have 3 steps, the accountant has 2 ")


@pytest.mark.parametrize("state", [None, {}, {"oso_dp": None}, {"oso_dp": 3}])
def test_optimizer_malformed_state_rejected(state) -> None:
    refused(lambda: make().optimizer.load_state_dict(state), "state_dict: has no key 'oso_dp'")


def test_load_checkpoint_new_optimizer_restored() -> None:
    first, second = trained(3), trained(0)
    load(second, saved(trained(2)))
    file = saved(first)
    for _ in range(2):  # the same state again
        load(second, file)
        file.seek(0)
        assert second.optimizer.ledger == first.optimizer.ledger
        assert second.engine.accountant.history == first.engine.accountant.history
        assert torch.equal(parameters_of(first.optimizer), parameters_of(second.optimizer))
        second.optimizer.load_state_dict(second.optimizer.state_dict())


def test_load_checkpoint_from_path_restored(tmp_path) -> None:
    first, second = trained(3), trained(0)
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(saved(first).getvalue())
    second.engine.load_checkpoint(path=path, module=second.model, optimizer=second.optimizer)
    assert second.optimizer.ledger.step_count == 3
    with pytest.warns(UserWarning, match="optimizer is not provided"):
        second.engine.load_checkpoint(path=path, module=second.model)


def test_optimizer_rejected_state_keeps_momentum() -> None:
    def begun(steps: int) -> Made:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        made = make(model=model, optimizer=optimizer)
        for _ in range(steps):
            made.step(*examples(count=7))
        return made

    def momenta(made: Made) -> torch.Tensor:
        state = made.optimizer.original_optimizer.state
        return torch.cat([state[p]["momentum_buffer"].flatten() for p in made.optimizer.params])

    made, other = begun(3), begun(5)
    content, before = other.optimizer.state_dict(), momenta(made).clone()
    content["oso_dp"]["run"] = made.optimizer.state_dict()["oso_dp"]["run"]
    content["oso_dp"].pop("threshold")
    refused(lambda: made.optimizer.load_state_dict(content), "cannot be read")
    assert torch.equal(momenta(made), before)


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


def draw(made: Made) -> object:
    return next(iter(made.loader.batch_sampler))


def fetch(made: Made) -> object:
    return next(iter(made.loader))


def step(made: Made) -> object:
    return made.optimizer.step()


def sanitize(made: Made) -> object:
    return made.optimizer.pre_step()


def load_and_step(made: Made) -> object:
    made.optimizer.load_state_dict(made.optimizer.state_dict())
    return made.optimizer.step()


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("act", [draw, fetch, step, sanitize, load_and_step])
def test_check_process_after_fork_rejected(act, own) -> None:
    made = make(noise_generator=torch.Generator() if own else None)
    made.backward(*examples(count=5))
    what = "data_loader" if act in (draw, fetch) else "optimizer.step"
    assert by_fork(lambda: act(made)).startswith(f"OsoError: {what}: {FORKED}")
    made.optimizer.step()  # the parent goes on
    assert made.optimizer.ledger.step_count == 1


def test_model_hooks_copied_model_rejected(mode) -> None:
    made = make(mode=mode)
    made.step(*examples(count=5))
    other = copy.deepcopy(made.model)
    assert other.eval()(examples()[0]).shape == (len(examples()[0]), 3)
    refused(lambda: other.train()(examples()[0]), "^model: is a copy of the private model")


def save(value: Any) -> None:
    torch.save(value, io.BytesIO())


@pytest.mark.parametrize("by", [copy.deepcopy, copy.copy, pickle.dumps, save])
def test_make_private_results_copying_rejected(by, mode) -> None:
    made = make(mode=mode)
    made.step(*next(iter(made.loader)))
    alone = [made.optimizer, made.loader.batch_sampler]
    inside = [made.engine, made.loader, [made.criterion, made.optimizer]]
    if by is copy.copy:
        for thing in inside:
            by(thing)  # refers to the same optimizer, and the same batches
    for thing in alone if by is copy.copy else alone + inside:
        refused(partial(by, thing), r"(optimizer|data_loader): cannot be copied or pickled")
    for other in (made, make(mode=mode)):
        other.step(*next(iter(other.loader)))
    assert made.optimizer.ledger.step_count == 2
