"""`train_private`: a user's module on a user's data, within epsilon at delta."""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from torch import nn

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.formatting import format_spent_epsilon
from oso_dp.api.arguments import as_plain
from oso_dp.api.budget import Budget, remaining_noise_multiplier
from oso_dp.api.datasets import make_examples
from oso_dp.api.defaults import resolve_method_options
from oso_dp.api.model import PrivateModel
from oso_dp.api.options import TrainingOptions
from oso_dp.api.privacy_cost import PrivacyCost
from oso_dp.api.trainer import Trainer
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger
from oso_dp.study.cohort import Run
from oso_dp.training.user_loss import Loss
from oso_dp.training.user_model import UserModel


def train_private(
    model: nn.Module,
    loss: Loss,
    data: Any,
    *,
    epsilon: float,
    delta: float,
    epochs: float = 10,
    batch_size: int | None = None,
    method: str | None = None,
    learning_rate: float | None = None,
    threshold: float | None = None,
    quantile: float | None = None,
    momentum: float | None = None,
    schedule: str | None = None,
    averaging: float | None = None,
    accountant: str = "rdp",
    randomness: str = "system",
    seed: int | None = None,
    device: str = "cpu",
    precision: str = "float32",
    microbatch_size: int | None = None,
    evaluate: Callable[[nn.Module], float] | None = None,
    evaluate_every: int | None = None,
    resume_from: PrivateModel | None = None,
    progress: bool = True,
    **settings: float,
) -> PrivateModel:
    """Train a copy of `model` so that each example of `data` is protected: (epsilon, delta).

    model: any module whose layers do not mix examples; frozen parameters stay as they are.
    loss: outputs and targets of B examples to B losses, never averaged over them.
    data: (inputs, targets), tensors or arrays with one row per example, or a data set of such
    pairs with a length and an index.
    epsilon, delta: the budget of this training, with all that an earlier one (`after`) spent.
    epochs, batch_size: ceil(epochs n / batch_size) steps; the batch size is the expected one of
    Poisson sampling (512, or n where there are fewer).
    method: online, or another of the study's. Where none is said: the one that did best without a
    search (`oso_dp.study.default_points.RECOMMENDED`), with its starting values and schedule.
    learning_rate: rho_0 (1 where the method begins with one).
    threshold: C, where the method does not choose its own.
    quantile: gamma, where the method follows one.
    momentum: of the descent, from 0, below 1 (0.9).
    schedule: of the learning rate, constant or linear: it falls to zero over all steps, those of
    `after` counted (constant, where a method is said).
    averaging: decay of an exponential average of the weights, which the model then has; 0 is none,
    as it is where a method is said.
    settings: the method's constants, by name.
    accountant: rdp, or pld, which needs about 5 % less noise and more time.
    randomness: system (a cryptographic generator), or seeded with a `seed`, for public data only.
    device: cpu or cuda.
    precision: float32, tf32 or bfloat16: how products are computed.
    piece: how many examples go through the model at a time, so that a large batch fits into memory.
    evaluate: called with a copy of the model every `evaluate_every` steps and at the end, on data
    that need no protection; its numbers stand in the history.
    after: what an earlier call gave on the same data; its ledger counts, and training goes on from
    it with the noise that what is left of epsilon asks for. C and rho go on, too, and so does how
    it was trained: momentum, schedule, averaging and constants stay where none are said.
    progress: whether a bar shows how far it is.

    Ctrl-C ends it after a step: what was released is returned, and paid for with all steps that
    were planned, as it is where a training diverges. `after` it, what is left of the budget by the
    steps that were made can be spent, if the moment of stopping was not chosen by looking at them.

    Raises OsoError, one line, before anything is trained, for whatever does not fit together.
    """
    budget = Budget(epsilon, delta, accountant)
    if resume_from is not None and not isinstance(resume_from, PrivateModel):
        raise OsoError(f"after: must be what train_private gave, not {type(resume_from).__name__}")
    start = {
        "learning_rate": as_plain(learning_rate),
        "threshold": as_plain(threshold),
        "quantile": as_plain(quantile),
    }
    overrides = {"momentum": momentum, "schedule": schedule, "averaging": averaging}
    choices = TrainingOptions(
        epochs=epochs,
        batch_size=batch_size,
        **resolve_method_options(
            method,
            overrides,
            start,
            settings,
            None if resume_from is None else resume_from.trained_with,
        ),
        randomness=randomness,
        seed=seed,
        device=device,
        precision=precision,
        microbatch_size=microbatch_size,
        evaluate=evaluate,
        evaluate_every=evaluate_every,
    )
    examples = make_examples(data, choices.torch_device())
    user_model = UserModel(model)
    if resume_from is not None:
        user_model = _resume_options(user_model, resume_from)
    run_id = uuid4().hex if seed is None else f"private {seed}"
    training = Trainer(user_model, loss, examples, choices, run_id, resume_from)
    if resume_from is not None:
        _check_start(resume_from, start, training.run)
    spent = (
        PrivacyCost(Ledger(training.sampling)) if resume_from is None else resume_from.privacy_cost
    )
    noise = remaining_noise_multiplier(
        training.sampling, training.steps, budget.epsilon, budget.delta, accountant, spent.ledgers()
    )
    ended = training(noise, progress)
    # Steps that an earlier training left unmade do not count: see docs/internals/privacy.md.
    paid = replace(spent, ledger=ended.ledger, unused_steps=ended.unused_steps)
    earlier = None if resume_from is None else resume_from.statement
    made = training.describe(
        ended,
        budget,
        paid,
        scored="" if earlier is None else earlier.scored,
        validation=0 if earlier is None else earlier.validation_examples,
    )
    if made.status == "interrupted" and progress:
        statement, so_far = (
            made.statement,
            compute_epsilon(paid.ledgers(), budget.delta, accountant),
        )
        print(
            f"stopped at step {statement.steps} of {statement.planned_steps}: these steps cost "
            f"epsilon {format_spent_epsilon(so_far)} of {budget.epsilon:g}, at delta "
            f"{budget.delta!r}; "
            f"the statement's {format_spent_epsilon(statement.epsilon)} counts all that were "
            "planned, "
            "since the moment of a stop may tell something",
            file=sys.stderr,
        )
    return made


def _resume_options(user_model: UserModel, resume_from: PrivateModel) -> UserModel:
    """With the earlier training's weights; OsoError where those are of another model."""
    earlier = UserModel(resume_from.model)
    if type(user_model.model) is not type(earlier.model) or user_model.shapes != earlier.shapes:
        raise OsoError(
            f"model: after goes on with the model that it has, a {type(earlier.model).__name__}; "
            f"this {type(user_model.model).__name__} is another one"
        )
    return earlier


def _check_start(resume_from: PrivateModel, start: Mapping[str, float | None], run: Run) -> None:
    """Starting values have no effect on what goes on: whoever says other ones expects one."""
    history = resume_from.history
    went = {"learning_rate": history.learning_rate[:1], "threshold": history.threshold[:1]}
    for name, said in start.items():
        now = resume_from.state[name]
        known = [*went.get(name, []), *([] if now is None else now.tolist())]
        if said is None or getattr(run, name) is None:  # a constant of the method
            continue
        if not any(math.isclose(said, value, rel_tol=1e-6) for value in known):
            began = " or ".join(f"{value:g}" for value in dict.fromkeys(known))
            raise OsoError(
                f"after: its {name} goes on; {name} {said:g} would do nothing (it is {began})"
            )
