"""Runs and cohorts. A cohort is one grid under one budget: data set x method x k x epsilon.

A cohort has every value that its runs' results depend on, so that training and accounting need no
configuration. It can be rebuilt from a stored row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from oso_dp.accounting.search_accounting import (
    AnySearch,
    find_cohort_error,
    find_search_accounting,
    search_option_names,
)
from oso_dp.errors import OsoError
from oso_dp.methods import Method, find_method
from oso_dp.privacy.local_training import LocalTraining
from oso_dp.privacy.promise import EXAMPLE, UNITS, Unit
from oso_dp.privacy.sampling import PoissonSampling, count_steps
from oso_dp.study.data_options import file_name, make_data_options
from oso_dp.study.identity import (
    COHORT,
    IDENTITY_DEFAULTS,
    OPTIONS,
    POINT,
    format_method_options,
    format_trial_fractions,
    make_cohort_name,
    make_run_id,
    parse_method_options,
    parse_trial_fractions,
)

# Starting values of a run, in the order of `POINT`.
Point = tuple[float, float | None, float | None]


@dataclass(frozen=True)
class Run:
    """One training run: identity, seed and initial hyperparameters."""

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
    """One grid under one budget, or the points of it that the study trains."""

    dataset: str
    model: str
    method: str
    method_options: dict[str, Any]
    momentum: float | None  # None for methods that set their momentum themselves
    k: int
    epsilon: float | None  # None for methods without privacy
    delta: float | None
    search_accounting: str  # one of oso_dp.accounting.search_accounting
    stopping_distribution: str | None  # distribution of the number of runs under random stopping
    # N: the number of runs that the budget covers, their mean under random stopping, or the runs of
    # each trial under linear scaling, at every stage.
    grid_runs: int
    examples: int  # n, of the unit of privacy: examples or users
    batch_size: int  # expected
    epochs: int
    evaluate_every: int
    loss: str  # reduction over the pixels of an image: mean or sum
    oov_words: str  # out-of-vocabulary words: zeros or skipped
    final_activation: bool
    precision: str  # of matrix products: float32, tf32, bfloat16
    randomness: str  # seeded, system
    schedule: str | None = None  # of the learning rate: linear; None: constant
    averaging: float | None = None  # decay of the parameter average; None: last iterate
    vocabulary: str | None = None  # of word vectors; None: the data set's default
    # Under linear scaling only:
    stage: str | None = None  # trial 1, trial 2, ..., final
    trial_fractions: tuple[float, ...] | None = None  # of epsilon
    # Of user-defined data sets only:
    data_version: str | None = None  # as declared
    budget_runs: int | None = None  # number of runs that share its epsilon; None: public data
    # Where a user is the unit of privacy only:
    unit: str | None = None  # user; None: example
    local: dict[str, Any] | None = None  # what a user computes: of LocalTraining, what is set
    runs: tuple[Run, ...] = ()

    @property
    def name(self) -> str:
        """dataset.method.k9.eps3, then .random_stopping, .single or .linear_scaling.trial_1."""
        return make_cohort_name(vars(self))

    @property
    def is_private(self) -> bool:
        return self.epsilon is not None

    @property
    def is_public(self) -> bool:
        """Whether its data are public."""
        return self.budget_runs is None

    @property
    def budgeted_runs(self) -> int:
        """The number of runs its epsilon covers: its grid's, or all on private data."""
        return self.grid_runs if self.budget_runs is None else self.budget_runs

    @property
    def points(self) -> list[Point]:
        """The distinct ones of its runs."""
        return list(dict.fromkeys(run.point for run in self.runs))

    @property
    def seeds(self) -> list[int]:
        """The distinct ones of its runs."""
        return list(dict.fromkeys(run.seed for run in self.runs))

    @property
    def steps(self) -> int:
        """T = ceil(epochs n / B) steps per run."""
        return count_steps(self.epochs, self.examples, self.batch_size)

    @property
    def sampling(self) -> PoissonSampling:
        """Poisson sampling at rate q = B / n."""
        return sampling_of(vars(self))

    @property
    def privacy_unit(self) -> Unit:
        """What is protected: one example or one user."""
        return UNITS[self.unit or EXAMPLE.name]

    @property
    def local_training(self) -> LocalTraining | None:
        """What a user computes in a step; None where an example is the unit of privacy."""
        return None if self.local is None else LocalTraining(**self.local)

    @property
    def search_options(self) -> dict[str, Any]:
        """The options of the search accounting; None for those of another one."""
        return {name: getattr(self, name) for name in search_option_names()}

    @property
    def search(self) -> AnySearch:
        """The search whose cost its epsilon covers: all stages, of a search with stages."""
        accounting = find_search_accounting(self.search_accounting)
        return accounting.search(self.sampling, self.steps, self.budgeted_runs, self.search_options)

    @property
    def preparation(self) -> dict[str, Any]:
        """Options of data preparation."""
        return make_data_options(self.model, self.oov_words, self.data_version, self.vocabulary)

    @property
    def data_options(self) -> list[str]:
        """The preparation as options of `oso data`."""
        return [f"--{name.replace('_', '-')}={value}" for name, value in self.preparation.items()]

    @property
    def data_file(self) -> str:
        """Name of its prepared data file, below build/data/."""
        return f"{file_name(self.dataset, self.preparation)}.npz"

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of its rows that its runs' results depend on."""
        fractions = self.trial_fractions
        return {
            **{name: getattr(self, name) for name in (*COHORT, "precision", *OPTIONS)},
            "method_options": format_method_options(self.method_options),
            "local": None if self.local is None else format_method_options(self.local),
            **{name: self.preparation.get(name) for name in ("oov_words", "vocabulary")},
            "trial_fractions": None if fractions is None else format_trial_fractions(fractions),
        }

    def make_method(self) -> Method:
        """The method with the cohort's options."""
        method = find_method(self.method)
        return method(method.Options(**self.method_options), self.momentum or 0.0)

    def with_runs(self, points: Iterable[Point], seeds: Sequence[int]) -> Self:
        """The same cohort with these runs: each point with each seed."""
        columns = self.columns
        runs = [self._run(columns, point, seed) for point in points for seed in seeds]
        return replace(self, runs=tuple(runs))

    def shards(self, runs_per_job: int) -> list[tuple[Run, ...]]:
        """The runs split into one shard per job, in a fixed order."""
        starts = range(0, len(self.runs), runs_per_job)
        return [self.runs[start : start + runs_per_job] for start in starts]

    def _run(self, columns: dict[str, Any], point: Point, seed: int) -> Run:
        row = columns | dict(zip(POINT, point, strict=True)) | {"seed": seed}
        return Run(make_run_id(row), seed, *point)


