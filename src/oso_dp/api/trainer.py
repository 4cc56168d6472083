"""One training of a user's module with a given noise, by the study's loop."""

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
from oso_dp.errors import InterruptedByUser, OsoError
from oso_dp.gradients.precision import restore_switches
from oso_dp.methods import State
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.sampling import PoissonSampling, count_steps
from oso_dp.signals import SignalRecorder
from oso_dp.training.evaluate import SplitScore
from oso_dp.training.loop import StepCallback, Training, advance
from oso_dp.training.schedule_and_averaging import CONSTANT, rate_factor
from oso_dp.training.task import Examples, TrainConfig, TrainingProblem
from oso_dp.training.user_loss import Loss
from oso_dp.training.user_model import UserModel, check_targets, count_classes

if TYPE_CHECKING:
    from oso_dp.api.budget import Budget
    from oso_dp.privacy.queries import Answers

_DEFAULT_BATCH_SIZE = 512
_MAX_STEPS = 1e9  # as searches that are priced may have


@dataclass
class TrainingResult:
    """Where a training ended: what was released, and what it cost."""

    model: nn.Module
    ledger: Ledger
    history: History
    status: str
    run_id: str
    state: dict[str, Any]
    trained_with: dict[str, Any]  # `Choices.goes_on_with`
    stopped: bool  # whether Ctrl-C came, also in the last step, which it cannot interrupt
    unused_steps: Ledger | None = (
        None  # the steps that were planned besides, had it not ended early
    )


class Trainer:
    """A module, a loss and examples, and how to train; OsoError for what does not fit together.

    `after`: what an earlier training gave, from which it goes on.
    """

    def __init__(
        self,
        user_model: UserModel,
        loss: Loss,
        examples: Examples,
        choices: TrainingOptions,
        run_id: str,
        resume_from: PrivateModel | None = None,
    ) -> None:
        examples = widen(examples, user_model.losses_by(loss))
        self.user_model, self.loss, self.examples, self.options = (
            user_model,
            loss,
            examples,
            choices,
        )
        n, size = len(examples), choices.batch_size
        self.batch_size = min(_DEFAULT_BATCH_SIZE, n) if size is None else size
        if self.batch_size > n:
            raise OsoError(f"batch_size {size}: must be at most the {n} examples")
        self.sampling = PoissonSampling.of(self.batch_size, n)
        if choices.epochs * n > _MAX_STEPS * self.batch_size:
            raise OsoError(f"epochs {choices.epochs:g}: must be at most {_MAX_STEPS:g} steps")
        self.steps = count_steps(choices.epochs, n, self.batch_size)
        self.run, self.resume_from = choices.make_run(run_id), resume_from
        if resume_from is not None:
            _check_resumable(resume_from, choices, self.sampling, n)
            # What goes on from a model under its seed has other streams than the model had.
            run_id = f"{resume_from.run_id}/{resume_from.ledger.step_count}/{run_id}"
            self.run = replace(self.run, run_id=run_id)

    @property
    def last_step(self) -> int:
        """Of this training and of what it goes on from."""
        return self.steps + (0 if self.resume_from is None else self.resume_from.ledger.step_count)

    def __call__(self, noise_multiplier: float, progress: bool) -> TrainingResult:
        """Train, with this noise in each step.

        Torch's switches stand as before where `evaluate` is called, and afterwards.
        """
        with restore_switches() as put_back:
            return self._train(noise_multiplier, progress, put_back)

    def _train(
        self, noise_multiplier: float, progress: bool, put_back: Callable[[], None]
    ) -> TrainingResult:
        choices, place, resume_from = self.options, self.options.torch_device(), self.resume_from
        recipe = TrainConfig(
            method=choices.make_method(),
            noise_multiplier=noise_multiplier,
            batch_size=self.batch_size,
            steps=self.last_step,
            evaluate_every=choices.evaluate_every or self.last_step,
            device=choices.device,
            randomness=choices.randomness,
            precision=choices.precision,
            microbatch_size=choices.microbatch_size,
            schedule=None if choices.schedule == CONSTANT else choices.schedule,
            averaging=choices.averaging or None,
        )
        history = History() if resume_from is None else resume_from.history.copy()
        code = self.user_model.code(self.loss, self.examples, recipe.product_precision, place)
        first = self.user_model.weights(place)
        self.user_model.check_inputs(self.examples)
        check_targets(code, first, self.examples)
        problem = TrainingProblem(
            code,
            self.examples,
            first[None],
            scores=_scores(self.user_model, choices.evaluate, put_back),
            classes=count_classes(code, first, self.examples),
        )
        training = Training(recipe, [self.run], problem, _watch(history, recipe))
        if resume_from is not None:
            try:
                training.resume(_state(resume_from, recipe), [copy.deepcopy(resume_from.ledger)])
            except ValueError as error:
                raise OsoError(f"after: {error}") from error
        bar = ProgressBar(recipe.steps) if progress else None
        status, stopped = _run_training(training, history, bar)
        history.add_evaluations(training.outcomes[0].evaluations)
        # Weights that are not finite are nobody's: of a training that diverged, the first ones.
        weights = (
            training.state.eval_parameters if training.alive else problem.initial_parameters
        )[0]
        state = to_device(dict(vars(training.state)), torch.device("cpu"))
        model = self.user_model.with_weights(weights.cpu())
        ledger = training.ledger(0)
        missing = make_unused_steps(ledger, self.last_step - ledger.step_count, noise_multiplier)
        name = self.run.run_id
        kept = choices.resumable_options()
        return TrainingResult(model, ledger, history, status, name, state, kept, stopped, missing)

    def describe(
        self,
        ended: TrainingResult,
        budget: Budget,
        paid: PrivacyCost,
        scored: str = "",
        validation: int = 0,
    ) -> PrivateModel:
        """The model with its statement. `paid`: all that stands for, this training first.

        scored: on what a search scored its models; validation: the number of private examples that
        it scored them on.
        """
        delta, accountant = budget.delta, budget.accountant
        statement = Statement(
            epsilon=paid.epsilon(delta, accountant),
            delta=delta,
            budget=budget.epsilon,
            accountant=accountant,
            examples=len(self.examples),
            sampling_rate=self.sampling.rate,
            steps=ended.ledger.step_count,
            planned_steps=self.last_step,
            unused_steps=paid.unused_step_count,
            resumed=self._has_resumed(),
            method=self.options.method,
            releases=list_releases(ended.ledger),
            randomness=self.options.randomness,
            types=format_types(self.examples),
            tuning=describe_tuning(paid),
            scored=scored,
            validation_examples=validation,
            validation_epsilon=paid.validation_epsilon(delta, accountant),
            versions=f"oso {oso_dp.__version__}, torch {torch.__version__}",
        )
        return PrivateModel(
            ended.model,
            paid,
            statement,
            ended.history,
            ended.status,
            ended.run_id,
            ended.state,
            ended.trained_with,
        )

    def _has_resumed(self) -> bool:
        """Whether somebody had stopped what this goes on from, or a search that it won."""
        resume_from = self.resume_from
        if resume_from is None:
            return False
        stopped = (
            resume_from.status == "interrupted" or resume_from.privacy_cost.unused_steps is not None
        )
        return stopped or resume_from.statement.resumed


