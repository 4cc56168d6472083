"""`train_private`: a user's module on a user's data, within epsilon at delta."""

from __future__ import annotations

import copy
import math
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import torch
from torch import Tensor, nn

import oso_dp
from oso_dp.accounting.accountants import epsilon_of
from oso_dp.errors import Interrupted, OsoError
from oso_dp.gradients import PRECISIONS
from oso_dp.interrupts import Interrupts
from oso_dp.methods import Method, State, find_method
from oso_dp.methods.given import check_number, settings_of
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.private.budget import check_accountant, noise_for
from oso_dp.private.examples import examples_of
from oso_dp.private.progress_bar import ProgressBar
from oso_dp.private.statement import NOT_TUNED, Statement, last_releases
from oso_dp.private.trained import History, PrivateModel
from oso_dp.study.cohort import Run
from oso_dp.training.evaluate import SplitScore
from oso_dp.training.loop import Training, Watch, advance
from oso_dp.training.own_model import Loss, OwnModel, classes_of
from oso_dp.training.problem import Problem, Recipe

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers

_USUAL_BATCH = 512


def train_private(
    model: nn.Module,
    loss: Loss,
    data: Any,
    *,
    epsilon: float,
    delta: float,
    epochs: float = 10,
    batch_size: int | None = None,
    method: str = "online",
    learning_rate: float = 1.0,
    threshold: float | None = None,
    quantile: float | None = None,
    momentum: float = 0.9,
    accountant: str = "rdp",
    randomness: str = "system",
    seed: int | None = None,
    device: str = "cpu",
    precision: str = "float32",
    piece: int | None = None,
    evaluate: Callable[[nn.Module], float] | None = None,
    evaluate_every: int | None = None,
    after: PrivateModel | None = None,
    progress: bool = True,
    **settings: float,
) -> PrivateModel:
    """Train a copy of `model` so that each example of `data` is protected: (epsilon, delta).

    loss: outputs and targets of B examples to B losses, never averaged over them.
    data: (inputs, targets), tensors or arrays with one row per example, or a data set of such
    pairs with a length and an index.
    epochs, batch_size: ceil(epochs n / batch_size) steps; the batch size is the expected one of
    Poisson sampling (512, or n where there are fewer).
    method: online, or another of the study's. learning_rate: rho_0. threshold: C, where the method
    does not choose its own; quantile: gamma, where it follows one. settings: its constants.
    accountant: rdp, or pld, which needs about 5 % less noise and more time.
    randomness: system (a cryptographic generator), or seeded with a `seed`, for public data only.
    piece: how many examples go through the model at a time, so that a large batch fits into memory.
    evaluate: called with a copy of the model every `evaluate_every` steps and at the end, on data
    that need no protection; its numbers stand in the history.
    after: what an earlier call gave on the same data; its ledger counts, and training goes on from
    it with the noise that what is left of epsilon asks for. C, rho and the momentum go on, too.
    Ctrl-C ends it after a step: what was released is paid for and returned.

    Raises OsoError, one line, before anything is trained, for whatever does not fit together.
    """
    check_number("epsilon", epsilon, gt=0)
    check_number("delta", delta, gt=0, lt=1)
    check_number("epochs", epochs, gt=0)
    check_number("learning_rate", learning_rate, gt=0)
    check_number("momentum", momentum, ge=0, lt=1)
    whole = {"batch_size": batch_size, "piece": piece, "evaluate_every": evaluate_every}
    for name, number in whole.items():
        if number is not None and (type(number) is not int or number < 1):
            raise OsoError(f"{name} {number!r}: must be a whole number above 0")
    check_accountant(accountant)
    if precision not in PRECISIONS:
        raise OsoError(f"precision {precision!r}: allowed are {', '.join(PRECISIONS)}")
    if (randomness == "seeded") != (seed is not None):
        raise OsoError("seed: goes with randomness='seeded', which goes with a seed")
    kind = find_method(method)
    if not kind.private:
        raise OsoError(f"method {method!r}: protects nobody")
    trained_by = kind(settings_of(kind.Settings, settings, "train_private"), momentum)
    run = _run(trained_by, learning_rate, threshold, quantile, seed)
    place = _device(device)
    examples = examples_of(data, place)
    own = OwnModel(model if after is None else after.model)
    size = min(_USUAL_BATCH, len(examples)) if batch_size is None else batch_size
    if size > len(examples):
        raise OsoError(f"batch_size {size}: must be at most the {len(examples)} examples")
    sampling = PoissonSampling(size / len(examples))
    if after is not None:
        _check_goes_on(after, method, sampling, len(examples), randomness)
        # Of a seed's streams none is used twice, whatever else is trained on from the same model.
        run = replace(run, run_id=f"{after.run_id}/{after.ledger.step_count}/{run.run_id}")
    steps = math.ceil(epochs * len(examples) / size)
    spent = None if after is None else after.ledger
    recipe = Recipe(
        method=trained_by,
        noise_multiplier=noise_for(sampling, steps, epsilon, delta, accountant, spent),
        batch_size=size,
        steps=steps + (0 if spent is None else spent.step_count),
        evaluate_every=steps if evaluate_every is None else evaluate_every,
        device=device,
        randomness=randomness,
        precision=precision,
        piece=piece,
    )
    history = History() if after is None else after.history.copy()
    code, first = own.code(loss, examples, recipe.products, place), own.weights(place)
    problem = Problem(
        code,
        examples,
        first[None],
        scores=_scores(own, evaluate),
        classes=classes_of(code, first, examples),
    )
    training = Training(recipe, [run], problem, _watch(history))
    if after is not None:
        try:
            training.go_on(_state(after, recipe), [copy.deepcopy(after.ledger)])
        except ValueError as error:
            raise OsoError(f"after: {error}") from error
    status = _train(training, ProgressBar(recipe.steps) if progress else None)
    history.take_scores(training.outcomes[0].evaluations)
    ledger = training.ledger(0)
    statement = Statement(
        epsilon=epsilon_of([ledger], delta, accountant),
        delta=delta,
        budget=epsilon,
        accountant=accountant,
        examples=len(examples),
        sampling_rate=sampling.rate,
        steps=ledger.step_count,
        planned_steps=recipe.steps,
        method=method,
        releases=last_releases(ledger),
        randomness=randomness,
        tuning=NOT_TUNED,
        versions=f"oso {oso_dp.__version__}, torch {torch.__version__}",
    )
    if status == "interrupted" and progress:
        print(
            f"stopped at step {statement.steps} of {recipe.steps}: epsilon {statement.epsilon:.4g} "
            f"of {epsilon:g} is spent, at delta {delta:g}",
            file=sys.stderr,
        )
    # Weights that are not finite are nobody's: of a training that diverged, the first ones.
    weights = (training.state.parameters if training.alive else problem.first)[0]
    made = own.with_weights(weights.cpu())
    return PrivateModel(
        made, ledger, statement, history, status, run.run_id, dict(vars(training.state))
    )


