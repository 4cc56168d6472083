"""A training of `train_private` while it runs: history, evaluations, callbacks, signals,
checkpoints.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from oso_dp.api.arguments import call_for_number
from oso_dp.api.callbacks import Evaluation
from oso_dp.api.checkpoints import FORMAT
from oso_dp.errors import InterruptedByUser, OsoError
from oso_dp.methods import State
from oso_dp.signals import SignalRecorder
from oso_dp.study.cohort import Run
from oso_dp.training.evaluate import SplitScore
from oso_dp.training.loop import StepCallback, Training, advance
from oso_dp.training.schedule_and_averaging import rate_factor
from oso_dp.training.task import TrainConfig, TrainingProblem
from oso_dp.training.user_model import UserModel

if TYPE_CHECKING:
    from pathlib import Path

    from oso_dp.api.model import History
    from oso_dp.api.options import TrainingOptions
    from oso_dp.api.progress_bar import ProgressBar
    from oso_dp.privacy.queries import Answers, Query


_CHECKPOINTS = 20  # of a training, unless the caller says how many steps lie between two


class UserTraining(Training):
    """A training whose checkpoints also contain its history."""

    def __init__(
        self,
        config: TrainConfig,
        run: Run,
        problem: TrainingProblem,
        history: History,
        identity: dict[str, Any],
    ) -> None:
        super().__init__(config, [run], problem, _record_steps(history, config))
        if problem.optimizer is not None and isinstance(self._queries()[0].key, tuple):
            raise OsoError(
                f"optimizer: method {config.method.name!r} clips each layer; must be a method that "
                "clips the whole gradient"
            )
        self.run_id, self.history, self.identity = run.run_id, history, identity

    def _queries(self) -> Sequence[Query]:
        return self.task.method.queries(self.state)

    def content(self) -> dict[str, Any]:
        # Times depend on batch sizes, which are private.
        outcomes = [{**vars(outcome), "wall_seconds": 0.0} for outcome in self.outcomes]
        own = {"run_id": self.run_id, "identity": self.identity, "history": vars(self.history)}
        return {**super().content(), **own, "outcomes": outcomes}

    def restore(self, content: dict[str, Any] | None) -> None:
        super().restore(content)
        if content is not None:
            vars(self.history).update(content["history"])


class TrainingControl:
    """Runs a training: evaluations, callbacks, signals, checkpoints."""

    def __init__(
        self,
        training: UserTraining,
        user_model: UserModel,
        options: TrainingOptions,
        restore: Callable[[], None],
    ) -> None:
        self.training, self.user_model, self.options = training, user_model, options
        self.restore_switches = restore
        self.signals = SignalRecorder(signal.SIGINT, signal.SIGTERM)
        self.stopped = ""  # what asked the training to stop

    def scores(self, weights: Tensor) -> list[SplitScore]:
        """The score of parameters [P], which the callbacks are told; both on rank 0."""
        group, score = self.training.task.group, None
        if group.rank == 0:
            score = self._evaluate(weights)
        score = group.all_gather(score)[0]
        return [] if score is None else [SplitScore("given", score, 0.0)]

    def _evaluate(self, weights: Tensor) -> float | None:
        state, score = self.training.state, None

        def make_model() -> nn.Module:
            return self.user_model.with_weights(weights.cpu())

        if self.options.evaluate is not None:
            self.restore_switches()
            score = call_for_number("evaluate", self.options.evaluate(make_model().eval()))
        evaluation = Evaluation(
            step=state.step,
            steps=self.training.task.steps,
            score=score,
            threshold=float(state.threshold[0]),
            learning_rate=float(state.learning_rate[0]),
            make_model=make_model,
        )
        for callback in self.options.callbacks:
            self.restore_switches()
            if callback(evaluation):
                self.stopped = "a callback"
        return score

    def run(self, checkpoint: Path | None, bar: ProgressBar | None) -> tuple[str, bool]:
        """The status of the training, and whether it was asked to stop."""
        training, history = self.training, self.training.history

        def on_progress(step: int) -> None:
            if training.task.method.updates_rate_first:
                # A diverged run's state is dropped, and with it the rate of its last step.
                history.learning_rate[-1] = (
                    _scheduled_rate(training.state, training.task) if training.alive else math.nan
                )
            if bar is not None:
                bar(step)
            self.stopped = self.signals.came or self.stopped
            asked = training.task.group.any_rank(
                bool(self.stopped), training.state.parameters.device
            )
            if asked and step < training.task.steps and training.alive:
                raise InterruptedByUser(self.stopped or "another process")

        try:
            with self.signals.defer():
                outcomes = advance(
                    training,
                    checkpoint=checkpoint,
                    fingerprint=FORMAT,
                    save_every=self.options.checkpoint_every
                    or self.options.evaluate_every
                    or -(-training.task.steps // _CHECKPOINTS),
                    on_progress=on_progress,
                )
            return outcomes[0].status, bool(self.signals.came or self.stopped)
        except InterruptedByUser:
            return "interrupted", True
        finally:
            if bar is not None:
                bar.end()


@contextmanager
def noting_steps(released: Callable[[], int], planned: int) -> Iterator[None]:
    """Add to an error, also of user code or a second Ctrl-C, how many steps were released."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        steps = released()
        if steps:
            error.add_note(
                f"{steps} steps were released before this error; if any of their output was seen, "
                f"count all {planned} planned steps as spent, since the step at which a training "
                "stops may depend on the data"
            )
        raise


def _record_steps(history: History, config: TrainConfig) -> StepCallback:
    """A callback that appends C and rho of each step to the history, before they are updated."""

    def record(state: State, answers: Answers) -> None:
        history.step.append(state.step)
        history.threshold.append(float(state.threshold[0]))
        history.learning_rate.append(_scheduled_rate(state, config))

    return record


def _scheduled_rate(state: State, config: TrainConfig) -> float:
    factor = rate_factor(config.schedule, state.step, config.steps, config.warmup)
    return factor * float(state.learning_rate[0])