def _check_resumable(
    resume_from: PrivateModel, choices: TrainingOptions, sampling: PoissonSampling, examples: int
) -> None:
    earlier = resume_from.statement
    if resume_from.privacy_cost.stopping is not None:
        raise OsoError(
            "after: is the best of a random number of trainings, and further steps have no price "
            "there; search by composition to train on"
        )
    if earlier.randomness != choices.randomness:
        raise OsoError(
            f"after: was trained with randomness {earlier.randomness!r}, which must stay: a "
            "statement has one"
        )
    if resume_from.status == "diverged":
        raise OsoError("after: this training diverged; begin anew")
    if earlier.examples != examples:
        raise OsoError(f"after: was trained on {earlier.examples} examples, these are {examples}")
    if earlier.method != choices.method:
        raise OsoError(f"after: was trained by {earlier.method!r}, not by {choices.method!r}")
    if (resume_from.state.get("average") is not None) != (choices.averaging > 0):
        how = "without" if choices.averaging > 0 else "with"
        raise OsoError(f"after: was trained {how} averaging, which must stay so")
    if earlier.sampling_rate != sampling.rate:
        size = round(earlier.sampling_rate * examples)
        raise OsoError(
            f"after: was trained with batch_size {size}; the ledger has one sampling rate"
        )


def _state(resume_from: PrivateModel, recipe: TrainConfig) -> State:
    """Where the earlier training ended, with the noise of what is to come."""
    state = State(**to_device(copy.deepcopy(resume_from.state), torch.device(recipe.device)))
    state.noise_multiplier = recipe.noise_multiplier
    return state


def _watch(history: History, recipe: TrainConfig) -> StepCallback:
    """Each step's entry, from before it moves."""

    def watch(state: State, answers: Answers) -> None:
        history.step.append(state.step)
        history.threshold.append(float(state.threshold[0]))
        history.learning_rate.append(_rate(state, recipe))

    return watch


def _rate(state: State, recipe: TrainConfig) -> float:
    factor = rate_factor(recipe.schedule, state.step, recipe.steps)
    return factor * float(state.learning_rate[0])


def _scores(
    user_model: UserModel,
    evaluate: Callable[[nn.Module], float] | None,
    put_back: Callable[[], None],
) -> Callable[[Tensor], Sequence[SplitScore]]:
    def scores(weights: Tensor) -> list[SplitScore]:
        if evaluate is None:
            return []
        put_back()
        value = call_for_number("evaluate", evaluate(user_model.with_weights(weights.cpu())))
        return [SplitScore("given", value, 0.0)]

    return scores


def _run_training(
    training: Training, history: History, bar: ProgressBar | None
) -> tuple[str, bool]:
    """How it ended, and whether Ctrl-C came."""
    interrupts = SignalRecorder(signal.SIGINT)

    def on_progress(step: int) -> None:
        if training.task.method.updates_rate_first:
            known = bool(training.alive)  # what a step that diverged moved with went with its run
            history.learning_rate[-1] = _rate(training.state, training.task) if known else math.nan
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
    except (Exception, KeyboardInterrupt) as error:  # of the user's code, or a second Ctrl-C
        error.add_note(
            f"{training.ledger(0).step_count} steps were released before; whoever saw anything of "
            f"them has to count all {training.task.steps} that were planned as spent, since the "
            "moment of an error may tell something"
        )
        raise
    finally:
        if bar is not None:
            bar.end()
