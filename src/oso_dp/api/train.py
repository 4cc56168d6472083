"""`train_private`: DP-SGD training of a user's module on a user's data within a privacy budget."""

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.formatting import format_spent_epsilon
from oso_dp.api.budget import Budget, remaining_noise_multiplier
from oso_dp.api.callbacks import Evaluation
from oso_dp.api.checkpoints import only_training
from oso_dp.api.datasets import open_examples
from oso_dp.api.defaults import resolve_method_options
from oso_dp.api.model import PrivateModel
from oso_dp.api.model_check import describe_replaced, without_batch_norm
from oso_dp.api.options import TrainingOptions, check_effects
from oso_dp.api.privacy_cost import PrivacyCost
from oso_dp.api.trainer import Trainer
from oso_dp.api.user_training import noting_steps
from oso_dp.api.users import make_local_training
from oso_dp.defaults import EPOCHS
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.noise_range import check_ledgers
from oso_dp.study.cohort import Run
from oso_dp.training.user_model import Loss, UserModel
from oso_dp.value_checks import as_plain


def train_private(
    model: nn.Module,
    loss: Loss,
    data: Any,
    *,
    epsilon: float,
    delta: float,
    epochs: float = EPOCHS,
    batch_size: int | None = None,
    method: str | None = None,
    learning_rate: float | None = None,
    threshold: float | None = None,
    quantile: float | None = None,
    momentum: float | None = None,
    schedule: str | Callable[[int, int], float] | None = None,
    warmup: float | None = None,
    averaging: float | None = None,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
    scheduler: Callable[[torch.optim.Optimizer], LRScheduler] | None = None,
    accountant: str = "rdp",
    randomness: str = "system",
    seed: int | None = None,
    device: str = "cpu",
    precision: str = "float32",
    microbatch_size: int | None = None,
    augment: Callable[[Any], Any] | None = None,
    augmentations: int = 1,
    users: Any = None,
    local: Mapping[str, Any] | None = None,
    evaluate: Callable[[nn.Module], float] | None = None,
    evaluate_every: int | None = None,
    callbacks: Sequence[Callable[[Evaluation], bool | None]] = (),
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    fix: bool = False,
    resume_from: PrivateModel | None = None,
    progress: bool = True,
    **method_options: Any,
) -> PrivateModel:
    """Train a copy of `model` with (epsilon, delta)-differential privacy for each example or user.

    Ctrl-C and SIGTERM end the training after the current step and return the model so far. Its
    epsilon counts all planned steps, as that of a diverged training does: the step at which a
    training ends may depend on the data. A call with `resume_from` can spend the budget of the
    steps not taken, if the interruption did not depend on what was released.

    Args:
        model: a module that treats examples independently (`oso_dp.check` says how it would be
            trained). Frozen parameters stay unchanged. Dropout has a mask for each example.
        loss: a function of outputs and targets of B examples that returns B losses, not averaged;
            several losses for each example, [B, ...], are averaged.
        data: (inputs, targets), tensors, arrays or tables with one row per example; or a map-style
            data set of such pairs; or its DataLoader, of which the data set, the worker processes
            and `collate_fn` (for one example at a time) are used: batches are sampled here.
        epsilon: the budget of this training and of all that `resume_from` spent; > 0.
        delta: the delta of the guarantee; in (0, 1). It should be well below 1/n.
        epochs: the training takes T = ceil(epochs n / batch_size) steps on n examples, or users.
        batch_size: the expected batch size B of Poisson sampling, of examples or, with `users`, of
            users. Default: 512, or n if smaller.
        method: the DP algorithm, such as "online" (OSO-DPSGD, Galli et al. 2024, Algorithm 1) or
            "fixed_threshold" (DP-SGD, Abadi et al. 2016). Default: Online from rho_0 = 3 and
            C_0 = 1, without momentum, with a linear schedule, which did best without a search.
        learning_rate: rho_0. Default if a method is given: 1 for methods that have one, or the
            method's option of this name.
        threshold: C, the clipping threshold, for methods that do not set it.
        quantile: gamma, for methods that clip at a quantile.
        momentum: in [0, 1), for methods that use it. Default: 0.9; without a method 0.
        schedule: of the learning rate: "constant", "linear" or "cosine" (decay to 0 over all steps,
            those of `resume_from` included), or a function of the step, from 1, and the number of
            steps that returns a factor. Default: "constant"; without a method "linear", except with
            `optimizer` or several local steps of a user.
        warmup: the fraction of the steps over which the rate also grows linearly from 0; in [0, 1).
        averaging: decay of an exponential moving average of the weights, which the returned model
            has; in [0, 1), 0 for none. Default: 0.
        optimizer: a function of a copy of the model that returns a torch optimizer of its trained
            parameters, such as `lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3)`. It
            moves them by the sanitized gradient, in place of the method's own step; C adapts as
            before, and rho, a factor of its learning rates, if it is plain SGD.
        scheduler: a function of that optimizer that returns a torch scheduler; it takes a step
            after each step of the training.
        accountant: "rdp", or "pld" (about 5 % less noise, more time).
        randomness: "system" (a cryptographic generator) or "seeded" (public data only).
        seed: an integer; required for seeded randomness, and only then.
        device: "cpu" or "cuda".
        precision: of matrix products: "float32", "tf32" or "bfloat16".
        microbatch_size: examples per forward pass, or users whose updates are held at once, which
            limits memory. Default: chosen by layer types and input size.
        augment: a function of one example's inputs that returns them changed at random, with
            torch's generator; it must not keep examples.
        augmentations: K, augmented views of each example, whose gradients are averaged before
            clipping (De et al. 2022).
        users: an id for each row, integers or texts. The training then protects each user: all
            rows with one id, however many. A batch is drawn of users, each step clips a user's
            change of the parameters, and n is the number of users, which is public. How many rows
            a user has is private; the duration of a step depends on it.
        local: what each user computes in a step, by name: `epochs` (1), `batch_size` (all rows),
            `learning_rate` (1), `rows_per_user` (the first ones; all). Default: FedSGD, the mean
            gradient of the user's rows. Several local steps are FedAvg: `learning_rate` is then the
            server's, without a method 1, which averages the updates.
        evaluate: a function of a copy of the model, in eval mode, that returns a number, computed
            on public data; its values are in the history.
        evaluate_every: steps between two evaluations. Default: only after the last step.
        callbacks: functions called with an `Evaluation` after each evaluation; if one returns True,
            the training ends as by Ctrl-C.
        checkpoint: a file for the state of this training. If it exists, the same call continues
            from it. It is written every `checkpoint_every` steps, before each evaluation, and when
            the training ends or is interrupted.
        checkpoint_every: steps between two checkpoints. Default: as `evaluate_every`, without it a
            twentieth of the training.
        fix: whether GroupNorm replaces BatchNorm, which mixes examples (`replace_batch_norm`).
        resume_from: an earlier result on the same data. Training continues from it with the noise
            that the rest of epsilon allows. C, rho, momentum, schedule, averaging and the method's
            options stay unless given anew.
        progress: whether to show a progress bar.
        **method_options: the method's options, by name.

    Returns:
        The trained model with its statement, ledgers and history.

    Raises:
        OsoError: before training, for invalid or inconsistent arguments.

    Example:
        >>> trained = train_private(model, torch.nn.CrossEntropyLoss(reduction="none"),
        ...     (inputs, targets), epsilon=3.0, delta=1e-5, epochs=10)
        >>> print(trained.statement)
    """
    budget = Budget(epsilon, delta, accountant)
    if resume_from is not None and not isinstance(resume_from, PrivateModel):
        raise OsoError(
            f"resume_from: {type(resume_from).__name__}; must be a result of train_private"
        )
    start = {
        "learning_rate": as_plain(learning_rate),
        "threshold": as_plain(threshold),
        "quantile": as_plain(quantile),
    }
    overrides = {
        "momentum": momentum,
        "schedule": schedule,
        "warmup": warmup,
        "averaging": averaging,
    }
    options = TrainingOptions(
        epochs=epochs,
        batch_size=batch_size,
        **resolve_method_options(
            method,
            overrides,
            start,
            method_options,
            None if resume_from is None else resume_from.trained_with,
            has_optimizer=optimizer is not None,
            has_local_steps=users is not None and not make_local_training(local).is_one_step,
        ),
        optimizer=optimizer,
        scheduler=scheduler,
        randomness=randomness,
        seed=seed,
        device=device,
        precision=precision,
        microbatch_size=microbatch_size,
        augment=augment,
        augmentations=augmentations,
        users=users,
        local=local,
        evaluate=evaluate,
        evaluate_every=evaluate_every,
        callbacks=callbacks,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )
    check_effects(options.method, optimizer, learning_rate, momentum)
    with (
        only_training(options.checkpoint) as path,
        open_examples(data, options.torch_device(), is_public=randomness == "seeded") as examples,
    ):
        replaced: tuple[str, ...] = ()
        if fix:
            model, replaced = without_batch_norm(model)
        user_model = UserModel(model)
        if resume_from is not None:
            user_model = _earlier_model(user_model, resume_from)
        run_id = uuid4().hex if seed is None else f"private {seed}"
        trainer = Trainer(user_model, loss, examples, options, run_id, resume_from, path)
        budget.warn_of_large_delta(trainer.sampling, trainer.records)
        if resume_from is not None:
            _check_start(resume_from, start, trainer.run)
        spent = (
            PrivacyCost(Ledger(trainer.sampling))
            if resume_from is None
            else resume_from.privacy_cost
        )
        if randomness == "system":
            check_ledgers(budget.delta, spent.ledgers())
        noise = remaining_noise_multiplier(
            trainer.sampling,
            trainer.steps,
            budget.epsilon,
            budget.delta,
            accountant,
            spent.ledgers(),
        )
        result = trainer(noise, budget.delta, progress)
    # The unused steps of an earlier training do not count: see docs/internals/privacy.md.
    cost = replace(spent, ledger=result.ledger, unused_steps=result.unused_steps)
    earlier = None if resume_from is None else resume_from.statement
    with noting_steps(lambda: result.ledger.step_count, trainer.last_step):
        trained = trainer.describe(
            result,
            budget,
            cost,
            scored="" if earlier is None else earlier.scored,
            validation=0 if earlier is None else earlier.validation_examples,
            changes=describe_replaced(replaced) or ("" if earlier is None else earlier.changes),
        )
    if trained.status == "interrupted" and progress:
        statement = trained.statement
        spent_epsilon = compute_epsilon(cost.ledgers(), budget.delta, accountant)
        print(
            f"stopped at step {statement.steps} of {statement.planned_steps}: these steps cost "
            f"epsilon {format_spent_epsilon(spent_epsilon)} of {budget.epsilon:g}, at delta "
            f"{budget.delta!r}; the statement's {format_spent_epsilon(statement.epsilon)} counts "
            "all planned steps, since the step at which a training stops may depend on the data",
            file=sys.stderr,
        )
    return trained


