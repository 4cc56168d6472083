"""One DP training of a user's module with a given noise multiplier, by the training loop."""

from __future__ import annotations

import copy
import math
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import oso_dp
from oso_dp.api.arguments import call_for_number
from oso_dp.api.datasets import format_types, widen
from oso_dp.api.model import History, PrivateModel, to_device
from oso_dp.api.options import TrainingOptions
from oso_dp.api.privacy_cost import PrivacyCost, make_unused_steps
from oso_dp.api.progress_bar import ProgressBar
from oso_dp.api.statement import Statement, describe_tuning, list_releases
from oso_dp.defaults import BATCH_SIZE
from oso_dp.errors import InterruptedByUser, OsoError
from oso_dp.gradients.engine import seeded
from oso_dp.gradients.precision import restore_switches
from oso_dp.methods import State
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.sampling import PoissonSampling, count_steps
from oso_dp.signals import SignalRecorder
from oso_dp.training.evaluate import SplitScore
from oso_dp.training.loop import StepCallback, Training, advance
from oso_dp.training.schedule_and_averaging import CONSTANT, rate_factor
from oso_dp.training.task import Examples, TrainConfig, TrainingProblem
from oso_dp.training.user_model import Loss, UserModel, check_targets, count_classes

if TYPE_CHECKING:
    from oso_dp.api.budget import Budget
    from oso_dp.privacy.queries import Answers

_MAX_STEPS = 1e9  # the limit of oso_dp.accounting.search


@dataclass
class TrainingResult:
    """The outcome of a training: what was released, and its cost."""

    model: nn.Module
    ledger: Ledger
    history: History
    status: str
    run_id: str
    state: dict[str, Any]
    trained_with: dict[str, Any]  # `TrainingOptions.resumable_options`
    stopped: bool  # whether Ctrl-C was pressed, also during the last step, which always completes
    unused_steps: Ledger | None = None  # the planned steps after an early end


