"""The competitors, each in a process of its own, and their turns."""

import copy
import multiprocessing
import threading
import time
import warnings
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch
from case import Case
from cases import CASES
from competitor import ExampleLoss, Setting
from memory import held_bytes, peak_bytes
from opacus.validators import ModuleValidator
from opacus_peer import make_private

import oso_dp
from oso_dp.training.loop import Training

_PATIENCE = 300.0  # seconds for one turn
_REHEARSAL = 8  # examples of a batch
_STEPS = 4000  # that noise is calibrated for; never reached


class _EndedError(Exception):
    """No turn is left."""


class Pace:
    """Lets steps happen when it is their turn, and times them."""

    def __init__(self, line: Connection) -> None:
        self.line = line
        self.seconds: list[float] = []
        self.until = 0.0  # of the turn

    def step(self, take: Any) -> None:
        """Take one step in a turn, whose first is not counted; `_EndedError` after the last."""
        if time.perf_counter() >= self.until:
            self.line.send(self.seconds)
            asked = self.line.recv()
            if asked is None:
                raise _EndedError
            self.seconds = []
            take()
            self.until = time.perf_counter() + asked
        began = time.process_time()
        take()
        self.seconds.append(time.process_time() - began)


def run_peer(case: Case, mode: str, pace: Pace) -> None:
    """Plain SGD, or Opacus in this mode, until the last turn."""
    model: Any = copy.deepcopy(case.model)
    criterion: Any = ExampleLoss(case.loss)
    if mode:
        model = ModuleValidator.fix(model.train())  # as its messages tell people to do
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer: Any = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
    if mode:
        setting = Setting("", "", batch_size=case.batch_size)
        batch = torch.arange(case.batch_size), torch.arange(case.batch_size)
        model, optimizer, criterion = make_private(
            model, optimizer, criterion, batch, setting, mode
        )
    args, kwargs, targets = case.first(case.batch_size)

    def take() -> None:
        optimizer.zero_grad()
        criterion(model(*args, **kwargs), targets).backward()
        optimizer.step()

    while True:
        pace.step(take)


def run_private(case: Case, method: str, randomness: str, pace: Pace) -> None:
    """`train_private`, whose steps wait for their turns."""
    take_step = Training.take_step
    Training.take_step = lambda training: pace.step(lambda: take_step(training))  # type: ignore
    try:
        oso_dp.train_private(
            case.model,
            case.loss,
            (case.inputs, case.targets),
            epsilon=8,
            delta=1e-5,
            epochs=_STEPS * case.batch_size / len(case.targets),
            batch_size=case.batch_size,
            method=method,
            learning_rate=0.1,
            randomness=randomness,
            progress=False,
            **({"threshold": 1.0} if method == "fixed_threshold" else {}),
            **({"seed": 1} if randomness == "seeded" else {}),
            **case.options,
        )
    finally:
        Training.take_step = take_step  # type: ignore[method-assign]


COMPETITORS: dict[str, Any] = {
    "sgd": (run_peer, ""),
    "opacus_hooks": (run_peer, "hooks"),
    "opacus_ghost": (run_peer, "ghost"),
    "fixed_threshold": (run_private, "fixed_threshold", "system"),
    "online": (run_private, "online", "system"),
    "online_seeded": (run_private, "online", "seeded"),
}


class _Rehearsal:
    """In the place of a line: one turn, and no more."""

    def __init__(self) -> None:
        self.turns: list[float | None] = [0.0, None]

    def send(self, seconds: list[float]) -> None: ...

    def recv(self) -> float | None:
        return self.turns.pop(0)


def work(line: Connection, case_name: str, name: str) -> None:
    """A competitor's process."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the same for all: Opacus of its noise, torch of its hooks
    torch.manual_seed(0)
    case = CASES[case_name]()
    run, *how = COMPETITORS[name]
    few: Any = Case(case.model, case.inputs, case.targets, case.loss, _REHEARSAL, case.options)
    try:
        for one, pace in ((few, Pace(_Rehearsal())), (case, Pace(line))):  # type: ignore[arg-type]
            before = held_bytes("cpu")  # what a step loads the first time is not its memory
            try:
                run(one, *how, pace)
            except _EndedError:
                continue
        line.send(peak_bytes("cpu") - before)
    except Exception as error:  # what a model or a library raises is this competitor's row
        line.send(f"{type(error).__name__}: {' '.join(str(error).split())}"[:300])


@dataclass
class Measured:
    """Of one competitor: CPU seconds of its steps, or why there are none."""

    seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    reason: str = ""


def take_turns(case: str, names: list[str], turns: int, seconds: float) -> dict[str, Measured]:
    """Each competitor's steps in so many turns of about so many seconds."""
    context = multiprocessing.get_context("spawn")
    lines, processes = {}, {}
    found = {name: Measured() for name in names}
    for name in names:
        lines[name], there = context.Pipe()
        processes[name] = context.Process(target=work, args=(there, case, name))
        processes[name].start()
        there.close()  # else the reader never sees the end of file
        _receive(lines[name], processes[name], found[name])  # ready
    for turn in range(turns):
        for name in names if turn % 2 == 0 else reversed(names):  # alternate the order
            if not found[name].reason:
                lines[name].send(seconds)
                _receive(lines[name], processes[name], found[name])
    for name in names:
        if not found[name].reason:
            lines[name].send(None)
            _receive(lines[name], processes[name], found[name])
        processes[name].join()
    return found


def _receive(line: Connection, process: Any, measured: Measured) -> None:
    """What a process says next: seconds of a turn, at the end its peak, or why it failed."""
    timer = threading.Timer(_PATIENCE, process.kill)
    timer.start()
    try:
        said = line.recv()
    except EOFError:
        said = f"its process ended, or took more than {_PATIENCE:.0f} s"
    finally:
        timer.cancel()
    if isinstance(said, str):
        measured.reason = said
    elif isinstance(said, int):
        measured.peak_bytes = said
    else:
        measured.seconds += said