def _earlier_model(user_model: UserModel, resume_from: PrivateModel) -> UserModel:
    """The model with the earlier training's weights; OsoError if `user_model` is another model."""
    earlier = UserModel(resume_from.model)
    if type(user_model.model) is not type(earlier.model) or user_model.shapes != earlier.shapes:
        raise OsoError(
            f"model: {type(user_model.model).__name__}; must have the class and parameters of "
            f"resume_from's {type(earlier.model).__name__}"
        )
    return earlier


def _check_start(resume_from: PrivateModel, start: Mapping[str, float | None], run: Run) -> None:
    """Initial values have no effect on a resumed training, so other ones than its own are an error.

    Its own are those of its first step and the current ones.
    """
    history = resume_from.history
    first = {"learning_rate": history.learning_rate[:1], "threshold": history.threshold[:1]}
    for name, value in start.items():
        current = resume_from.state[name]
        allowed = [*first.get(name, []), *([] if current is None else current.tolist())]
        if value is None or getattr(run, name) is None:  # a constant of the method
            continue
        if not any(math.isclose(value, other, rel_tol=1e-6) for other in allowed):
            own = " or ".join(f"{other:g}" for other in dict.fromkeys(allowed))
            raise OsoError(
                f"{name}: {value:g}; has no effect with resume_from, whose {name} stays ({own}); "
                "omit it"
            )
