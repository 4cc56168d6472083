"""One DP training of a user's module with a given noise multiplier, by the training loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import oso_dp
from oso_dp.api.checkpoints import check_group, check_identity, read_stored
from oso_dp.api.datasets import digest, format_types, widen
from oso_dp.api.model import History, PrivateModel, to_device, untrained_digests
from oso_dp.api.options import TrainingOptions
from oso_dp.api.privacy_cost import PrivacyCost, make_unused_steps
from oso_dp.api.progress_bar import ProgressBar
from oso_dp.api.statement import Statement, describe_tuning, list_releases
from oso_dp.api.user_training import TrainingControl, UserTraining, noting_steps
from oso_dp.api.users import make_users
from oso_dp.defaults import BATCH_SIZE, MAX_COUNT
from oso_dp.errors import OsoError
from oso_dp.gradients.precision import restore_switches
from oso_dp.gradients.random_numbers import seeded
from oso_dp.methods import Method, State
from oso_dp.methods.online import is_plain_sgd
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.process_group import ProcessGroup
from oso_dp.privacy.promise import EXAMPLE, USER
from oso_dp.privacy.sampling import PoissonSampling, count_steps
from oso_dp.training.loop import Training
from oso_dp.training.schedule_and_averaging import CONSTANT, rehearse_schedule
from oso_dp.training.task import Examples, TrainConfig, TrainingProblem
from oso_dp.training.torch_optimizer import TorchOptimizer
from oso_dp.training.user_model import Loss, UserModel, check_targets, count_classes

if TYPE_CHECKING:
    from oso_dp.api.budget import Budget


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

    resume_from: the result of an earlier training, which is continued. checkpoint: from
    `checkpoints.only_training`.
    """

    def __init__(
        self,
        user_model: UserModel,
        loss: Loss,
        examples: Examples,
        options: TrainingOptions,
        run_id: str,
        resume_from: PrivateModel | None = None,
        checkpoint: Path | None = None,
    ) -> None:
        self.user_model, self.loss, self.options = user_model, loss, options
        # One user's rows could make most of the first ones unusable.
        checks_rows = options.users is None
        self.examples = widen(examples, user_model.losses_by(loss), checks_rows)
        self.users = None
        if options.users is not None:
            self.users = make_users(options.users, len(self.examples), options.local_training)
        unit = EXAMPLE if self.users is None else USER
        n = len(self.examples) if self.users is None else len(self.users)
        self.records, size = n, options.batch_size
        self.batch_size = min(BATCH_SIZE, n) if size is None else size
        if self.batch_size > n:
            raise OsoError(f"batch_size: {size}; must be <= the number of {unit.plural}, {n}")
        self.sampling = PoissonSampling.of(self.batch_size, n, unit)
        if options.epochs * n > MAX_COUNT * self.batch_size:
            raise OsoError(f"epochs: {options.epochs:g}; must be at most {MAX_COUNT:g} steps")
        self.steps = count_steps(options.epochs, n, self.batch_size)
        self.run, self.resume_from = options.make_run(run_id), resume_from
        if resume_from is not None:
            _check_resumable(resume_from, options, self.sampling, n)
            # With the same seed, the resumed training must not repeat the earlier one's noise.
            run_id = f"{resume_from.run_id}/{resume_from.ledger.step_count}/{run_id}"
        self.group = ProcessGroup.current()
        self.checkpoint = checkpoint
        self.stored = self._read_checkpoint()
        if self.stored is not None:
            run_id = str(self.stored["run_id"])
        self.run = replace(self.run, run_id=self.group.all_gather(run_id)[0])

    def _read_checkpoint(self) -> dict[str, Any] | None:
        """The content of rank 0's checkpoint."""
        is_first = self.group.rank == 0
        own = read_stored(self.checkpoint) if is_first and self.checkpoint is not None else None
        return self.group.all_gather(own)[0] if self.group.count > 1 else own

    @property
    def last_step(self) -> int:
        """The number of the last step, counted from the first step of the earlier training."""
        return self.steps + (0 if self.resume_from is None else self.resume_from.ledger.step_count)

    def __call__(self, noise_multiplier: float, delta: float, progress: bool) -> TrainingResult:
        """Train with this noise multiplier in each step; delta: this run's part of the guarantee's.

        Torch's global switches are restored for each call of `evaluate`, and afterwards.
        """
        if torch.is_inference_mode_enabled():
            raise OsoError("train_private: called in inference mode, which has no gradients")
        with restore_switches() as restore, torch.enable_grad():
            return self._train(noise_multiplier, delta, progress, restore)

    def _train(
        self, noise_multiplier: float, delta: float, progress: bool, restore: Callable[[], None]
    ) -> TrainingResult:
        options, device, resume_from = self.options, self.options.torch_device(), self.resume_from
        if callable(options.schedule):
            rehearse_schedule(options.schedule, self.last_step)
        optimizer = self._optimizer(device)
        config = TrainConfig(
            method=_make_method(optimizer, options),
            noise_multiplier=noise_multiplier,
            batch_size=self.batch_size,
            steps=self.last_step,
            evaluate_every=options.evaluate_every or self.last_step,
            device=options.device,
            randomness=options.randomness,
            delta=delta,
            precision=options.precision,
            microbatch_size=options.microbatch_size,
            augment=options.augment,
            views=options.augmentations,
            schedule=None if options.schedule == CONSTANT else options.schedule,
            warmup=options.warmup,
            averaging=options.averaging or None,
            group=self.group,
        )
        identity = self._identity(config)
        self._check_group(identity)
        history = History() if resume_from is None else resume_from.history.copy()
        with seeded(0, device):  # of what the model draws before its first step
            problem = self._problem(config, device)
            problem.optimizer = optimizer
            training = UserTraining(config, self.run, problem, history, identity)
        control = TrainingControl(training, self.user_model, options, restore)
        problem.scores = control.scores
        if resume_from is not None:
            _resume(training, resume_from)
        if self.stored is not None:  # on every rank, whoever was given the file
            check_identity(self.checkpoint, self.stored["identity"], identity)
            training.restore(to_device(self.stored, device))
        is_first = self.group.rank == 0
        bar = ProgressBar(config.steps) if progress and is_first else None
        with noting_steps(lambda: training.ledger(0).step_count, config.steps):
            status, stopped = control.run(self.checkpoint if is_first else None, bar)
            history.add_evaluations(training.outcomes[0].evaluations)
            # Weights that are not finite are useless: a diverged training has the initial ones.
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
                state=_stored_state(training),
                trained_with=options.resumable_options(),
                stopped=stopped,
                unused_steps=make_unused_steps(
                    ledger, self.last_step - ledger.step_count, noise_multiplier
                ),
            )

    def _identity(self, config: TrainConfig) -> dict[str, Any]:
        """Arguments and shapes that must equal those in the checkpoint; no values of examples."""
        kept = ("randomness", "seed", "precision", "microbatch_size", "augmentations")
        return {
            "model": type(self.user_model.model).__name__,
            "parameters": [[name, *shape] for name, shape in self.user_model.shapes],
            "untrained values": untrained_digests(self.user_model.model),
            "examples": self.records,
            "users": None if self.users is None else "given",
            "local": None if self.users is None else asdict(self.options.local_training),
            "types": str(format_types(self.examples)),
            "resume_from": None if self.resume_from is None else self.resume_from.run_id,
            **{name: getattr(self.options, name) for name in kept},
            **self.options.resumable_options(),
            "device": self.options.torch_device().type,
            "optimizer": self.options.optimizer is not None,
            "scheduler": self.options.scheduler is not None,
            "batch_size": self.batch_size,
            "steps": config.steps,
            "processes": self.group.count,
            "noise_multiplier": config.noise_multiplier,
        }

    def _check_group(self, identity: dict[str, Any]) -> None:
        """OsoError unless all processes train the same model on the same data."""
        if self.group.count > 1:
            evaluate_every = self.options.evaluate_every
            check_group(self.group.all_gather({**identity, "evaluate_every": evaluate_every}))
            if len({*self.group.all_gather(digest(self.examples))}) > 1:
                # Without the digests, which are of examples.
                raise OsoError(
                    "data: differ between the processes of the group; must be the same examples in "
                    "the same order"
                )

    def _optimizer(self, device: torch.device) -> TorchOptimizer | None:
        """The torch optimizer that moves the parameters, of a copy of the model."""
        make_optimizer, make_scheduler = self.options.optimizer, self.options.scheduler
        if make_optimizer is None:
            return None

        def make() -> TorchOptimizer:
            model = copy.deepcopy(self.user_model.model).to(device).float()
            return TorchOptimizer(model, make_optimizer, make_scheduler)

        if make_scheduler is not None:
            make().rehearse_scheduler(self.last_step)
        return make()

    def _problem(self, config: TrainConfig, device: torch.device) -> TrainingProblem:
        """What is trained; OsoError if model, loss and examples do not fit."""
        own, examples = self.user_model, self.examples
        engine = own.make_engine(self.loss, examples, config.product_precision, device)
        initial = self.group.broadcast(own.weights(device))
        own.check_inputs(examples)
        check_targets(engine, initial, examples)
        classes = count_classes(engine, initial, examples)
        return TrainingProblem(
            engine,
            examples,
            initial[None],
            classes=classes,
            users=self.users,
            local=self.options.local_training,
        )

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
            examples=self.records,
            unit=self.sampling.unit.name,
            local="" if self.users is None else str(self.options.local_training),
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
            evaluated=self.options.evaluate is not None,
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
    unit = sampling.unit
    if earlier.unit != unit.name:
        given = "left out" if earlier.unit == EXAMPLE.name else "given"
        raise OsoError(f"users: must be {given}, {_AS}, which protects one {earlier.unit}")
    if unit == USER and earlier.local != str(options.local_training):
        raise OsoError(f"local: {options.local_training}; must be {earlier.local}, {_AS}")
    if earlier.examples != examples:
        raise OsoError(f"data: {examples} {unit.plural}; must be {earlier.examples}, {_AS}")
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


