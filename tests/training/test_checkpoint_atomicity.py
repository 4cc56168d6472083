"""A checkpoint is taken whole, or not at all: what is wrong in one part of it leaves all as it was.

Half of one would be the worst of both: parameters of later steps, and books that begin anew.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from oso_dp.privacy.ledger import Ledger
from oso_dp.training.loop import Training, study_training

STEPS, RUNS = 3, 3
Content = dict[str, Any]


def fewer_steps(text: str) -> str:
    ledger = Ledger.from_json(text)
    queries, count = ledger.steps.pop()
    ledger.steps += [(queries, count - 1)] if count > 1 else []
    return ledger.to_json()


SPOILT: dict[str, Callable[[Content], Any]] = {
    "a ledger is missing": lambda c: c["ledgers"].pop(),
    "there are no ledgers": lambda c: c["ledgers"].clear(),
    "a ledger stands there twice": lambda c: c["ledgers"].append(c["ledgers"][0]),
    "the first ledger lacks a step": lambda c: c["ledgers"].insert(
        0, fewer_steps(c["ledgers"].pop(0))
    ),
    "the last ledger lacks a step": lambda c: c["ledgers"].append(fewer_steps(c["ledgers"].pop())),
    "runs are in another order": lambda c: c["alive"].reverse(),
    "a living run is missing": lambda c: c["alive"].pop(),
    "a run lives twice": lambda c: c["alive"].append(0),
    "nobody lives": lambda c: c["alive"].clear(),
    "outcomes are in another order": lambda c: c["outcomes"].reverse(),
    "an outcome is missing": lambda c: c["outcomes"].pop(),
    "a run has ended": lambda c: c["outcomes"][1].update(status="finished"),
    "it is a step further": lambda c: c["state"].update(step=STEPS + 1),
}


def everything(training: Training) -> Content:
    return copy.deepcopy(training.content())


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("method", ["online", "auto_dog"])
def test_what_is_wrong_somewhere_is_taken_nowhere(method, how, arrays, make_task, make_run) -> None:
    def begin() -> Training:
        runs = [make_run(f"run {number}") for number in range(RUNS)]
        return study_training(make_task(method, steps=9, evaluate_every=9), runs, arrays)

    before = begin()
    for _ in range(STEPS):
        before.take_step()
    content, training, untouched = everything(before), begin(), begin()
    SPOILT[how](content)
    with pytest.raises(ValueError, match=r"\w"):
        training.restore(content)
    one, other = everything(training), everything(untouched)
    assert repr(one) == repr(other)
    assert training.mechanism.run_ids == untouched.mechanism.run_ids
    for each in (training, untouched):  # and it begins anew as if there had been no checkpoint
        each.take_step()
    assert torch.equal(training.state.parameters, untouched.state.parameters)
    assert [ledger.step_count for ledger in training.mechanism.ledgers] == [1] * RUNS
