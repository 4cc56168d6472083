"""`search_private`: a hyperparameter search over a grid within one (epsilon, delta) budget.

By composition, all trainings are released and counted. By random stopping (Papernot and Steinke
2022), a random number of random grid points are trained and only the best model is released.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from torch import nn

from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.accounting.search_accounting.random_stopping import (
    STOPPING_ETA,
    RandomStoppingSearch,
    draw_number_of_runs,
)
from oso_dp.api.budget import Budget, remaining_noise_multiplier
from oso_dp.api.datasets import open_examples
from oso_dp.api.grid import GridPoint, make_grid
from oso_dp.api.model import History, PrivateModel
from oso_dp.api.privacy_cost import (
    STOPPING_DISTRIBUTIONS,
    PrivacyCost,
    RandomStopping,
    make_unused_steps,
)
from oso_dp.api.scoring import NoisyScorer, PerExampleMetric, PublicScorer, Scorer, is_correct
from oso_dp.api.trainer import Trainer, TrainingResult
from oso_dp.defaults import STOPPING_DISTRIBUTION
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.noise_range import check_range
from oso_dp.privacy.process_group import ProcessGroup
from oso_dp.privacy.rng_sources import RandomSource, get_source
from oso_dp.privacy.sampling import PoissonSampling, uniform_below
from oso_dp.training.user_model import Loss, UserModel
from oso_dp.value_checks import as_plain, check_integer

_SEARCH_ACCOUNTINGS = (COMPOSITION, RANDOM_STOPPING)


@dataclass
class SearchTrial:
    """One training of a search by composition.

    Attributes:
        point: its grid point, values by name.
        score: its score; -inf if it diverged or was interrupted.
        model: the trained model.
        history: C and rho of every step.
        status: "finished", "interrupted" or "diverged".
    """

    point: dict[str, float]
    score: float
    model: nn.Module
    history: History
    status: str


@dataclass
class SearchResult:
    """The result of `search_private`.

    Attributes:
        best: the model with the highest score; its statement covers the complete search.
        point: the best model's grid point, values by name.
        score: the best model's score.
        score_std: standard deviation of the noise in a score; 0 for scores on public data.
        trials: all trainings, in the grid's order; empty under random stopping, which releases
            only the best.
    """

    best: PrivateModel
    point: dict[str, float]
    score: float
    score_std: float
    trials: list[SearchTrial]


# Arguments of `train_private`, with what to do instead.
_NOT_SEARCHED = {
    "checkpoint": ", which trains several models",
    "fix": "; pass replace_batch_norm(model)",
    "resume_from": ", which trains several models",
}


def search_private(
    model: nn.Module,
    loss: Loss,
    data: Any,
    grid: Mapping[str, Sequence[float]],
    *,
    epsilon: float,
    delta: float,
    accountant: str = "rdp",
    score: Callable[[nn.Module], float] | None = None,
    validation: Any = None,
    metric: PerExampleMetric = is_correct,
    search_accounting: str = COMPOSITION,
    mean_runs: int | None = None,
    stopping_distribution: str = STOPPING_DISTRIBUTION,
    progress: bool = True,
    **training: Any,
) -> SearchResult:
    """Train copies of `model` at points of `grid` and return the best; the complete search costs at
    most (epsilon, delta).

    Ctrl-C ends a search by composition: the trainings so far are returned. Epsilon counts the
    planned steps of all grid points, since the step at which a training ends may depend on the
    data. Under random stopping, nothing is released after Ctrl-C.

    Args:
        model: as in `train_private`.
        loss: as in `train_private`.
        data: as in `train_private`.
        grid: lists of values by name: a searched value of the method (such as `learning_rate`),
            `momentum`, or an option of the method. With `optimizer`, `learning_rate_factor`
            multiplies its learning rates. All combinations are candidates.
        epsilon: the epsilon of the complete search; > 0.
        delta: the delta of the complete search; in (0, 1).
        accountant: "rdp", or "pld" (with composition only).
        score: a function of a copy of a trained model in eval mode, computed on public data; higher
            is better.
        validation: private examples to score models on, as `data`, disjoint from the training
            examples. A score is the noisy mean of `metric` over them. Each of them is protected by
            (epsilon, delta). Exactly one of `score` and `validation` is required.
        metric: a function of the outputs and the target of one example, [1, ...] each, with values
            in [0, 1]. Default: accuracy.
        search_accounting: "composition" or "random_stopping" (Papernot and Steinke 2022).
        mean_runs: the expected number of trainings under random stopping. Default: the number of
            grid points.
        stopping_distribution: of their number under random stopping: "logarithmic" or "geometric".
        progress: whether to print progress; random stopping prints none.
        **training: further arguments of `train_private`, except `checkpoint`, `fix` and
            `resume_from`. Without a `method`: Online from C_0 = 0.1 with momentum 0.9 and a
            constant schedule, not the default of `train_private`.

    Returns:
        The best model, with a statement of the complete search, and all trials.

    Raises:
        OsoError: before training, for invalid or inconsistent arguments.

    Example:
        >>> found = search_private(model, loss, data, {"learning_rate": [0.1, 0.3, 1.0]},
        ...     epsilon=3.0, delta=1e-5, validation=(inputs, targets))
        >>> print(found.point, found.best.statement)
    """
    budget = Budget(epsilon, delta, accountant)
    for name, hint in _NOT_SEARCHED.items():
        if training.pop(name, None):
            raise OsoError(f"{name}: not supported by search_private{hint}")
    if ProcessGroup.current().count > 1:
        raise OsoError(
            "search_private: not supported in a torch.distributed group; run it in one process"
        )
    candidates = make_grid(grid, training)
    options = candidates[0].options
    if search_accounting not in _SEARCH_ACCOUNTINGS:
        allowed = ", ".join(_SEARCH_ACCOUNTINGS)
        raise OsoError(f"search_accounting: {search_accounting!r}; must be one of {allowed}")
    if (score is None) == (validation is None):
        raise OsoError(
            "score, validation: exactly one is required: a score on public data, or private data"
        )
    if score is not None and metric is not is_correct:
        raise OsoError("metric: has no effect with score")
    stopping = None
    if search_accounting == RANDOM_STOPPING:
        stopping = _make_random_stopping(
            mean_runs, len(candidates), stopping_distribution, accountant
        )
    elif mean_runs is not None:
        raise OsoError(f"mean_runs: {mean_runs}; needs search_accounting='random_stopping'")
    device, is_public = options.torch_device(), options.randomness == "seeded"
    with ExitStack() as stack:
        examples = stack.enter_context(open_examples(data, device, "data", is_public))
        user_model = UserModel(model)
        name = uuid4().hex if options.seed is None else f"search {options.seed}"
        first = Trainer(user_model, loss, examples, options, name)
        budget.warn_of_large_delta(first.sampling, first.records)
        runs_of_budget = len(candidates) if stopping is None else stopping[0]
        randomness = get_source(options.randomness)
        scorer: Scorer
        if validation is not None and options.users is not None:
            raise OsoError(
                "validation: a noisy score protects an example, not a user; use score, on public "
                "data"
            )
        if score is not None:
            scorer = PublicScorer(score)
        else:
            scored_examples = stack.enter_context(
                open_examples(validation, device, "validation", is_public)
            )
            everyone = PoissonSampling(1.0)
            noise = _calibrate(stopping, everyone, 1, len(candidates), budget)
            if options.randomness == "system":
                check_range(budget.delta / runs_of_budget, noise, everyone, 1, 1)
            scorer = NoisyScorer(
                scored_examples, metric, noise, randomness, device, options.microbatch_size
            )
            scorer.check(user_model.model)
        noise = _calibrate(stopping, first.sampling, first.steps, len(candidates), budget)
        # A method may need more noise than this for its second query.
        for candidate in candidates:
            candidate.options.make_method().split_noise(noise, first.batch_size)

        def train(candidate: GridPoint, number: int, progress: bool) -> TrainingResult:
            trainer = Trainer(user_model, loss, examples, candidate.options, f"{name}/{number}")
            return trainer(noise, budget.delta / runs_of_budget, progress)

        full_ledger = Ledger(first.sampling, [((SumQuery("step", noise),), first.steps)])
        if stopping is None:
            runs, trials, lost = _train_all(candidates, train, scorer, progress)
            point, result, value = max(runs, key=lambda run: run[2])
            cost = _composition_cost(
                [run[1] for run in runs],
                result,
                len(candidates),
                full_ledger,
                noise,
                lost,
                _complete_score_ledger(scorer, len(candidates)),
            )
        else:
            mean, distribution = stopping
            drawn = draw_candidates(candidates, mean, STOPPING_ETA[distribution], randomness, name)
            (point, result, value), trials = _train_drawn(drawn, train, scorer), []
            # The run's number would reveal a lower bound on the number of trainings.
            result = replace(result, run_id=name)
            cost = PrivacyCost(
                result.ledger,
                stopping=RandomStopping(mean, distribution, full_ledger),
                scores=scorer.ledger_of_one(),
            )
    if value == _NO_SCORE and not result.stopped:
        warnings.warn("score: no training of this search has one; best is the first", stacklevel=2)
    try:
        best = first.describe(result, budget, cost, scorer.description, scorer.examples)
    except (Exception, KeyboardInterrupt) as error:  # all trainings have ended
        error.add_note(f"if {_ALL_SPENT}")
        raise
    return SearchResult(best, point.point, value, scorer.std, trials)


def _composition_cost(
    results: Sequence[TrainingResult],
    best: TrainingResult,
    candidates: int,
    full_ledger: Ledger,
    noise: float,
    lost: bool,
    scores: Ledger | None,
) -> PrivacyCost:
    """The cost of a search by composition: all planned steps of all candidates.

    lost: whether a training was aborted whose ledger is unknown; it counts with `full_ledger`.
    """
    others = [_add_unused_steps(result) for result in results if result is not best]
    unused = (candidates - len(results) - lost) * full_ledger.step_count
    for result in results:
        if result.unused_steps is not None and (result is best or result.status == "interrupted"):
            unused += result.unused_steps.step_count
    return PrivacyCost(
        best.ledger,
        (*others, *([full_ledger] if lost else [])),
        scores=scores,
        unused_steps=make_unused_steps(best.ledger, unused, noise),
    )


def _add_unused_steps(result: TrainingResult) -> Ledger:
    """The ledger of a training, with the unused steps if it diverged.

    Those always count; the unused steps of an interrupted one count until training is resumed.
    """
    if result.unused_steps is None or result.status != "diverged":
        return result.ledger
    return replace(result.ledger, steps=[*result.ledger.steps, *result.unused_steps.steps])


def _complete_score_ledger(scorer: Scorer, candidates: int) -> Ledger | None:
    """The cost of a score for each candidate: how many were scored may depend on the data."""
    one, ledger = scorer.ledger_of_one(), scorer.ledger
    if one is None or ledger is None:
        return None
    missing = candidates - ledger.step_count
    unused = [(query, missing) for query, _ in one.steps if missing]
    return replace(ledger, steps=[*ledger.steps, *unused])


Run = tuple[GridPoint, TrainingResult, float]
_NO_SCORE = float("-inf")
_ALL_SPENT = "any output of its trainings was seen, count all of them as spent"
_NOT_RELEASED = f"nothing of a search by random stopping is released; if {_ALL_SPENT}"


def _train_all(
    candidates: Sequence[GridPoint],
    train: Callable[[GridPoint, int, bool], TrainingResult],
    scorer: Scorer,
    progress: bool,
) -> tuple[list[Run], list[SearchTrial], bool]:
    """Train each candidate once, until an interruption.

    The last result tells whether a training was aborted whose ledger is unknown.
    """
    runs: list[Run] = []
    lost = False
    for number, candidate in enumerate(candidates):
        if progress:
            print(f"{number + 1} of {len(candidates)}: {candidate}", file=sys.stderr)
        try:
            result = train(candidate, number, progress)
            runs.append((candidate, result, _NO_SCORE))
            if result.stopped:
                break
            runs[-1] = (candidate, result, _score_result(scorer, result))
        except KeyboardInterrupt:
            lost = len(runs) <= number  # during a training: its ledger is unknown
            if not runs:
                raise
            break
        except Exception as error:  # of the user's model, loss, data, score or `evaluate`
            if runs:
                # The step at which a training ends may depend on the data: planned steps count.
                steps = sum(_count_planned_steps(result) for _, result, _ in runs)
                noisy = 0 if scorer.ledger is None else scorer.ledger.step_count
                scores = f" and {noisy} noisy scores" if noisy else ""
                error.add_note(
                    f"{steps} steps of {len(runs)} trainings of this search{scores} were released "
                    "before this error; if any of their output was seen, count them as spent"
                )
            raise
    if progress and len(runs) < len(candidates):
        print(f"stopped in {len(runs)} of {len(candidates)} trainings", file=sys.stderr)
        if lost:
            print("one more was aborted, and counts as if it had finished", file=sys.stderr)
    trials = [
        SearchTrial(candidate.point, value, result.model, result.history, result.status)
        for candidate, result, value in runs
    ]
    return runs, trials, lost


def _train_drawn(
    drawn: Sequence[GridPoint],
    train: Callable[[GridPoint, int, bool], TrainingResult],
    scorer: Scorer,
) -> Run:
    """Train the drawn candidates and return the best; among equal scores, the first.

    The draws are independent, so that this prefers no candidate.
    """
    best: Run | None = None
    for number, candidate in enumerate(drawn):
        try:
            result = train(candidate, number, False)
            if result.stopped:
                raise KeyboardInterrupt(f"interrupted: {_NOT_RELEASED}")
            value = _score_result(scorer, result)
        except Exception as error:  # the note must not reveal how many trainings there were
            error.add_note(_NOT_RELEASED)
            raise
        if best is None or value > best[2]:
            best = (candidate, result, value)
    assert best is not None
    return best


def _score_result(scorer: Scorer, result: TrainingResult) -> float:
    value = scorer(result) if result.status == "finished" else _NO_SCORE
    return value if value == value else _NO_SCORE  # NaN


def draw_candidates(
    candidates: Sequence[GridPoint], mean: int, eta: float, randomness: RandomSource, name: str
) -> list[GridPoint]:
    """A random number of random grid points; both are secret, except for the best point."""
    words = randomness.words(name, "draws", 0)
    count = draw_number_of_runs(mean, eta, words)
    return [candidates[index] for index in uniform_below(len(candidates), count, words)]


def _count_planned_steps(result: TrainingResult) -> int:
    return result.ledger.step_count + (result.unused_steps.step_count if result.unused_steps else 0)


def _make_random_stopping(
    mean: Any, candidates: int, distribution: str, accountant: str
) -> tuple[int, str]:
    if mean is None and candidates < 2:
        raise OsoError(
            f"grid: {candidates} point; must be >= 2 for random stopping, whose mean_runs is the "
            "number of points; add points, or set mean_runs"
        )
    mean = candidates if mean is None else as_plain(mean)
    if distribution not in STOPPING_DISTRIBUTIONS:
        allowed = ", ".join(STOPPING_DISTRIBUTIONS)
        raise OsoError(
            f"stopping_distribution: {distribution!r}; must be one of {allowed} (others may draw 0 "
            "trainings)"
        )
    check_integer("mean_runs", mean, ge=2)
    if accountant != "rdp":
        raise OsoError(f"accountant: {accountant!r}; must be 'rdp' for random stopping")
    return mean, distribution


def _calibrate(
    stopping: tuple[int, str] | None,
    sampling: PoissonSampling,
    steps: int,
    candidates: int,
    budget: Budget,
) -> float:
    """nu of each step of each candidate such that the search costs at most the budget."""
    if stopping is None:
        steps *= candidates
        return remaining_noise_multiplier(
            sampling, steps, budget.epsilon, budget.delta, budget.accountant
        )
    mean, distribution = stopping
    search = RandomStoppingSearch(sampling, steps, mean, stopping_eta=STOPPING_ETA[distribution])
    return search.noise_multiplier(budget.epsilon, budget.delta)