def _make_method(optimizer: TorchOptimizer | None, options: TrainingOptions) -> Method:
    """The method. Online adapts only C unless the optimizer is plain SGD."""
    method = options.make_method()
    adapts = getattr(method.options, "learning_rate_rate", 0.0) != 0.0
    if optimizer is None or not adapts or is_plain_sgd(optimizer.optimizer):
        return method
    if options.method_options.get("learning_rate_rate", 0.0) != 0.0:
        raise OsoError(
            f"learning_rate_rate: has no effect with {type(optimizer.optimizer).__name__}, since "
            "equation (21) is derived for plain SGD; leave it out to adapt C alone"
        )
    return type(method)(replace(method.options, learning_rate_rate=0.0), method.momentum)


def _stored_state(training: Training) -> dict[str, Any]:
    """The state from which a training can be resumed, on the CPU."""
    optimizer = training.problem.optimizer
    state = {**vars(training.state)}
    if optimizer is not None:
        state[_OPTIMIZER] = optimizer.state_dict()
    return to_device(state, torch.device("cpu"))


def _resume(training: Training, resume_from: PrivateModel) -> None:
    """Continue the earlier training, with the new noise multiplier."""
    stored = copy.deepcopy(resume_from.state)
    of_optimizer, optimizer = stored.pop(_OPTIMIZER, None), training.problem.optimizer
    if (of_optimizer is None) != (optimizer is None):
        raise OsoError(f"optimizer: must be {'None' if of_optimizer is None else 'given'}, {_AS}")
    state = State(**to_device(stored, torch.device(training.task.device)))
    state.noise_multiplier = training.task.noise_multiplier
    try:
        if optimizer is not None and of_optimizer is not None:
            optimizer.load_state_dict(of_optimizer)
        training.resume(state, [copy.deepcopy(resume_from.ledger)])
    except ValueError as error:
        raise OsoError(f"resume_from: {error}") from error


_OPTIMIZER = "optimizer"  # in the stored state
