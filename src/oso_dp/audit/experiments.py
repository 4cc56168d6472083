"""The two audit experiments: one run with thousands of canaries, thousands of runs with one.

Both use `oso_dp.training.loop.train` with the study's mechanism, gradient engine and methods, or
the Opacus drop-in (`oso_dp.audit.opacus_backend`), at the noise of `oso_dp.accounting.search`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import torch

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.search import Search
from oso_dp.audit.canaries import THRESHOLD, Canaries, lone_canary, many_canaries, of_users
from oso_dp.audit.models import MODELS
from oso_dp.audit.observer import Observer
from oso_dp.audit.scores import Score, Transcript, score_movement, scores
from oso_dp.errors import OsoError
from oso_dp.methods import Method, State, find_method
from oso_dp.models.networks import INPUTS
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.cohort import Run
from oso_dp.training.loop import train
from oso_dp.training.task import StudyTask

EPSILON, DELTA = 2.0, 1e-5  # the budget of each run
_LEARNING_RATE = 1e-6  # so small that a canary's gradient stays above C
_PARALLEL_RUNS = 250


@dataclass(frozen=True)
class AuditSetup:
    """n examples, expected batch size B, T steps."""

    examples: int
    batch_size: int
    steps: int

    @property
    def sampling(self) -> PoissonSampling:
        return PoissonSampling.of(self.batch_size, self.examples)


# Many steps at a low sampling rate: amplification is large, so faults of sampling show.
ONE_RUN = AuditSetup(INPUTS, INPUTS // 8, 32)
# Few steps, since there are thousands of runs; FixedQuantile's count needs this batch size.
MANY_RUNS = AuditSetup(64, 32, 4)


@dataclass(frozen=True, eq=False)
class CanaryScores:
    """Scores of present and of absent canaries, and the ledger's epsilon."""

    claimed: float
    inside: list[Score]
    outside: list[Score]


# Trains runs: method, B, T, nu, learning rate, data, run ids -> what the auditor sees.
Train: TypeAlias = Callable[[str, int, int, float, float, Canaries, Sequence[str]], Transcript]


@dataclass(frozen=True)
class StudyBackend:
    """Trains all runs in parallel, as `oso train` does. model: a key of `MODELS`."""

    model: str = "linear"

    def __call__(
        self,
        name: str,
        batch_size: int,
        steps: int,
        noise_multiplier: float,
        rate: float,
        canaries: Canaries,
        run_ids: Sequence[str],
    ) -> Transcript:
        method, model = _method(name), MODELS[self.model]
        task = StudyTask(
            method=method,
            model="linear",
            network=model.network,
            augment=model.augment,
            views=model.views,
            local=model.local,
            metric="accuracy",
            noise_multiplier=noise_multiplier,
            batch_size=batch_size,
            steps=steps,
            evaluate_every=steps,
        )
        runs = [Run(run_id, 0, rate, THRESHOLD, 0.5) for run_id in run_ids]
        observer = Observer(method, canaries.columns)
        arrays = canaries.arrays
        if model.local is not None:
            arrays = of_users(arrays, model.rows)
        outcomes = train(task, runs, arrays, watch=observer)
        if any(outcome.status != "finished" for outcome in outcomes):
            raise OsoError(f"audit: a run of {name} diverged; cannot score its canaries")
        return observer.transcript(Ledger.from_json(outcomes[0].ledger))


def one_run(method: str, seed: int, train: Train = StudyBackend()) -> CanaryScores:
    """One run with 4,000 canaries, about half present."""
    canaries = many_canaries(seed)
    transcript = _train_observed(train, method, ONE_RUN, canaries, [f"audit/{method}/{seed}"])
    all_values = scores(transcript.answers, transcript.noise, ONE_RUN.sampling.rate)
    _check_all(all_values)
    return CanaryScores(
        compute_epsilon([transcript.ledger], DELTA),
        [_select(score, canaries.present) for score in all_values],
        [_select(score, ~canaries.present) for score in all_values],
    )


def many_runs(method: str, runs: int, seed: int, train: Train = StudyBackend()) -> CanaryScores:
    """`runs` runs with the canary and as many without.

    For a `train` other than `StudyBackend`, the movement of C is also a score, since C could
    depend on unsanitized values there.
    """
    by_presence: dict[bool, list[Score]] = {}
    for present in (True, False):
        canary = lone_canary(present, MANY_RUNS.examples)
        names = [f"audit/{method}/{seed}/{present}/{run}" for run in range(runs)]
        transcripts = [
            _train_observed(train, method, MANY_RUNS, canary, names[first : first + _PARALLEL_RUNS])
            for first in range(0, runs, _PARALLEL_RUNS)
        ]
        together = {
            name: np.concatenate([part.answers[name] for part in transcripts], axis=1)
            for name in transcripts[0].answers
        }
        all_values = scores(together, transcripts[0].noise, MANY_RUNS.sampling.rate)
        if not isinstance(train, StudyBackend):
            all_values.append(score_movement(np.concatenate([part.moves for part in transcripts])))
        by_presence[present] = all_values
        _check_all(all_values)
    claimed = compute_epsilon([transcripts[0].ledger], DELTA)
    return CanaryScores(claimed, by_presence[True], by_presence[False])


def query_kinds(name: str) -> set[str]:
    """The kinds of a method's queries per step."""
    one = torch.ones(1)
    nu = noise_multiplier(ONE_RUN)
    state = State(torch.zeros(1, 1), one, one, one, nu, ONE_RUN.batch_size, layers={"linear": 1})
    return {query.kind for query in _method(name).queries(state)}


def _method(name: str) -> Method:
    method_class = find_method(name)
    return method_class(method_class.Options(), momentum=0.9)


@cache
def noise_multiplier(setup: AuditSetup) -> float:
    """nu of a step at which a run costs EPSILON at DELTA."""
    return Search(setup.sampling, setup.steps, runs=1).noise_multiplier(EPSILON, DELTA)


def _train_observed(
    train: Train, name: str, setup: AuditSetup, canaries: Canaries, run_ids: Sequence[str]
) -> Transcript:
    nu = noise_multiplier(setup)
    return train(name, setup.batch_size, setup.steps, nu, _LEARNING_RATE, canaries, run_ids)


def _select(score: Score, mask: np.ndarray) -> Score:
    return Score(score.name, score.values[mask], score.cuts)


def _check_all(all_values: Sequence[Score]) -> None:
    for score in all_values:
        if not np.isfinite(score.values).all():
            raise OsoError(f"audit: score {score.name!r} is not finite; cannot compute a bound")
