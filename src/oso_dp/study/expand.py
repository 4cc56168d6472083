"""Expand a configuration into cohorts: every data set, method, k, epsilon and search stage."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from oso_dp.accounting.search_accounting import COMPOSITION, find_search_accounting
from oso_dp.errors import OsoError
from oso_dp.methods import find_method
from oso_dp.privacy.promise import USER
from oso_dp.study.cohort import Cohort, Point
from oso_dp.study.grid import make_candidates, nearest_to_papers_best
from oso_dp.study.identity import POINT
from oso_dp.study.private_datasets import with_one_budget

if TYPE_CHECKING:
    from oso_dp.study.config import StudyConfig


def make_cohorts(config: StudyConfig) -> list[Cohort]:
    """Every cohort of the study that has at least one run."""
    all_cohorts = [cohort for cohort in _make_all_cohorts(config) if cohort.runs]
    if config.grid_points == "paper_best":
        _check_covers_paper_points(config, all_cohorts)
    for cohort in all_cohorts:
        if len({run.run_id for run in cohort.runs}) != len(cohort.runs):
            raise OsoError(
                f"values_per_axis: {cohort.k}; too many for the ranges of `grid`, {cohort.name} "
                "would contain a point twice; use fewer values or wider ranges"
            )
    return with_one_budget(all_cohorts, map(config.info, config.datasets))


def _check_covers_paper_points(config: StudyConfig, all_cohorts: Sequence[Cohort]) -> None:
    """OsoError for a value of a key for which the paper reports no best point at all."""
    covered: dict[str, tuple[Collection[Any], set[Any]]] = {
        "datasets": (config.datasets, {cohort.dataset for cohort in all_cohorts}),
        "methods": (config.methods, {cohort.method for cohort in all_cohorts}),
        "values_per_axis": (config.values_per_axis, {cohort.k for cohort in all_cohorts}),
    }
    for name, section in config.datasets.items():
        has = {cohort.epsilon for cohort in all_cohorts if cohort.dataset == name}
        covered[f"datasets.{name}.epsilons"] = (section.epsilons, has)
    for key, (values, has) in covered.items():
        for value in values:
            if value not in has:
                named = f"{value:g}" if isinstance(value, float) else value
                raise OsoError(
                    f"{key}: {named}; the paper reports no best point for it; leave it out, or set "
                    "grid_points: all"
                )


def _make_all_cohorts(config: StudyConfig) -> Iterator[Cohort]:
    accounting = find_search_accounting(config.search_accounting)
    stages = accounting.stages(accounting.complete_options(config.search_options))
    for dataset, section in config.datasets.items():
        for name in config.methods:
            epsilons = section.epsilons if find_method(name).is_private else [None]
            for k in config.values_per_axis:
                for epsilon in epsilons:
                    for stage in stages:
                        yield _make_cohort(config, dataset, name, k, epsilon, stage)


def _make_cohort(
    config: StudyConfig,
    dataset: str,
    name: str,
    k: int,
    epsilon: float | None,
    stage: str | None,
) -> Cohort:
    method, section, info = config.method(name), config.datasets[dataset], config.info(dataset)
    grid = make_candidates(method.search, config.grid, k)
    # Without privacy a search costs nothing: its runs serve studies of any search accounting.
    accounting = find_search_accounting(
        config.search_accounting if method.is_private else COMPOSITION
    )
    by_user = section.unit == USER.name
    cohort = Cohort(
        dataset=dataset,
        model=section.model,
        method=name,
        method_options=asdict(method.options),
        momentum=config.momentum if method.uses_momentum else None,
        k=k,
        epsilon=epsilon,
        delta=config.delta if method.is_private else None,
        search_accounting=accounting.name,
        **accounting.complete_options(config.search_options),
        grid_runs=accounting.planned_runs(len(grid)),
        examples=info.records(section.unit),
        batch_size=config.batch_size,
        epochs=config.epochs,
        evaluate_every=config.evaluate_every,
        loss=section.loss,
        oov_words=section.oov_words,
        vocabulary=None if section.vocabulary in info.vocabularies[:1] else section.vocabulary,
        final_activation=config.final_activation,
        precision=section.precision,
        randomness=config.randomness,
        schedule=None if config.schedule == "constant" else config.schedule,
        averaging=config.averaging or None,
        stage=stage,
        data_version=info.version,
        unit=section.unit if by_user else None,
        local=section.local_options if by_user else None,
    )
    try:
        _ = cohort.columns  # raises for options that a row does not preserve
    except OsoError as error:
        raise OsoError(f"methods.{name}: {error}") from None
    if config.grid_points == "paper_best":
        grid = nearest_to_papers_best(cohort, grid)
    points = [_point(name, method.initial_values(candidate)) for candidate in grid]
    return cohort.with_runs(points, config.seeds)


def _point(name: str, start: dict[str, float]) -> Point:
    learning_rate, threshold, quantile = (start.get(axis) for axis in POINT)
    if learning_rate is None:
        raise OsoError(
            f"method {name!r}: has no learning_rate; set it in the method's `search` or "
            "`initial_values`"
        )
    return learning_rate, threshold, quantile
