"""The two experiments: one run with thousands of canaries, thousands of runs with one.

Both go through `oso_dp.training.loop.train`, with the mechanism, the gradient code and the method
as the study uses them, or through Opacus (`oso_dp.audit.opacus_backend`), at the noise that
`oso_dp.accounting.tuning_cost` asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import torch

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.tuning_cost import Search
from oso_dp.audit.canaries import THRESHOLD, Canaries, lone_canary, many_canaries
from oso_dp.audit.observer import Observer
from oso_dp.audit.scores import Score, score_movement, scores
from oso_dp.audit.transcript import Transcript
from oso_dp.errors import OsoError
from oso_dp.methods import Method, State, find_method
from oso_dp.models.linear import INPUTS
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.cohort import Run
from oso_dp.training.loop import train
from oso_dp.training.task import StudyTask

EPSILON, DELTA = 2.0, 1e-5  # what each run may cost
_LEARNING_RATE = 1e-6  # parameters move, but a canary's gradient stays larger than C
_TOGETHER = 250  # runs that train side by side


@dataclass(frozen=True)
class AuditSetup:
    """n examples, expected batch size B, T steps."""

    examples: int
    batch_size: int
    steps: int

    @property
    def sampling(self) -> PoissonSampling:
        return PoissonSampling.of(self.batch_size, self.examples)


# Many steps at a low rate: sampling hides much, so its faults show.
ONE_RUN = AuditSetup(INPUTS, INPUTS // 8, 32)
# Few steps, since each is taken thousands of times; B is what FixedQuantile's count needs.
MANY_RUNS = AuditSetup(64, 32, 4)


@dataclass(frozen=True, eq=False)
class CanaryScores:
    """Scores of canaries that were present and of those that were not, and the ledger's epsilon."""

    claimed: float
    inside: list[Score]
    outside: list[Score]


# From a method's name, B, T, nu, rho, data and run identities to what an auditor sees of the runs.
Train: TypeAlias = Callable[[str, int, int, float, float, Canaries, Sequence[str]], Transcript]


def one_run(method: str, seed: int, train: Train | None = None) -> CanaryScores:
    """One training with 4,000 canaries, about half of them present; by the study unless said."""
    canaries = many_canaries(seed)
    seen = _train_observed(train, method, ONE_RUN, canaries, [f"audit/{method}/{seed}"])
    all_values = scores(seen.answers, seen.noise, ONE_RUN.sampling.rate)
    _check_all(all_values)
    return CanaryScores(
        compute_epsilon([seen.ledger], DELTA),
        [_select(score, canaries.present) for score in all_values],
        [_select(score, ~canaries.present) for score in all_values],
    )


def many_runs(method: str, runs: int, seed: int, train: Train | None = None) -> CanaryScores:
    """`runs` trainings with the canary and as many without; by the study unless said.

    In another's training C may move by what nobody released, so there its movement is a score, too.
    """
    by_presence: dict[bool, list[Score]] = {}
    for present in (True, False):
        canary = lone_canary(present, MANY_RUNS.examples)
        names = [f"audit/{method}/{seed}/{present}/{run}" for run in range(runs)]
        seen = [
            _train_observed(train, method, MANY_RUNS, canary, names[first : first + _TOGETHER])
            for first in range(0, runs, _TOGETHER)
        ]
        together = {
            name: np.concatenate([part.answers[name] for part in seen], axis=1)
            for name in seen[0].answers
        }
        all_values = scores(together, seen[0].noise, MANY_RUNS.sampling.rate)
        if train is not None:
            all_values.append(score_movement(np.concatenate([part.moves for part in seen])))
        by_presence[present] = all_values
        _check_all(all_values)
    claimed = compute_epsilon([seen[0].ledger], DELTA)
    return CanaryScores(claimed, by_presence[True], by_presence[False])


def queries_of_method(name: str) -> set[str]:
    """The names of the queries that a method asks at each step."""
    one = torch.ones(1)
    nu = noise_multiplier(ONE_RUN)
    state = State(torch.zeros(1, 1), one, one, one, nu, ONE_RUN.batch_size, layers={"linear": 1})
    return {query.name for query in _method(name).queries(state)}


def _method(name: str) -> Method:
    kind = find_method(name)
    return kind(kind.Options(), momentum=0.9)


@cache
def noise_multiplier(scene: AuditSetup) -> float:
    """nu of a step, such that a run costs EPSILON at DELTA."""
    return Search(scene.sampling, scene.steps, runs=1).noise_multiplier(EPSILON, DELTA)


def _train_observed(
    other: Train | None, name: str, scene: AuditSetup, canaries: Canaries, run_ids: Sequence[str]
) -> Transcript:
    nu = noise_multiplier(scene)
    train = train_by_study if other is None else other
    return train(name, scene.batch_size, scene.steps, nu, _LEARNING_RATE, canaries, run_ids)


def train_by_study(
    name: str,
    batch_size: int,
    steps: int,
    noise_multiplier: float,
    rate: float,
    canaries: Canaries,
    run_ids: Sequence[str],
) -> Transcript:
    """All runs at once, as `oso train` would."""
    method = _method(name)
    task = StudyTask(
        method=method,
        model="linear",
        metric="accuracy",
        noise_multiplier=noise_multiplier,
        batch_size=batch_size,
        steps=steps,
        evaluate_every=steps,
    )
    runs = [Run(run_id, 0, rate, THRESHOLD, 0.5) for run_id in run_ids]
    observer = Observer(method, canaries.columns)
    outcomes = train(task, runs, canaries.arrays, watch=observer)
    if any(outcome.status != "finished" for outcome in outcomes):
        raise OsoError(f"audit: a run of {name} diverged; its canaries cannot be followed")
    return observer.transcripts(Ledger.from_json(outcomes[0].ledger))


def _select(score: Score, mask: np.ndarray) -> Score:
    return Score(score.name, score.values[mask], score.cuts)


def _check_all(all_values: Sequence[Score]) -> None:
    for score in all_values:
        if not np.isfinite(score.values).all():
            raise OsoError(f"audit: a score ({score.name}) is not finite; nothing can be concluded")