class Trainer:
    """Trains a module; OsoError if module, loss, examples and options are inconsistent.

    resume_from: the result of an earlier training, which is continued.
    """

    def __init__(
        self,
        user_model: UserModel,
        loss: Loss,
        examples: Examples,
        options: TrainingOptions,
        run_id: str,
        resume_from: PrivateModel | None = None,
    ) -> None:
        self.user_model, self.loss, self.options = user_model, loss, options
        self.examples = widen(examples, user_model.losses_by(loss))
        n, size = len(self.examples), options.batch_size
        self.batch_size = min(BATCH_SIZE, n) if size is None else size
        if self.batch_size > n:
            raise OsoError(f"batch_size: {size}; must be <= the number of examples, {n}")
        self.sampling = PoissonSampling.of(self.batch_size, n)
        if options.epochs * n > _MAX_STEPS * self.batch_size:
            raise OsoError(f"epochs: {options.epochs:g}; must be at most {_MAX_STEPS:g} steps")
        self.steps = count_steps(options.epochs, n, self.batch_size)
        self.run, self.resume_from = options.make_run(run_id), resume_from
        if resume_from is not None:
            _check_resumable(resume_from, options, self.sampling, n)
            # With the same seed, the resumed training must not repeat the earlier one's noise.
            run_id = f"{resume_from.run_id}/{resume_from.ledger.step_count}/{run_id}"
            self.run = replace(self.run, run_id=run_id)

    @property
    def last_step(self) -> int:
        """The number of the last step, counted from the first step of the earlier training."""
        return self.steps + (0 if self.resume_from is None else self.resume_from.ledger.step_count)

    def __call__(self, noise_multiplier: float, progress: bool) -> TrainingResult:
        """Train with this noise multiplier in each step.

        Torch's global switches are restored for each call of `evaluate`, and afterwards.
        """
        if torch.is_inference_mode_enabled():
            raise OsoError("train_private: called in inference mode, which has no gradients")
        with restore_switches() as restore, torch.enable_grad():
            return self._train(noise_multiplier, progress, restore)

    def _train(
        self, noise_multiplier: float, progress: bool, restore: Callable[[], None]
    ) -> TrainingResult:
        options, device, resume_from = self.options, self.options.torch_device(), self.resume_from
        config = TrainConfig(
            method=options.make_method(),
            noise_multiplier=noise_multiplier,
            batch_size=self.batch_size,
            steps=self.last_step,
            evaluate_every=options.evaluate_every or self.last_step,
            device=options.device,
            randomness=options.randomness,
            precision=options.precision,
            microbatch_size=options.microbatch_size,
            augment=options.augment,
            views=options.augmentations,
            schedule=None if options.schedule == CONSTANT else options.schedule,
            averaging=options.averaging or None,
        )
        history = History() if resume_from is None else resume_from.history.copy()
        with seeded(0, device):  # of what the model draws before its first step
            problem = self._problem(config, device)
            problem.scores = _scores(self.user_model, options.evaluate, restore)
            training = Training(config, [self.run], problem, _record_steps(history, config))
        if resume_from is not None:
            try:
                training.resume(
                    _earlier_state(resume_from, config), [copy.deepcopy(resume_from.ledger)]
                )
            except ValueError as error:
                raise OsoError(f"resume_from: {error}") from error
        bar = ProgressBar(config.steps) if progress else None
        status, stopped = _run_training(training, history, bar)
        history.add_evaluations(training.outcomes[0].evaluations)
        # Weights that are not finite are useless: a diverged training returns the initial ones.
        weights = (
            training.state.eval_parameters if training.alive else problem.initial_parameters
        )[0]
        ledger = training.ledger(0)
        return TrainingResult(
            model=self.user_model.with_weights(weights.cpu()),
            ledger=ledger,
            history=history,
            status=status,
            run_id=self.run.run_id,
            state=to_device(dict(vars(training.state)), torch.device("cpu")),
            trained_with=options.resumable_options(),
            stopped=stopped,
            unused_steps=make_unused_steps(
                ledger, self.last_step - ledger.step_count, noise_multiplier
            ),
        )

    def _problem(self, config: TrainConfig, device: torch.device) -> TrainingProblem:
        """What is trained; OsoError if model, loss and examples do not fit."""
        own, examples = self.user_model, self.examples
        engine = own.make_engine(self.loss, examples, config.product_precision, device)
        initial = own.weights(device)
        own.check_inputs(examples)
        check_targets(engine, initial, examples)
        classes = count_classes(engine, initial, examples)
        return TrainingProblem(engine, examples, initial[None], classes=classes)

    def describe(
        self,
        result: TrainingResult,
        budget: Budget,
        cost: PrivacyCost,
        scored: str = "",
        validation: int = 0,
        changes: str = "",
    ) -> PrivateModel:
        """The model with its statement.

        cost: all ledgers that the statement covers, this training's first. scored: the data on
        which a search scored its models. validation: the number of private examples among them.
        changes: what was replaced in the model.
        """
        delta, accountant = budget.delta, budget.accountant
        statement = Statement(
            epsilon=cost.epsilon(delta, accountant),
            delta=delta,
            budget=budget.epsilon,
            accountant=accountant,
            examples=len(self.examples),
            sampling_rate=self.sampling.rate,
            steps=result.ledger.step_count,
            planned_steps=self.last_step,
            unused_steps=cost.unused_step_count,
            resumed=self._has_resumed(),
            method=self.options.method,
            releases=list_releases(result.ledger),
            randomness=self.options.randomness,
            types=format_types(self.examples),
            changes=changes,
            tuning=describe_tuning(cost),
            scored=scored,
            validation_examples=validation,
            validation_epsilon=cost.validation_epsilon(delta, accountant),
            versions=f"oso {oso_dp.__version__}, torch {torch.__version__}",
        )
        return PrivateModel(
            result.model,
            cost,
            statement,
            result.history,
            result.status,
            result.run_id,
            result.state,
            result.trained_with,
        )

    def _has_resumed(self) -> bool:
        """Whether the earlier training, or the search that chose it, was interrupted."""
        resume_from = self.resume_from
        if resume_from is None:
            return False
        stopped = (
            resume_from.status == "interrupted" or resume_from.privacy_cost.unused_steps is not None
        )
        return stopped or resume_from.statement.resumed