@dataclass(frozen=True, kw_only=True)
class PlannedCohort(Cohort):
    """A cohort with its calibrated noise multiplier."""

    noise_multiplier: float  # nu of one step, all queries together; 0 without privacy

    def __post_init__(self) -> None:
        """OsoError for private runs without noise, noise without privacy, or an unknown stage."""
        if wrong := find_cohort_error(self.search_accounting, self.search_options, self.stage):
            raise OsoError(f"{self.dataset}.{self.method}: {wrong}")
        if (self.unit is None) != (self.local is None):
            raise OsoError(f"{self.name}: unit and local must both be null, or neither")
        if find_method(self.method).is_private != self.is_private:
            must = "null" if self.is_private else "a number"
            raise OsoError(
                f"{self.name}: epsilon: {self.epsilon}; must be {must} for {self.method}"
            )
        nu = self.noise_multiplier
        if not (0 < nu < math.inf if self.is_private else nu == 0):
            raise OsoError(
                f"{self.name}: noise_multiplier: {nu!r}; must be "
                f"{'a number > 0' if self.is_private else 'null, since it has no privacy'}"
            )

    @property
    def query_noise_multiplier(self) -> float | None:
        """Noise multiplier of a step's second query; None if there is none."""
        if not self.is_private:
            return None
        return self.make_method().split_noise(self.noise_multiplier, self.batch_size)[1]


def sampling_of(row: Mapping[str, Any]) -> PoissonSampling:
    """The sampling of a cohort or of a row, whose nulls are None."""
    unit = UNITS[row["unit"] or EXAMPLE.name]
    return PoissonSampling.of(row["batch_size"], row["examples"], unit)


def make_run(row: Mapping[str, Any]) -> tuple[PlannedCohort, Run]:
    """The run, and its cohort with this run alone.

    row: of the table `runs`, None where a value is null. OsoError where its values do not give its
    run_id, since it is then unknown what was trained.
    """
    known = {name: row[name] for name in OPTIONS if row[name] is not None}
    facts = {**dict.fromkeys(OPTIONS), **IDENTITY_DEFAULTS, **known}
    facts |= {name: row[name] for name in (*COHORT, "precision")}
    facts["method_options"] = parse_method_options(facts["method_options"])
    if facts["local"] is not None:
        facts["local"] = parse_method_options(facts["local"])
    if facts["trial_fractions"] is not None:
        facts["trial_fractions"] = parse_trial_fractions(facts["trial_fractions"])
    cohort = PlannedCohort(**facts, noise_multiplier=row["noise_multiplier"] or 0.0)
    learning_rate, threshold, quantile = (row[name] for name in POINT)
    cohort = cohort.with_runs([(learning_rate, threshold, quantile)], [row["seed"]])
    (run,) = cohort.runs
    if run.run_id != row["run_id"]:
        raise OsoError(f"run {row['run_id']}: its values give another identity, {run.run_id}")
    return cohort, run
