"""`search_private`: a search over a grid whose whole cost keeps within one budget.

By composition all trainings are released and paid for. By random stopping (Papernot and Steinke
2022) candidates are drawn at random, a random number of times, and only the best is released.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from torch import nn

from oso_dp.accounting.random_stopping import draw_number_of_runs
from oso_dp.accounting.search_accounting import COMPOSITION, GRID_SEARCHES, RANDOM_STOPPING
from oso_dp.accounting.tuning_cost import STOPPING_ETA, Search
from oso_dp.api.arguments import as_plain
from oso_dp.api.budget import Budget, remaining_noise_multiplier
from oso_dp.api.datasets import make_examples
from oso_dp.api.grid import GridPoint, make_grid
from oso_dp.api.model import History, PrivateModel
from oso_dp.api.privacy_cost import (
    STOPPING_DISTRIBUTIONS,
    PrivacyCost,
    RandomStopping,
    make_unused_steps,
)
from oso_dp.api.scoring import NoisyScorer, PerExampleMetric, PublicScorer, Scorer, predict_labels
from oso_dp.api.trainer import Trainer, TrainingResult
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.poisson_subset import uniform_below
from oso_dp.privacy.rng_sources import RandomSource, get_source
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.training.user_loss import Loss
from oso_dp.training.user_model import UserModel


@dataclass
class SearchTrial:
    """One training of a search by composition, which is released as a whole."""

    point: dict[str, float]  # where it stands in the grid
    score: float  # -inf for one that diverged, or was interrupted
    model: nn.Module
    history: History
    status: str


@dataclass
class SearchResult:
    """What `search_private` gives; `best.statement` says what the search cost, and whom."""

    best: PrivateModel  # the one with the highest score, and the whole search's statement
    point: dict[str, float]  # where it stands in the grid
    score: float  # its own
    score_std: float  # of the noise in a score; 0 for scores on public data
    trials: list[SearchTrial]  # by composition, in the grid's order; empty under random stopping


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
    metric: PerExampleMetric = predict_labels,
    search_accounting: str = COMPOSITION,
    mean_runs: int | None = None,
    stopping_distribution: str = "logarithmic",
    progress: bool = True,
    **training: Any,
) -> SearchResult:
    """Train copies of `model` at points of `grid`; all of it costs at most (epsilon, delta).

    model, loss, data: as `train_private` takes them.
    grid: values by name, of what the method searches (as learning_rate), momentum, or a constant
    of the method; all combinations.
    epsilon, delta: the budget of the whole search.
    accountant: rdp, or pld by composition.
    score: of a copy of a trained model, on data that need no protection; higher is better.
    validation: else private examples, (inputs, targets) or a data set; none of them may train. A
    model's score is the mean of `right` over them, with noise that protects each of them within
    epsilon at delta, too.
    right: of the outputs and the target of one example, [1, ...] each, a number in [0, 1]; 1 where
    the likeliest class is the target, unless told otherwise.
    search_accounting: composition, or random_stopping.
    mean_runs: under random stopping, how many trainings there are on average (the grid's size).
    shape: under random stopping, of the distribution of their number: logarithmic or geometric.
    progress: whether lines show how far it is; under random stopping none do.
    training: further arguments of `train_private`.

    Ctrl-C ends a search by composition: what was released is returned, and paid for with all that
    was planned, as when a training ends may tell of what it released; so are those that diverge.
    Under random stopping nothing is released then.

    Raises OsoError, one line, before anything is trained, for whatever does not fit together.
    """
    budget = Budget(epsilon, delta, accountant)
    candidates = make_grid(grid, training)
    choices = candidates[0].options
    if search_accounting not in GRID_SEARCHES:
        allowed = ", ".join(GRID_SEARCHES)
        raise OsoError(f"search_accounting {search_accounting!r}: allowed are {allowed}")
    if (score is None) == (validation is None):
        raise OsoError("score, validation: give one of them: public data's score, or private data")
    stopping = None
    if search_accounting == RANDOM_STOPPING:
        stopping = _make_random_stopping(
            mean_runs, len(candidates), stopping_distribution, accountant
        )
    elif mean_runs is not None:
        raise OsoError("mean_runs: goes with selection='random_stopping'")
    place = choices.torch_device()
    examples, user_model = make_examples(data, place), UserModel(model)
    name = uuid4().hex if choices.seed is None else f"search {choices.seed}"
    first = Trainer(user_model, loss, examples, choices, name)
    randomness = get_source(choices.randomness)
    scores: Scorer
    if score is not None:
        scores = PublicScorer(score)
    else:
        tested = make_examples(validation, place, "validation")
        noise = _calibrate(stopping, PoissonSampling(1.0), 1, len(candidates), budget)
        scores = NoisyScorer(tested, metric, noise, randomness, place, choices.microbatch_size)
        scores.check(user_model.model)
    noise = _calibrate(stopping, first.sampling, first.steps, len(candidates), budget)
    for candidate in candidates:  # a method may need more than this noise for its second sum
        candidate.options.make_method().split_noise(noise, first.batch_size)

    def train(candidate: GridPoint, number: int, shows: bool) -> TrainingResult:
        return Trainer(user_model, loss, examples, candidate.options, f"{name}/{number}")(
            noise, shows
        )

    lost: tuple[Ledger, ...] = ()
    whole = Ledger(first.sampling, [((SumQuery("step", noise),), first.steps)])
    if stopping is None:
        runs, all_evaluations, interrupted = _train_all(candidates, train, scores, progress)
        lost = (whole,) if interrupted else ()
    else:
        mean, law = stopping
        drawn = _draw_candidates(candidates, mean, STOPPING_ETA[law], randomness, name)
        runs, all_evaluations = [_train_drawn(drawn, train, scores)], []
    candidate, ended, value = max(runs, key=lambda run: run[2])
    if stopping is None:
        others = tuple(_add_unused_steps(run[1]) for run in runs if run[1] is not ended)
        never = (len(candidates) - len(runs) - len(lost)) * first.steps
        early = [run[1] for run in runs if run[1] is ended or run[1].status == "interrupted"]
        never += sum(one.unused_steps.step_count for one in early if one.unused_steps is not None)
        unmade = make_unused_steps(ended.ledger, never, noise)
        paid = PrivacyCost(
            ended.ledger,
            (*others, *lost),
            scores=_best_index(scores, len(candidates)),
            unused_steps=unmade,
        )
    else:
        ended = replace(ended, run_id=name)  # its number would tell how many there were at least
        at_most = RandomStopping(mean, law, whole)
        paid = PrivacyCost(ended.ledger, stopping=at_most, scores=scores.ledger_of_one())
    if value == _NONE and not ended.stopped:
        warnings.warn("score: no training of this search has one; best is the first", stacklevel=2)
    best = first.describe(ended, budget, paid, scores.description, scores.examples)
    return SearchResult(best, candidate.point, value, scores.std, all_evaluations)


def _add_unused_steps(ended: TrainingResult) -> Ledger:
    """What it released, and if it diverged the steps that it would have made.

    These count for good; those of one that somebody stopped only until training goes on.
    """
    if ended.unused_steps is None or ended.status != "diverged":
        return ended.ledger
    return replace(ended.ledger, steps=[*ended.ledger.steps, *ended.unused_steps.steps])


def _best_index(scores: Scorer, candidates: int) -> Ledger | None:
    """What the scores of all candidates cost: how many had one depends on how trainings ended."""
    one, made = scores.ledger_of_one(), scores.ledger
    if one is None or made is None:
        return None
    missing = candidates - made.step_count
    return replace(
        made, steps=[*made.steps, *((query, missing) for query, _ in one.steps if missing)]
    )


Run = tuple[GridPoint, TrainingResult, float]
_NONE = float("-inf")


def _train_all(
    candidates: Sequence[GridPoint],
    train: Callable[[GridPoint, int, bool], TrainingResult],
    scores: Scorer,
    progress: bool,
) -> tuple[list[Run], list[SearchTrial], bool]:
    """Each candidate once; up to where somebody stopped it.

    The last tells that a training was broken off that has no ledger here.
    """
    runs: list[Run] = []
    lost = False
    for number, candidate in enumerate(candidates):
        if progress:
            print(f"{number + 1} of {len(candidates)}: {candidate}", file=sys.stderr)
        try:
            ended = train(candidate, number, progress)
            runs.append((candidate, ended, _NONE))
            if ended.stopped:
                break
            runs[-1] = (candidate, ended, _score_result(scores, ended))
        except KeyboardInterrupt:
            lost = len(runs) <= number  # in a training: what it released is in no ledger here
            if not runs:
                raise
            break
        except Exception as error:  # of the user's model, loss, data, score or `evaluate`
            if runs:
                # When a training ended may tell something: what it had planned counts, too.
                steps = sum(_planned_ledger(one) for _, one, _ in runs)
                noisy = 0 if scores.ledger is None else scores.ledger.step_count
                also = f", and {noisy} noisy scores," if noisy else ""
                error.add_note(
                    f"{steps} steps of {len(runs)} trainings of this search{also} were released "
                    "before; whoever saw anything of them has to count them as spent, too"
                )
            raise
    if progress and len(runs) < len(candidates):
        print(f"stopped in {len(runs)} of {len(candidates)} trainings", file=sys.stderr)
        if lost:
            print("one more was broken off, and counts as if it had ended", file=sys.stderr)
    tried = [
        SearchTrial(candidate.point, value, ended.model, ended.history, ended.status)
        for candidate, ended, value in runs
    ]
    return runs, tried, lost


def _train_drawn(
    drawn: Sequence[GridPoint],
    train: Callable[[GridPoint, int, bool], TrainingResult],
    scores: Scorer,
) -> Run:
    """Of equals the first: the draws are independent, so that none is preferred."""
    best: Run | None = None
    for number, candidate in enumerate(drawn):
        try:
            ended = train(candidate, number, False)
            if ended.stopped:
                raise KeyboardInterrupt(
                    "a search by random stopping ended: nothing of it is released"
                )
            value = _score_result(scores, ended)
        except Exception as error:  # how many there were before stays a secret
            error.add_note(
                "nothing of a search by random stopping is released; whoever saw anything of its "
                "trainings has to count every one of them as spent"
            )
            raise
        if best is None or value > best[2]:
            best = (candidate, ended, value)
    assert best is not None
    return best


def _score_result(scores: Scorer, ended: TrainingResult) -> float:
    value = scores(ended) if ended.status == "finished" else _NONE
    return value if value == value else _NONE  # NaN


def _draw_candidates(
    candidates: Sequence[GridPoint], mean: int, shape: float, randomness: RandomSource, name: str
) -> list[GridPoint]:
    """How many and which: a secret of the search, but for the best of them."""
    words = randomness.words(name, "draws", 0)
    count = draw_number_of_runs(mean, shape, words)
    return [candidates[index] for index in uniform_below(len(candidates), count, words)]


def _planned_ledger(ended: TrainingResult) -> int:
    """The steps that a training was to make."""
    return ended.ledger.step_count + (ended.unused_steps.step_count if ended.unused_steps else 0)


def _make_random_stopping(
    mean: Any, candidates: int, shape: str, accountant: str
) -> tuple[int, str]:
    mean = candidates if mean is None else as_plain(mean)
    if shape not in STOPPING_DISTRIBUTIONS:
        raise OsoError(
            f"shape {shape!r}: allowed are {', '.join(STOPPING_DISTRIBUTIONS)}; with any other, "
            "a search "
            "may train nothing"
        )
    if type(mean) is not int or mean < 2:
        raise OsoError(f"mean_runs {mean!r}: must be a whole number above 1")
    if accountant != "rdp":
        raise OsoError("accountant pld: random stopping is accounted for by rdp only")
    return mean, shape


def _calibrate(
    stopping: tuple[int, str] | None,
    sampling: PoissonSampling,
    steps: int,
    candidates: int,
    budget: Budget,
) -> float:
    """nu of each step of each candidate, which keeps all of them within the budget."""
    if stopping is None:
        steps *= candidates
        return remaining_noise_multiplier(
            sampling, steps, budget.epsilon, budget.delta, budget.accountant
        )
    mean, shape = stopping
    search = Search(sampling, steps, mean, RANDOM_STOPPING, STOPPING_ETA[shape])
    return search.noise_multiplier(budget.epsilon, budget.delta)