def _check_resumable(
    resume_from: PrivateModel, options: TrainingOptions, sampling: PoissonSampling, examples: int
) -> None:
    earlier = resume_from.statement
    if resume_from.privacy_cost.stopping is not None:
        raise OsoError(
            "resume_from: the best of a search by random stopping, whose accounting has no further "
            "steps; use search_accounting='composition' to resume"
        )
    if earlier.randomness != options.randomness:
        raise OsoError(f"randomness: {options.randomness!r}; must be {earlier.randomness!r}, {_AS}")
    if resume_from.status == "diverged":
        raise OsoError("resume_from: a training that diverged; start a new training")
    if earlier.examples != examples:
        raise OsoError(f"data: {examples} examples; must be {earlier.examples}, {_AS}")
    if earlier.method != options.method:
        raise OsoError(f"method: {options.method!r}; must be {earlier.method!r}, {_AS}")
    was_averaged = resume_from.state.get("average") is not None
    if was_averaged != (options.averaging > 0):
        allowed = "> 0" if was_averaged else "0"
        raise OsoError(f"averaging: {options.averaging:g}; must be {allowed}, {_AS}")
    if earlier.sampling_rate != sampling.rate:
        size = round(earlier.sampling_rate * examples)
        raise OsoError(
            f"batch_size: sampling rate {sampling.rate:g}; batch_size must be {size}, {_AS}"
        )


_AS = "as in resume_from"


def _earlier_state(resume_from: PrivateModel, config: TrainConfig) -> State:
    """The state at the end of the earlier training, with the new noise multiplier."""
    state = State(**to_device(copy.deepcopy(resume_from.state), torch.device(config.device)))
    state.noise_multiplier = config.noise_multiplier
    return state


def _record_steps(history: History, config: TrainConfig) -> StepCallback:
    """A callback that appends C and rho of each step to the history, before they are updated."""

    def record(state: State, answers: Answers) -> None:
        history.step.append(state.step)
        history.threshold.append(float(state.threshold[0]))
        history.learning_rate.append(_scheduled_rate(state, config))

    return record


def _scheduled_rate(state: State, config: TrainConfig) -> float:
    factor = rate_factor(config.schedule, state.step, config.steps)
    return factor * float(state.learning_rate[0])


def _scores(
    user_model: UserModel,
    evaluate: Callable[[nn.Module], float] | None,
    restore: Callable[[], None],
) -> Callable[[Tensor], Sequence[SplitScore]]:
    def scores(weights: Tensor) -> list[SplitScore]:
        if evaluate is None:
            return []
        restore()
        value = call_for_number("evaluate", evaluate(user_model.with_weights(weights.cpu())))
        return [SplitScore("given", value, 0.0)]

    return scores


def _run_training(
    training: Training, history: History, bar: ProgressBar | None
) -> tuple[str, bool]:
    """The status of the training, and whether Ctrl-C was pressed."""
    interrupts = SignalRecorder(signal.SIGINT)

    def on_progress(step: int) -> None:
        if training.task.method.updates_rate_first:
            # A diverged run's state is dropped, and with it the rate of its last step.
            history.learning_rate[-1] = (
                _scheduled_rate(training.state, training.task) if training.alive else math.nan
            )
        if bar is not None:
            bar(step)
        if interrupts.came and step < training.task.steps and training.alive:
            raise InterruptedByUser(interrupts.came)

    try:
        with interrupts.defer():
            status = advance(training, on_progress=on_progress)[0].status
        return status, interrupts.came is not None
    except InterruptedByUser:
        return "interrupted", True
    except (Exception, KeyboardInterrupt) as error:  # of the user's engine, or a second Ctrl-C
        error.add_note(
            f"{training.ledger(0).step_count} steps were released before this error; if any of "
            f"their output was seen, count all {training.task.steps} planned steps as spent, since "
            "the step at which a training stops may depend on the data"
        )
        raise
    finally:
        if bar is not None:
            bar.end()