def _run(
    method: Method,
    learning_rate: float,
    threshold: float | None,
    quantile: float | None,
    seed: int | None,
) -> Run:
    given = {"learning_rate": learning_rate, "threshold": threshold, "quantile": quantile}
    for name, value in given.items():
        if value is not None:
            check_number(name, value, gt=0, **({"lt": 1} if name == "quantile" else {}))
    point = method.starting_point({k: v for k, v in given.items() if v is not None})
    for name in method.search:
        if point.get(name) is None:
            raise OsoError(f"method {method.name!r}: needs a {name}")
    run_id = uuid4().hex if seed is None else f"private {seed}"
    return Run(
        run_id, seed or 0, point["learning_rate"], point.get("threshold"), point.get("quantile")
    )


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise OsoError(f"device {name!r}: not known; allowed are cpu, cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise OsoError("device cuda: no CUDA device is visible here; allowed is cpu")
    return device


def _check_goes_on(
    after: PrivateModel, method: str, sampling: PoissonSampling, examples: int, randomness: str
) -> None:
    earlier = after.statement
    if earlier.randomness != randomness:
        raise OsoError(
            f"after: was trained with randomness {earlier.randomness!r}, which must stay: a "
            "statement has one"
        )
    if after.status == "diverged":
        raise OsoError("after: this training diverged; begin anew")
    if earlier.examples != examples:
        raise OsoError(f"after: was trained on {earlier.examples} examples, these are {examples}")
    if earlier.method != method:
        raise OsoError(f"after: was trained by {earlier.method!r}, not by {method!r}")
    if earlier.sampling_rate != sampling.rate:
        size = round(earlier.sampling_rate * examples)
        raise OsoError(
            f"after: was trained with batch_size {size}; the ledger has one sampling rate"
        )


def _state(after: PrivateModel, recipe: Recipe) -> State:
    """Where the earlier training ended, with the noise of what is to come."""
    state = State(**copy.deepcopy(after.state))
    state.noise_multiplier = recipe.noise_multiplier
    return state


def _watch(history: History) -> Watch:
    def watch(state: State, answers: Answers) -> None:
        history.step.append(state.step)
        history.threshold.append(float(state.threshold[0]))
        history.learning_rate.append(float(state.learning_rate[0]))

    return watch


def _scores(
    own: OwnModel, evaluate: Callable[[nn.Module], float] | None
) -> Callable[[Tensor], list[SplitScore]]:
    def scores(weights: Tensor) -> list[SplitScore]:
        if evaluate is None:
            return []
        return [SplitScore("given", float(evaluate(own.with_weights(weights.cpu()))), 0.0)]

    return scores


def _train(training: Training, bar: ProgressBar | None) -> str:
    interrupts = Interrupts(signal.SIGINT)

    def on_progress(step: int) -> None:
        if bar is not None:
            bar(step)
        if interrupts.came and step < training.task.steps:
            raise Interrupted(interrupts.came)

    try:
        with interrupts.waiting():
            return advance(training, on_progress=on_progress)[0].status
    except Interrupted:
        return "interrupted"
    except Exception as error:  # of the user's model, loss, data or `evaluate`
        error.add_note(
            f"{training.ledger(0).step_count} steps were released before; whoever saw anything of "
            "them has to count them as spent"
        )
        raise
    finally:
        if bar is not None:
            bar.end()
