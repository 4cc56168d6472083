"""Cohorts and runs. A cohort is data set x method x k x epsilon: one grid, one budget.

A cohort holds whatever decides its runs' results, so that nobody has to ask the configuration that
it came from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from oso_dp.accounting.trial_fractions import find_stage_error
from oso_dp.errors import OsoError
from oso_dp.methods import Method, find_method
from oso_dp.privacy.sampling import PoissonSampling, count_steps
from oso_dp.study.data_options import file_name, make_data_options
from oso_dp.study.identity import COHORT, POINT, format_run_options, make_cohort_name, make_run_id

# Starting values of a run, in the order of `POINT`.
Point = tuple[float, float | None, float | None]


@dataclass(frozen=True)
class Run:
    """One training: identity, seed and starting values."""

    run_id: str
    seed: int
    learning_rate: float
    threshold: float | None
    quantile: float | None

    @property
    def point(self) -> Point:
        return self.learning_rate, self.threshold, self.quantile


@dataclass(frozen=True)
class Cohort:
    """One grid under one budget, or those of its points that the study asks for."""

    dataset: str
    model: str
    method: str
    method_options: dict[str, Any]
    momentum: float | None  # None for methods with a momentum of their own
    k: int
    epsilon: float | None  # None for methods without privacy
    delta: float | None
    search_accounting: (
        str  # the column of that name: how tuning is accounted for (accounting.tuning)
    )
    stopping_distribution: str | None  # distribution of the number of runs under random stopping
    # N: how many runs its budget pays for, or that many on average; by the linear scaling rule, of
    # each trial, whichever part this is.
    grid_runs: int
    examples: int  # n
    batch_size: int  # expected
    epochs: int
    evaluate_every: int
    loss: str  # over the pixels of an image: mean or sum
    oov_words: str  # of a text: zeros or skipped
    final_activation: bool
    precision: str  # of products: float32, tf32, bfloat16
    randomness: str  # seeded, system
    schedule: str | None = None  # of the learning rate: linear; None: constant
    averaging: float | None = None  # decay of the iterates' average; None: the last ones count
    vocabulary: str | None = None  # of texts: whose words have a vector; None: the default
    # Of a search by the linear scaling rule only:
    stage: str | None = None  # trial 1, trial 2, ..., final
    trial_fractions: tuple[float, ...] | None = None  # of epsilon
    # Of a user's own data set only:
    data_version: str | None = None  # as it is declared
    budget_runs: int | None = None  # that its one epsilon pays for; None where it is public
    runs: tuple[Run, ...] = ()

    @property
    def name(self) -> str:
        """dataset.method.k9.eps3, then .random_stopping, .single or .linear_scaling.trial_1."""
        return make_cohort_name(vars(self), self.stage)

    @property
    def is_private(self) -> bool:
        return self.epsilon is not None

    @property
    def is_public(self) -> bool:
        """Whether its data need no protection."""
        return self.budget_runs is None

    @property
    def budgeted_runs(self) -> int:
        """How many runs its epsilon pays for: its grid's, or all on data that are not public."""
        return self.grid_runs if self.budget_runs is None else self.budget_runs

    @property
    def points(self) -> list[Point]:
        """Of its runs, each once."""
        return list(dict.fromkeys(run.point for run in self.runs))

    @property
    def seeds(self) -> list[int]:
        """Of its runs, each once."""
        return list(dict.fromkeys(run.seed for run in self.runs))

    @property
    def steps(self) -> int:
        """T = ceil(epochs n / B) steps per run."""
        return count_steps(self.epochs, self.examples, self.batch_size)

    @property
    def sampling(self) -> PoissonSampling:
        """At q = B / n."""
        return PoissonSampling.of(self.batch_size, self.examples)

    @property
    def preparation(self) -> dict[str, Any]:
        """How its data are prepared."""
        return make_data_options(self.model, self.oov_words, self.data_version, self.vocabulary)

    @property
    def data_options(self) -> list[str]:
        """The same as options of `oso data`."""
        return [f"--{name.replace('_', '-')}={value}" for name, value in self.preparation.items()]

    @property
    def data_file(self) -> str:
        """Name of its prepared data, under build/data/."""
        return f"{file_name(self.dataset, self.preparation)}.npz"

    @property
    def run_options(self) -> str:
        """The column of that name: what decides a result and has no column of its own."""
        return format_run_options(self._run_options())

    def make_method(self) -> Method:
        """The method with the cohort's settings."""
        method = find_method(self.method)
        return method(method.Options(**self.method_options), self.momentum or 0.0)

    def with_runs(self, points: Iterable[Point], seeds: Sequence[int]) -> Self:
        """The same cohort with these runs: each point under each seed."""
        runs = [self._run(point, seed) for point in points for seed in seeds]
        return replace(self, runs=tuple(runs))

    def shards(self, runs_per_job: int) -> list[tuple[Run, ...]]:
        """The runs in portions of one job each, in a fixed order."""
        starts = range(0, len(self.runs), runs_per_job)
        return [self.runs[start : start + runs_per_job] for start in starts]

    def _run(self, point: Point, seed: int) -> Run:
        columns = {name: getattr(self, name) for name in (*COHORT, "precision")}
        row = columns | dict(zip(POINT, point, strict=True)) | {"seed": seed}
        return Run(make_run_id(row, self._run_options()), seed, *point)

    def _run_options(self) -> dict[str, Any]:
        # Part of a run's identity: two that differ in any of it must not share their noise.
        private_facts = {"public": self.is_public, "budget_runs": self.budget_runs}
        trial_fractions = None if self.trial_fractions is None else [*self.trial_fractions]
        added = {"schedule": self.schedule, "averaging": self.averaging}
        parts: dict[str, Any] = {"part": self.stage, "trial_fractions": trial_fractions}
        return {
            **({} if self.data_version is None else private_facts),
            **{name: value for name, value in (added | parts).items() if value is not None},
            "settings": self.method_options,
            "model": self.model,
            "grid_runs": self.grid_runs,
            "evaluate_every": self.evaluate_every,
            "final_activation": self.final_activation,
            "loss": self.loss,
            **self.preparation,
            "randomness": self.randomness,
            "stopping_distribution": self.stopping_distribution,
        }


@dataclass(frozen=True, kw_only=True)
class PlannedCohort(Cohort):
    """A cohort with the noise that its budget asks for."""

    noise_multiplier: float  # nu of one step; 0 without privacy

    def __post_init__(self) -> None:
        """OsoError for a private cohort without noise, noise without privacy, or half a search."""
        if wrong := find_stage_error(self.search_accounting, self.stage, self.trial_fractions):
            raise OsoError(f"{self.dataset}.{self.method}: {wrong}")
        if find_method(self.method).is_private != self.is_private:
            raise OsoError(f"{self.name}: epsilon {self.epsilon} does not fit {self.method}")
        nu = self.noise_multiplier
        if not (0 < nu < math.inf if self.is_private else nu == 0):
            raise OsoError(
                f"{self.name}: noise_multiplier {nu!r}: must be "
                f"{'a number above 0' if self.is_private else 'null, it has no privacy'}"
            )

    @property
    def query_noise_multiplier(self) -> float | None:
        """Of a step's second query; None if there is none."""
        if not self.is_private:
            return None
        return self.make_method().split_noise(self.noise_multiplier, self.batch_size)[1]
