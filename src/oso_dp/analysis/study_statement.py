"""The privacy statement of a study on private data: its epsilon and what it covers.

Made from the plan before the study runs, and from the stored ledgers afterwards.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from oso_dp import labels
from oso_dp.accounting.formatting import (
    format_large_delta_warning,
    format_spent_epsilon,
    format_used_noise_multiplier,
)
from oso_dp.accounting.search import Search
from oso_dp.analysis.accounts import GridAccount, counts_to_total
from oso_dp.privacy.promise import EXAMPLE, RANDOMNESS, Unit
from oso_dp.study.cohort import PlannedCohort


@dataclass(frozen=True)
class StudyStatement:
    """The statement for one data set. Every field is public."""

    dataset: str
    version: str
    unit: Unit  # of privacy
    records: int  # n, of this unit
    epsilon: float  # of all the runs, at delta, by RDP
    delta: float
    budget: float  # the configured epsilon
    runs: int  # number of runs that it covers
    stored: int | None  # number of stored runs; None before the study runs
    methods: dict[str, int]  # runs of each, as planned or stored
    steps: int  # of a run
    sampling_rate: float
    noise_multiplier: float  # the smallest of a step

    def __str__(self) -> str:
        parts = ", ".join(f"{labels.method_label(name)} {n}" for name, n in self.methods.items())
        there = "" if self.stored is None else f", of which {self.stored} are stored"
        large_delta = format_large_delta_warning(self.delta, self.records, self.unit.plural)
        return "\n".join(
            [
                f"{self.dataset}, version {self.version}: ({format_spent_epsilon(self.epsilon)}, "
                f"{self.delta!r})-differential privacy of all that the study releases, by rdp "
                f"accounting; the total budget is epsilon {self.budget:g}.",
                f"Composed: {self.runs} runs{there}: every method, grid point and seed ({parts}). "
                "Which one is best may be chosen at no further cost.",
                f"Protected: {self.unit.text}. Neighbours: {self.unit.neighbouring}.",
                f"Released: the weights, thresholds and learning rates after each of {self.steps} "
                f"steps of every run. Each step: a Poisson batch at sampling rate "
                f"{self.sampling_rate:.6g} of {self.records} {self.unit.plural}, noise multiplier "
                f"{format_used_noise_multiplier(self.noise_multiplier)}.",
                *([large_delta] if large_delta else []),
                "Not protected: the test data. Scores on them are stored and shown without noise, "
                "and the best run is chosen by them: they must be public, or their people agree.",
                "Not included: what was chosen by looking at the training data before (model, "
                "grid, number of epochs), and any other study, training or data set with these "
                "examples.",
                f"Public: the number of {self.unit.plural}, the shapes, the version, the model and "
                "its first weights, all settings.",
                f"Randomness: {RANDOMNESS['system']}",
            ]
        )


def make_planned_statements(cohorts: Iterable[PlannedCohort]) -> list[StudyStatement]:
    """One statement for each data set of a plan that is not public."""
    by_dataset: dict[str, list[PlannedCohort]] = {}
    for cohort in cohorts:
        if not cohort.is_public:
            by_dataset.setdefault(cohort.dataset, []).append(cohort)
    return [_make_planned(of_set) for of_set in by_dataset.values()]


def _make_planned(cohorts: Sequence[PlannedCohort]) -> StudyStatement:
    first = cohorts[0]
    assert first.epsilon is not None
    assert first.delta is not None
    nu = min(cohort.noise_multiplier for cohort in cohorts)
    search = Search(first.sampling, first.steps, first.budgeted_runs)
    methods: Counter[str] = Counter()
    for cohort in cohorts:
        methods[cohort.method] += len(cohort.runs)
    return StudyStatement(
        dataset=first.dataset,
        version=first.data_version or "",
        unit=first.sampling.unit,
        records=first.examples,
        epsilon=search.epsilon(nu, first.delta),
        delta=first.delta,
        budget=first.epsilon,
        runs=first.budgeted_runs,
        stored=None,
        methods=dict(methods),
        steps=first.steps,
        sampling_rate=first.sampling.rate,
        noise_multiplier=nu,
    )


def make_stored_statements(
    runs: pd.DataFrame, accounts: Iterable[GridAccount]
) -> list[StudyStatement]:
    """One statement for each data set of the table `runs` that is not public, from its account."""
    of_set = runs[counts_to_total(runs)]
    units = of_set["unit"].fillna(EXAMPLE.name)
    return [
        _make_stored(of_set[(of_set["dataset"] == account.dataset) & (units == unit)], account)
        for account in accounts
        if account.total
        for unit in [account.ledgers[0].sampling.unit.name]
    ]


def _make_stored(rows: pd.DataFrame, account: GridAccount) -> StudyStatement:
    versions = rows["data_version"].dropna().unique()
    methods = rows["method"].value_counts()
    rate = rows["batch_size"] / rows["examples"]
    return StudyStatement(
        dataset=account.dataset,
        version=" and ".join(sorted(versions)),
        unit=account.ledgers[0].sampling.unit,
        records=int(rows["examples"].max()),
        epsilon=account.spent,
        delta=account.delta,
        budget=account.epsilon,
        runs=account.runs,
        stored=account.stored,
        methods={name: int(methods[name]) for name in labels.sort_methods(methods.index)},
        steps=int(rows["steps"].max()),
        sampling_rate=float(rate.max()),
        noise_multiplier=float(rows["noise_multiplier"].min()),
    )
