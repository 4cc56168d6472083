"""The training loop: R runs of one cohort, side by side, until each has finished or diverged.

What the loop sees of the training data, it sees through the mechanism; divergence is judged by the
parameters and the test loss, never by the training loss, which is private.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from oso_dp.data.arrays import Arrays
from oso_dp.errors import Interrupted, OsoError
from oso_dp.gradients import (
    BatchGradients,
    GradientCode,
    check_independence,
    find_precision,
    slow_reason,
)
from oso_dp.methods import Method, State
from oso_dp.models import build_model
from oso_dp.models.losses import training_loss
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ThresholdQuery
from oso_dp.privacy.streams import source, stream
from oso_dp.study.cohort import Run
from oso_dp.training.checkpoint import load_checkpoint, save_checkpoint, set_aside_if_damaged
from oso_dp.training.evaluate import Evaluator

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers

_log = logging.getLogger(__name__)

KEEPING: Final = 0.01  # of the time: how much checkpoints may take
Watch = Callable[[State, "Answers"], None]


@dataclass(frozen=True)
class Task:
    """What all runs of one call share."""

    method: Method
    model: str
    metric: str
    noise_multiplier: float  # nu of one step; 0 for methods without privacy
    batch_size: int  # expected
    steps: int
    evaluate_every: int
    last_layer_nonlinearity: bool = False
    loss: str = "mean"  # over the pixels of an image: mean or sum
    device: str = "cpu"
    randomness: str = "seeded"  # of batches and noise: see oso_dp.privacy.streams
    precision: str = "float32"  # of products: see oso_dp.gradients.precision
    width: int | None = None  # runs that go through the model together; None: as suits the device


@dataclass
class Outcome:
    """What came out of one run."""

    run_id: str
    status: str = "running"  # then finished or diverged
    diverged_at: int | None = None
    ledger: str = ""
    wall_seconds: float = 0.0
    evaluations: list[dict[str, Any]] = field(default_factory=list)


def train(
    task: Task,
    runs: Sequence[Run],
    arrays: Arrays,
    *,
    checkpoint: Path | None = None,
    fingerprint: str = "",
    on_progress: Callable[[int], None] = lambda step: None,
    watch: Watch = lambda state, answers: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Outcome]:
    """Train the runs; one outcome each, in the order of `runs`.

    With `checkpoint`, the state is kept there at each evaluation, unless that took more than a
    share of the time (`KEEPING`), and where `on_progress` raises Interrupted; a call after that, or
    a kill, goes on from it if its `fingerprint` is the same.
    `watch` sees all that leaves the data: each step's sanitized answers (as `Method.update` gets
    them) with the state in which they were asked for. It may change neither. `clock`: in seconds,
    what a run's time is measured by.
    """
    training = Training(task, runs, arrays, watch)
    if checkpoint is not None:
        if not fingerprint:
            raise ValueError("a checkpoint needs a fingerprint, or anything would be resumed")
        with set_aside_if_damaged(checkpoint):
            training.restore(load_checkpoint(checkpoint, fingerprint))
    began = clock()

    kept, took = -math.inf, 0.0  # when the last checkpoint was done, and its seconds

    def keep(always: bool) -> None:
        nonlocal began, kept, took
        now = clock()
        training.add_seconds(now - began)
        began = now
        started = time.perf_counter()
        if checkpoint is not None and (always or took <= KEEPING * (started - kept)):
            save_checkpoint(checkpoint, fingerprint, training.content())
            kept = time.perf_counter()
            took = kept - started

    while training.alive and training.state.step < task.steps:
        training.take_step()
        if training.state.step % task.evaluate_every == 0 or training.state.step == task.steps:
            training.evaluate()
            keep(always=False)
        try:
            on_progress(training.state.step)
        except Interrupted:
            keep(always=True)
            raise
    training.add_seconds(clock() - began)
    training.end(range(len(training.alive)), "finished")
    return training.outcomes


class Training:
    """The state of one call of `train`. `alive` maps the run axis to `outcomes`."""

    def __init__(
        self,
        task: Task,
        runs: Sequence[Run],
        arrays: Arrays,
        watch: Watch = lambda state, answers: None,
    ) -> None:
        self.task = task
        self.watch = watch
        device = torch.device(task.device)
        precision = find_precision(task.precision, device)
        if reason := slow_reason(precision, device):
            _say_once(reason)
        model = build_model(task.model, task.last_layer_nonlinearity)
        loss = training_loss(task.metric, task.loss)
        self.code = GradientCode(model, loss, precision)
        self.inputs, self.targets = examples_on_device(
            arrays.train_inputs, arrays.train_targets, task.metric, device
        )
        test = examples_on_device(arrays.test_inputs, arrays.test_targets, task.metric, device)
        self.evaluator = Evaluator(self.code, *test, task.metric)
        self.mechanism = Mechanism(
            [run.run_id for run in runs],
            len(self.inputs),
            task.batch_size,
            task.noise_multiplier,
            source(task.randomness),
            device,
        )
        self.state = State(
            parameters=torch.stack([initial_parameters(task, run.seed) for run in runs]).to(device),
            learning_rate=torch.tensor([run.learning_rate for run in runs], device=device),
            threshold=_column([run.threshold for run in runs], device),
            quantile=_column([run.quantile for run in runs], device),
            noise_multiplier=task.noise_multiplier,
            batch_size=task.batch_size,
            layers=dict(self.code.layer_sizes),
        )
        _check_thresholds(task.method, self.state)
        # Of the model's structure, so without the rounding of a low precision.
        first = self.state.parameters[0].double()
        check_independence(GradientCode(model, loss), first, self.inputs[:0], self.targets[:0])
        self.outcomes = [Outcome(run.run_id) for run in runs]
        self.alive = list(range(len(runs)))

    def take_step(self) -> None:
        state, task = self.state, self.task
        state.step += 1
        queries = task.method.queries(state)
        released = [
            self.mechanism.release(runs, state.step, queries, partial(self._gradients, runs))
            for runs in self._together()
        ]
        answers = released[0]
        if len(released) > 1:
            answers = {key: torch.cat([part[key] for part in released]) for key in answers}
        self.watch(state, answers)
        task.method.update(state, answers)
        self._drop_diverged(finite(state.parameters))

    def _together(self) -> list[slice]:
        """Which runs go through the model at the same time; the result does not depend on it."""
        width = self.task.width or self._usual_width()
        return [slice(at, at + width) for at in range(0, len(self.alive), width)]

    def _usual_width(self) -> int:
        """Measured: on a CPU only small layers gain from company, 15 %."""
        if self.inputs.device.type != "cpu":
            return len(self.alive)
        return 8 if all(type(layer) is nn.Linear for layer in self.code.layers.values()) else 1

    def _gradients(self, runs: slice, batches: Tensor) -> BatchGradients:
        inputs, targets = rows_of(self.inputs, batches), rows_of(self.targets, batches)
        return self.code(self.state.parameters[runs], inputs, targets)

    def evaluate(self) -> None:
        state, task = self.state, self.task
        clipped = task.method.fraction_clipped(state)
        usable = torch.ones(len(self.alive), dtype=torch.bool)
        for run, position in enumerate(self.alive):
            scores = self.evaluator(state.parameters[run])
            usable[run] = torch.tensor([score.loss for score in scores]).isfinite().all()
            if not usable[run]:
                continue
            shared = {
                "step": state.step,
                "metric": task.metric,
                "threshold": _or_none(state.threshold[run].item()),
                "learning_rate": _or_none(state.learning_rate[run].item()),
                "fraction_clipped": None if clipped is None else _or_none(clipped[run].item()),
            }
            outcome = self.outcomes[position]
            outcome.evaluations += [
                {"run_id": outcome.run_id, **shared, **vars(score)} for score in scores
            ]
        self._drop_diverged(usable)

    def _drop_diverged(self, usable: Tensor) -> None:
        if usable.all():
            return
        self.end((~usable).nonzero().flatten().tolist(), "diverged")
        kept = usable.nonzero().flatten()
        self.state.keep(kept)
        self.mechanism.keep(kept.tolist())
        self.alive = [self.alive[run] for run in kept.tolist()]

    def end(self, runs: Sequence[int], status: str) -> None:
        for run in runs:
            outcome = self.outcomes[self.alive[run]]
            outcome.status = status
            outcome.diverged_at = self.state.step if status == "diverged" else None
            outcome.ledger = self.mechanism.ledgers[run].to_json()

    def add_seconds(self, seconds: float) -> None:
        """The runs share the device: each is charged its part of the time."""
        for position in self.alive:
            self.outcomes[position].wall_seconds += seconds / len(self.alive)

    def content(self) -> dict[str, Any]:
        return {
            "state": {name: value for name, value in vars(self.state).items()},
            "ledgers": [ledger.to_json() for ledger in self.mechanism.ledgers],
            "outcomes": [dict(vars(outcome)) for outcome in self.outcomes],
            "alive": self.alive,
        }

    def restore(self, content: dict[str, Any] | None) -> None:
        if content is None:
            return
        state, alive = State(**content["state"]), list(content["alive"])
        outcomes = [Outcome(**outcome) for outcome in content["outcomes"]]
        if [one.run_id for one in outcomes] != [one.run_id for one in self.outcomes]:
            raise ValueError("its runs are not of this job")
        if alive != [run for run in self.alive if run in alive]:
            raise ValueError("its living runs are not of this job")
        _check_alike(state, self.state, len(alive))
        ledgers = [Ledger.from_json(text) for text in content["ledgers"]]
        if [ledger.step_count for ledger in ledgers] != [state.step] * len(alive):
            raise ValueError("its ledgers are not of its step")
        # From here on nothing fails: a checkpoint is taken whole, or not at all.
        self.state, self.outcomes, self.alive = state, outcomes, alive
        self.mechanism.keep(self.alive)
        self.mechanism.resume(ledgers, self.state.step)


def _check_alike(state: State, fresh: State, runs: int) -> None:
    """ValueError unless so many runs can go on from a state that was read."""
    for name, value in vars(fresh).items():
        other = getattr(state, name)
        if isinstance(value, Tensor):
            first = value[:1].expand(runs, *value.shape[1:])
            same = isinstance(other, Tensor) and _form(other) == _form(first)
        elif name == "memory":
            same = all(len(one) == runs for one in other.values())
        else:
            same = other == value or (name == "step" and type(other) is int and other > 0)
        if not same:
            raise ValueError(f"its {name} is not of this job")


def _form(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.device


def _check_thresholds(method: Method, state: State) -> None:
    clips = any(isinstance(query, ThresholdQuery) for query in method.queries(state))
    if clips and state.threshold.isnan().any():
        raise OsoError(
            f"{method.name}: clips at a threshold, but a run begins without one; the method's "
            "`search` or `starting_point` must give it"
        )


@cache
def _say_once(text: str) -> None:
    _log.warning(text)


def initial_parameters(task: Task, seed: int) -> Tensor:
    """Fresh weights [P] that depend on the model and the seed only.

    All methods start a seed from the same weights, so that they are compared like with like.
    """
    number = int(stream(f"seed {seed}", f"weights of {task.model}", 0).integers(2**32))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number)
        model = build_model(task.model, task.last_layer_nonlinearity)
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def examples_on_device(
    inputs: np.ndarray, targets: np.ndarray, metric: str, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Inputs and targets; an autoencoder's targets are its inputs, whatever the labels say."""
    images = torch.from_numpy(inputs).to(device)
    return images, images if metric == "mse" else torch.from_numpy(targets).to(device)


def rows_of(values: Tensor, indices: Tensor) -> Tensor:
    """values[indices], in half the time: [n, ...] and [R, B] to [R, B, ...]."""
    return values.index_select(0, indices.flatten()).unflatten(0, indices.shape)


def finite(parameters: Tensor) -> Tensor:
    """Which runs have finite parameters only, [R, P] to [R].

    A sum tells it at a tenth of the time, unless it overflows itself; then each is looked at.
    """
    whole = parameters.sum(dim=1).isfinite()
    return whole if whole.all() else parameters.isfinite().all(dim=1)


def _column(values: Sequence[float | None], device: torch.device) -> Tensor:
    """[R], NaN for None."""
    return torch.tensor([math.nan if value is None else value for value in values], device=device)


def _or_none(value: float) -> float | None:
    """NaN and infinities are no value that results hold."""
    return value if math.isfinite(value) else None
