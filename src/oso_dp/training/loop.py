"""The training loop: R runs of a cohort in parallel, until each has finished or diverged.

The loop accesses the training data through the mechanism only. Divergence is detected from the
parameters and the test loss, never from the training loss, which is private.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from oso_dp.checkpoint import load_checkpoint, quarantine_if_corrupt, save_checkpoint
from oso_dp.data.arrays import Arrays
from oso_dp.errors import InterruptedByUser, OsoError, warn_once
from oso_dp.gradients import check_model, explain_slow
from oso_dp.gradients.layer_gradients import is_async_device
from oso_dp.gradients.random_numbers import seeded
from oso_dp.methods import Method, State
from oso_dp.methods.base import checked_queries
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.noise_range import check_range
from oso_dp.privacy.queries import Query, ThresholdQuery
from oso_dp.privacy.rng_sources import get_source
from oso_dp.study.cohort import Run
from oso_dp.training.augmentation import check_augment, make_views
from oso_dp.training.evaluate import Outcome
from oso_dp.training.schedule_and_averaging import rate_factor, update_average
from oso_dp.training.study_problem import make_problem
from oso_dp.training.task import StudyTask, TrainConfig, TrainingProblem
from oso_dp.training.user_updates import check_user_level, make_updates, users_at_once

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers, Key, Runs
    from oso_dp.privacy.unnoised_sums import PerExampleGradients

_log = logging.getLogger(__name__)

CHECKPOINT_TIME_FRACTION: Final = 0.01  # maximum fraction of time for checkpoints
StepCallback = Callable[[State, "Answers"], None]


def train(
    task: StudyTask,
    runs: Sequence[Run],
    arrays: Arrays,
    *,
    checkpoint: Path | None = None,
    fingerprint: str = "",
    on_progress: Callable[[int], None] = lambda step: None,
    watch: StepCallback = lambda state, answers: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Outcome]:
    """Train the runs.

    Args:
        task: What and how to train.
        runs: The runs.
        arrays: The data.
        checkpoint: File for the state. It is written at evaluations, within a fraction of the time
            (`CHECKPOINT_TIME_FRACTION`), and when `on_progress` raises `InterruptedByUser`. A later
            call resumes from it if its `fingerprint` is the same.
        fingerprint: Identifies runs, code, data and noise; required with `checkpoint`.
        on_progress: Called with the number of each step.
        watch: Called with each step's state and sanitized answers (as `Method.update`), which are
            everything that depends on the data; must change neither.
        clock: Measures the runs' time, in seconds.

    Returns:
        The outcomes, in the order of `runs`.
    """
    training = study_training(task, runs, arrays, watch)
    if checkpoint is not None:
        if not fingerprint:
            raise ValueError("fingerprint: must be set with checkpoint")
        with quarantine_if_corrupt(checkpoint):
            training.restore(load_checkpoint(checkpoint, fingerprint))
    return advance(
        training,
        checkpoint=checkpoint,
        fingerprint=fingerprint,
        on_progress=on_progress,
        clock=clock,
    )


def advance(
    training: "Training",
    *,
    checkpoint: Path | None = None,
    fingerprint: str = "",
    save_every: int | None = None,
    on_progress: Callable[[int], None] = lambda step: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Outcome]:
    """Train from the present state; see `train`.

    save_every: steps between two checkpoints, instead of at evaluations. A checkpoint is then also
        written before each evaluation, so that no evaluated step runs twice, and after the last
        step. If the restored step is due for evaluation, it is evaluated first.
    """
    task = training.task
    began = clock()

    saved_at, save_seconds = -math.inf, 0.0  # end and duration of the last checkpoint

    def charge(runs: Sequence[int]) -> None:
        nonlocal began
        now = clock()
        training.add_seconds(now - began, runs)
        began = now

    def save(always: bool) -> None:
        nonlocal saved_at, save_seconds
        charge(training.alive)
        started = time.perf_counter()
        if checkpoint is not None and (
            always or save_seconds <= CHECKPOINT_TIME_FRACTION * (started - saved_at)
        ):
            save_checkpoint(checkpoint, fingerprint, training.content())
            saved_at = time.perf_counter()
            save_seconds = saved_at - started

    def is_due(step: int) -> bool:
        return step % task.evaluate_every == 0 or step == task.steps

    def report_progress() -> None:
        try:
            on_progress(training.state.step)
        except InterruptedByUser:
            training.drop_not_finite()
            save(always=True)
            if training.alive:
                raise

    if training.is_restored and save_every is not None:  # the checkpoint was written before these
        if is_due(training.state.step):
            training.evaluate()
        report_progress()
    while training.alive and training.state.step < task.steps:
        before = list(training.alive)
        training.take_step()
        step = training.state.step
        due = is_due(step)
        if save_every is not None and (due or step % save_every == 0 or not training.alive):
            save(always=True)
        if due:
            training.evaluate()
        if len(training.alive) < len(before):
            charge(before)  # includes the runs that diverged in this step
        if due and save_every is None:
            save(always=False)
        report_progress()
    charge(training.alive)
    training.end(range(len(training.alive)), "finished")
    return training.outcomes


_MOST_SUMS = 2  # that a step releases, as long as the parameters


class Training:
    """The state of one call of `train`. `alive` maps the run axis to `outcomes`."""

    def __init__(
        self,
        task: TrainConfig,
        runs: Sequence[Run],
        problem: TrainingProblem,
        watch: StepCallback = lambda state, answers: None,
    ) -> None:
        self.task, self.problem, self.watch = task, problem, watch
        device = torch.device(task.device)
        if reason := explain_slow(task.product_precision, device):
            warn_once(_log, reason)
        self.engine = problem.engine
        self.mechanism = Mechanism(
            [run.run_id for run in runs],
            problem.records,
            task.batch_size,
            task.noise_multiplier,
            get_source(task.randomness),
            device,
            self._microbatch_size(),
            task.group,
            problem.unit,
        )
        if task.randomness == "system" and task.delta is not None and task.noise_multiplier > 0:
            sampling, numbers = self.mechanism.sampling, _MOST_SUMS * self.engine.size
            check_range(task.delta, task.noise_multiplier, sampling, task.steps, numbers)
        self.state = State(
            parameters=problem.initial_parameters.clone(),
            learning_rate=_as_column([run.learning_rate for run in runs], device),
            threshold=_as_column([run.threshold for run in runs], device),
            quantile=_as_column([run.quantile for run in runs], device),
            noise_multiplier=task.noise_multiplier,
            batch_size=task.batch_size,
            layers=dict(self.engine.layer_sizes),
            average=None if task.averaging is None else problem.initial_parameters.clone(),
        )
        queries = checked_queries(task.method, self.state)
        self.mechanism.check_queries(queries)  # now, not after a part of the budget is spent
        _check_thresholds(task.method, queries, self.state)
        first = self.state.parameters[0]
        empty, no_targets = problem.examples.empty()
        if task.augment is not None:
            check_augment(task.augment, empty)
        check_model(self.engine, first, empty, no_targets, problem.classes)
        if problem.users is not None:
            check_user_level(task, problem)
        self._passes: Counter[str] = Counter()  # of each run in this step, if the model draws
        self.outcomes = [Outcome(run.run_id) for run in runs]
        self.alive = list(range(len(runs)))
        self._finite: Callable[[], Tensor] | None = None  # of the last step, on an accelerator
        self.is_restored = False  # from a checkpoint

    def take_step(self) -> None:
        state, task = self.state, self.task
        state.step += 1
        self._passes.clear()
        queries = task.method.queries(state)
        prefetch = self.problem.examples.prefetch if state.step < task.steps else None
        if self.problem.users is not None:  # whose indices are not those of rows
            prefetch = None
        answers = _of_all_runs(
            self.mechanism.release(runs, state.step, queries, self.gradients, prefetch)
            for runs in self._group_runs()
        )
        self.watch(state, answers)
        factor = rate_factor(task.schedule, state.step, task.steps, task.warmup)
        if (optimizer := self.problem.optimizer) is not None:
            (gradient,) = answers[queries[0].key]
            optimizer.step(state.parameters[0], gradient, factor * float(state.learning_rate))
            task.method.adapt_hyperparameters(state, answers)
        else:
            before = None if factor == 1 else state.parameters.clone()
            task.method.update(state, answers)
            if before is not None:  # a step is proportional to the learning rate
                state.parameters = before.lerp(state.parameters, factor)
        if task.averaging is not None and state.average is not None:
            state.average = update_average(
                state.average, state.parameters, task.averaging, state.step
            )
        if is_async_device(state.parameters):
            self._drop_not_finite_later()
        else:
            self.drop_not_finite()

    @property
    def _draws_random(self) -> bool:
        return self.engine.traits.draws_random or self.task.augment is not None

    def _group_runs(self) -> list[slice]:
        """Groups of runs that go through the model at once; the default keeps CPU results equal."""
        width = self.task.width or self._default_width()
        # A run that draws has a seed of its own; users are trained one run after the other.
        is_alone = self._draws_random or not self.problem.trains_as_examples
        if is_alone or not self.engine.takes_several_runs:
            width = 1
        return [slice(at, at + width) for at in range(0, len(self.alive), width)]

    def _default_width(self) -> int:
        """On a CPU, only small layers gain from several runs at once, by 15 %."""
        if self.state.parameters.device.type != "cpu":
            return len(self.alive)
        return 8 if all(type(layer) is nn.Linear for layer in self.engine.layers.values()) else 1

    def _microbatch_size(self) -> int | None:
        if self.task.microbatch_size is None and not self.problem.trains_as_examples:
            return users_at_once(self.engine.size)
        return self.task.microbatch_size

    def gradients(self, runs: "Runs", batches: Tensor) -> "PerExampleGradients":
        """Of the records with these indices, [R, B]."""
        users = self.problem.users
        if not self.problem.trains_as_examples:
            return self._updates(runs, batches)
        if users is not None:
            batches = users.first_rows(batches)
        seed, augment, views = None, self.task.augment, self.task.views
        if self._draws_random:
            run_id = self._first_run_id(runs)
            self._passes[run_id] += 1  # a microbatch is one
            number = self._passes[run_id]
            seed = self.mechanism.random_numbers.model_seed(run_id, self.state.step, number)
        # A copy: a forward pass that writes to its parameters must not change the state.
        parameters = self.state.parameters[runs].clone()
        inputs, targets, absent = self.problem.examples.batch(batches)
        if augment is None:
            return self.engine(parameters, inputs, targets, absent, seed)
        with seeded(seed, parameters.device):
            inputs = make_views(augment, inputs, views)
        return self.engine(parameters, inputs, targets, absent, seed, views)

    def _first_run_id(self, runs: "Runs") -> str:
        return self.mechanism.run_ids[runs.start if isinstance(runs, slice) else runs[0]]

    def _updates(self, runs: "Runs", batches: Tensor) -> "PerExampleGradients":
        """Of users; runs: one."""
        (parameters,), (users,) = self.state.parameters[runs].clone(), batches
        run_id = self._first_run_id(runs)

        def shuffle(user: int, epoch: int, rows: np.ndarray) -> np.ndarray:
            numbers, purpose = self.mechanism.random_numbers, f"{user}/{epoch}"
            return numbers.shuffle(run_id, self.state.step, purpose, rows)

        is_public = self.task.randomness == "seeded"
        return make_updates(self.problem, parameters, users, shuffle, is_public)

    def evaluate(self) -> None:
        state, task = self.state, self.task
        self.drop_not_finite()
        clipped = task.method.fraction_clipped(state)
        usable = torch.ones(len(self.alive), dtype=torch.bool)
        for run, position in enumerate(self.alive):
            scores = self.problem.scores(state.eval_parameters[run])
            usable[run] = torch.tensor([score.loss for score in scores]).isfinite().all()
            if not usable[run]:
                continue
            shared = {
                "step": state.step,
                "metric": self.problem.metric,
                "threshold": _or_none(state.threshold[run].item()),
                "learning_rate": _or_none(state.learning_rate[run].item()),
                "fraction_clipped": None if clipped is None else _or_none(clipped[run].item()),
            }
            outcome = self.outcomes[position]
            outcome.evaluations += [
                {"run_id": outcome.run_id, **shared, **vars(score)} for score in scores
            ]
        self._drop_diverged(usable)

    def drop_not_finite(self) -> None:
        """End the runs whose parameters are not finite."""
        self._drop_diverged(are_finite(self.state.parameters))

    def _drop_not_finite_later(self) -> None:
        """A step late, so that the host does not wait for the present step."""
        finite = self.state.parameters.isfinite().all(dim=1)
        last, self._finite = self._finite, read_later(finite)
        if last is not None:
            self._drop_diverged(last())

    def _drop_diverged(self, usable: Tensor) -> None:
        if usable.all():
            return
        self._finite = None  # it is of all runs; a parameter that is not finite stays so
        self.end((~usable).nonzero().flatten().tolist(), "diverged")
        kept = usable.nonzero().flatten()
        self.state.select(kept)
        self.mechanism.keep(kept.tolist())
        self.alive = [self.alive[run] for run in kept.tolist()]

    def end(self, runs: Sequence[int], status: str) -> None:
        for run in runs:
            outcome = self.outcomes[self.alive[run]]
            outcome.status = status
            outcome.diverged_at = self.state.step if status == "diverged" else None
            outcome.ledger = self.mechanism.ledgers[run].to_json()

    def ledger(self, position: int) -> Ledger:
        """The ledger of an initial run, also after its end."""
        if position in self.alive:
            return self.mechanism.ledgers[self.alive.index(position)]
        return Ledger.from_json(self.outcomes[position].ledger)

    def add_seconds(self, seconds: float, runs: Sequence[int]) -> None:
        """Divide the time equally among the runs that shared the device."""
        for position in runs:
            self.outcomes[position].wall_seconds += seconds / len(runs)

    def content(self) -> dict[str, Any]:
        optimizer = self.problem.optimizer
        return {
            "optimizer": {} if optimizer is None else optimizer.state_dict(),
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
        ledgers = [Ledger.from_json(text) for text in content["ledgers"]]
        if [one.run_id for one in outcomes] != [one.run_id for one in self.outcomes]:
            raise ValueError("its runs are not those of this job")
        if alive != [run for run, one in enumerate(outcomes) if one.status == "running"]:
            raise ValueError("its living runs are not those that run")
        books = [(ledger.sampling, ledger.step_count) for ledger in ledgers]
        if books != [(self.mechanism.sampling, state.step)] * len(alive):
            raise ValueError(f"its ledgers are not those of {state.step} steps of its living runs")
        if self.problem.optimizer is not None:
            self.problem.optimizer.load_state_dict(content["optimizer"])
        # From here on nothing fails: a checkpoint is taken whole, or not at all.
        self.state, self.outcomes, self.alive = state, outcomes, alive
        self.is_restored = True
        self.mechanism.keep(self.alive)
        self.mechanism.resume(ledgers, self.state.step)

    def resume(self, state: State, ledgers: Sequence[Ledger]) -> None:
        """From another training's state, of as many runs, whose books these are, at any noise.

        ValueError where they do not fit.
        """
        fresh = self.state
        if (state.parameters.shape, state.layers) != (fresh.parameters.shape, fresh.layers):
            raise ValueError("its parameters are not those of this model")
        if not are_finite(state.parameters).all():
            raise ValueError("its parameters are not finite")
        self.mechanism.resume(ledgers, state.step)
        self.state = state


def _of_all_runs(released: Iterable["Answers"]) -> dict["Key", Tensor]:
    """Concatenate the answers of groups of runs."""
    first, *others = released
    if not others:  # avoid a copy
        return dict(first)
    return {key: torch.cat([first[key], *(answers[key] for answers in others)]) for key in first}


def _check_thresholds(method: Method, queries: Sequence[Query], state: State) -> None:
    clips = any(isinstance(query, ThresholdQuery) for query in queries)
    if clips and state.threshold.isnan().any():
        raise OsoError(
            f"method {method.name!r}: clips at a threshold, but a run has none; set it in the "
            "method's `search` or `initial_values`"
        )


def study_training(
    task: StudyTask,
    runs: Sequence[Run],
    arrays: Arrays,
    watch: StepCallback = lambda state, answers: None,
) -> Training:
    """Training on a study's data set, with a built-in or user-defined model."""
    return Training(task, runs, make_problem(task, runs, arrays), watch)


def are_finite(parameters: Tensor) -> Tensor:
    """Which runs have only finite parameters, [R, P] to [R].

    The sum is ten times as fast; only if it is not finite, each value is checked.
    """
    finite = parameters.sum(dim=1).isfinite()
    return finite if finite.all() else parameters.isfinite().all(dim=1)


def read_later(values: Tensor) -> Callable[[], Tensor]:
    """Start a copy to the host; the result waits for that copy, not for later kernels."""
    copy = torch.empty_like(values, device="cpu", pin_memory=values.is_cuda)
    copy.copy_(values, non_blocking=values.is_cuda)
    if not values.is_cuda:
        return lambda: copy
    copied = torch.cuda.Event()
    copied.record()

    def read() -> Tensor:
        copied.synchronize()
        return copy

    return read


def _as_column(values: Sequence[float | None], device: torch.device) -> Tensor:
    """[R], NaN for None; in float32 at least, whatever default dtype a script sets in torch."""
    numbers = [math.nan if value is None else value for value in values]
    dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)
    return torch.tensor(numbers, device=device, dtype=dtype)


def _or_none(value: float) -> float | None:
    """None for NaN and infinity, which results must not contain."""
    return value if math.isfinite(value) else None
