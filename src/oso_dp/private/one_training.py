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
from oso_dp.errors import Interrupted, OsoError
from oso_dp.gradients.precision import kept_switches
from oso_dp.interrupts import Interrupts
from oso_dp.methods import State
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.sampling import PoissonSampling, steps_of
from oso_dp.private.choices import Choices
from oso_dp.private.examples import types_text, widened
from oso_dp.private.given_values import number_from
from oso_dp.private.paid import Paid, steps_not_made
from oso_dp.private.progress_bar import ProgressBar
from oso_dp.private.statement import Statement, every_release, tuning_of
from oso_dp.private.trained import History, PrivateModel, on_device
from oso_dp.training.evaluate import SplitScore
from oso_dp.training.loop import Training, Watch, advance
from oso_dp.training.own_loss import Loss
from oso_dp.training.own_model import OwnModel, check_targets, classes_of
from oso_dp.training.problem import Examples, Problem, Recipe
from oso_dp.training.schedule import CONSTANT, rate_factor

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers
    from oso_dp.private.budget import Budget

_USUAL_BATCH = 512
_MOST_STEPS = 1e9  # as searches that are priced may have


@dataclass
class Ended:
    """Where a training ended: what was released, and what it cost."""

    model: nn.Module
    ledger: Ledger
    history: History
    status: str
    run_id: str
    state: dict[str, Any]
    trained_with: dict[str, Any]  # `Choices.goes_on_with`
    stopped: bool  # whether Ctrl-C came, also in the last step, which it cannot interrupt
    not_made: Ledger | None = None  # the steps that were planned besides, had it not ended early


class OneTraining:
    """A module, a loss and examples, and how to train; OsoError for what does not fit together.

    `after`: what an earlier training gave, from which it goes on.
    """

    def __init__(
        self,
        own: OwnModel,
        loss: Loss,
        examples: Examples,
        choices: Choices,
        run_id: str,
        after: PrivateModel | None = None,
    ) -> None:
        examples = widened(examples, own.losses_by(loss))
        self.own, self.loss, self.examples, self.choices = own, loss, examples, choices
        n, size = len(examples), choices.batch_size
        self.batch_size = min(_USUAL_BATCH, n) if size is None else size
        if self.batch_size > n:
            raise OsoError(f"batch_size {size}: must be at most the {n} examples")
        self.sampling = PoissonSampling.of(self.batch_size, n)
        if choices.epochs * n > _MOST_STEPS * self.batch_size:
            raise OsoError(f"epochs {choices.epochs:g}: must be at most {_MOST_STEPS:g} steps")
        self.steps = steps_of(choices.epochs, n, self.batch_size)
        self.run, self.after = choices.run(run_id), after
        if after is not None:
            _check_goes_on(after, choices, self.sampling, n)
            # What goes on from a model under its seed has other streams than the model had.
            run_id = f"{after.run_id}/{after.ledger.step_count}/{run_id}"
            self.run = replace(self.run, run_id=run_id)

    @property
    def last_step(self) -> int:
        """Of this training and of what it goes on from."""
        return self.steps + (0 if self.after is None else self.after.ledger.step_count)

    def __call__(self, noise_multiplier: float, progress: bool) -> Ended:
        """Train, with this noise in each step.

        Torch's switches stand as before where `evaluate` is called, and afterwards.
        """
        with kept_switches() as put_back:
            return self._train(noise_multiplier, progress, put_back)

    def _train(
        self, noise_multiplier: float, progress: bool, put_back: Callable[[], None]
    ) -> Ended:
        choices, place, after = self.choices, self.choices.place(), self.after
        recipe = Recipe(
            method=choices.trained_by(),
            noise_multiplier=noise_multiplier,
            batch_size=self.batch_size,
            steps=self.last_step,
            evaluate_every=choices.evaluate_every or self.last_step,
            device=choices.device,
            randomness=choices.randomness,
            precision=choices.precision,
            piece=choices.piece,
            schedule=None if choices.schedule == CONSTANT else choices.schedule,
            averaging=choices.averaging or None,
        )
        history = History() if after is None else after.history.copy()
        code = self.own.code(self.loss, self.examples, recipe.products, place)
        first = self.own.weights(place)
        self.own.check_inputs(self.examples)
        check_targets(code, first, self.examples)
        problem = Problem(
            code,
            self.examples,
            first[None],
            scores=_scores(self.own, choices.evaluate, put_back),
            classes=classes_of(code, first, self.examples),
        )
        training = Training(recipe, [self.run], problem, _watch(history, recipe))
        if after is not None:
            try:
                training.go_on(_state(after, recipe), [copy.deepcopy(after.ledger)])
            except ValueError as error:
                raise OsoError(f"after: {error}") from error
        bar = ProgressBar(recipe.steps) if progress else None
        status, stopped = _train(training, history, bar)
        history.take_scores(training.outcomes[0].evaluations)
        # Weights that are not finite are nobody's: of a training that diverged, the first ones.
        weights = (training.state.evaluated if training.alive else problem.first)[0]
        state = on_device(dict(vars(training.state)), torch.device("cpu"))
        model = self.own.with_weights(weights.cpu())
        ledger = training.ledger(0)
        missing = steps_not_made(ledger, self.last_step - ledger.step_count, noise_multiplier)
        name = self.run.run_id
        kept = choices.goes_on_with()
        return Ended(model, ledger, history, status, name, state, kept, stopped, missing)

    def described(
        self, ended: Ended, budget: Budget, paid: Paid, scored: str = "", validation: int = 0
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
            not_made=paid.uncalled,
            went_on=self._went_on(),
            method=self.choices.method,
            releases=every_release(ended.ledger),
            randomness=self.choices.randomness,
            types=types_text(self.examples),
            tuning=tuning_of(paid),
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

    def _went_on(self) -> bool:
        """Whether somebody had stopped what this goes on from, or a search that it won."""
        after = self.after
        if after is None:
            return False
        stopped = after.status == "interrupted" or after.paid.not_made is not None
        return stopped or after.statement.went_on


def _check_goes_on(
    after: PrivateModel, choices: Choices, sampling: PoissonSampling, examples: int
) -> None:
    earlier = after.statement
    if after.paid.stopping is not None:
        raise OsoError(
            "after: is the best of a random number of trainings, and further steps have no price "
            "there; search by composition to train on"
        )
    if earlier.randomness != choices.randomness:
        raise OsoError(
            f"after: was trained with randomness {earlier.randomness!r}, which must stay: a "
            "statement has one"
        )
    if after.status == "diverged":
        raise OsoError("after: this training diverged; begin anew")
    if earlier.examples != examples:
        raise OsoError(f"after: was trained on {earlier.examples} examples, these are {examples}")
    if earlier.method != choices.method:
        raise OsoError(f"after: was trained by {earlier.method!r}, not by {choices.method!r}")
    if (after.state.get("average") is not None) != (choices.averaging > 0):
        how = "without" if choices.averaging > 0 else "with"
        raise OsoError(f"after: was trained {how} averaging, which must stay so")
    if earlier.sampling_rate != sampling.rate:
        size = round(earlier.sampling_rate * examples)
        raise OsoError(
            f"after: was trained with batch_size {size}; the ledger has one sampling rate"
        )


def _state(after: PrivateModel, recipe: Recipe) -> State:
    """Where the earlier training ended, with the noise of what is to come."""
    state = State(**on_device(copy.deepcopy(after.state), torch.device(recipe.device)))
    state.noise_multiplier = recipe.noise_multiplier
    return state


def _watch(history: History, recipe: Recipe) -> Watch:
    """Each step's entry, from before it moves."""

    def watch(state: State, answers: Answers) -> None:
        history.step.append(state.step)
        history.threshold.append(float(state.threshold[0]))
        history.learning_rate.append(_rate(state, recipe))

    return watch


def _rate(state: State, recipe: Recipe) -> float:
    factor = rate_factor(recipe.schedule, state.step, recipe.steps)
    return factor * float(state.learning_rate[0])


def _scores(
    own: OwnModel, evaluate: Callable[[nn.Module], float] | None, put_back: Callable[[], None]
) -> Callable[[Tensor], Sequence[SplitScore]]:
    def scores(weights: Tensor) -> list[SplitScore]:
        if evaluate is None:
            return []
        put_back()
        value = number_from("evaluate", evaluate(own.with_weights(weights.cpu())))
        return [SplitScore("given", value, 0.0)]

    return scores


def _train(training: Training, history: History, bar: ProgressBar | None) -> tuple[str, bool]:
    """How it ended, and whether Ctrl-C came."""
    interrupts = Interrupts(signal.SIGINT)

    def on_progress(step: int) -> None:
        if training.task.method.sets_rate_first:
            known = bool(training.alive)  # what a step that diverged moved with went with its run
            history.learning_rate[-1] = _rate(training.state, training.task) if known else math.nan
        if bar is not None:
            bar(step)
        if interrupts.came and step < training.task.steps and training.alive:
            raise Interrupted(interrupts.came)

    try:
        with interrupts.waiting():
            status = advance(training, on_progress=on_progress)[0].status
        return status, interrupts.came is not None
    except Interrupted:
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
