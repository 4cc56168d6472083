"""From a configuration to its cohorts: every data set, method, k and epsilon."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from oso_dp.accounting.trial_shares import parts_of
from oso_dp.accounting.tuning import COMPOSITION, RANDOM_STOPPING, SINGLE
from oso_dp.errors import OsoError
from oso_dp.methods import find_method
from oso_dp.study.cohort import Cohort, Point
from oso_dp.study.grid import candidates
from oso_dp.study.identity import POINT
from oso_dp.study.own_data import with_one_budget
from oso_dp.study.paper_points import nearest_to_papers_best
from oso_dp.study.scaled import shares_of

if TYPE_CHECKING:
    from oso_dp.study.config import StudyConfig


def cohorts(config: StudyConfig) -> list[Cohort]:
    """Every cohort of the study that has at least one run."""
    every = [cohort for cohort in _all_cohorts(config) if cohort.runs]
    if config.points == "paper_best":
        _refuse_what_is_left_out(config, every)
    for cohort in every:
        if len({run.run_id for run in cohort.runs}) != len(cohort.runs):
            raise OsoError(
                f"granularities {cohort.k}: too many values for the ranges of `grid`; "
                f"{cohort.name} would run one point twice"
            )
    return with_one_budget(every, map(config.info, config.datasets))


def _refuse_what_is_left_out(config: StudyConfig, every: Sequence[Cohort]) -> None:
    """Of single cells the paper may have no best point, but not of all that a key asks for."""
    asked: dict[str, tuple[Collection[Any], set[Any]]] = {
        "datasets": (config.datasets, {cohort.dataset for cohort in every}),
        "methods": (config.methods, {cohort.method for cohort in every}),
        "granularities": (config.granularities, {cohort.k for cohort in every}),
    }
    for name, section in config.datasets.items():
        has = {cohort.epsilon for cohort in every if cohort.dataset == name}
        asked[f"datasets.{name}.epsilons"] = (section.epsilons, has)
    for key, (values, has) in asked.items():
        for value in values:
            if value not in has:
                named = f"{value:g}" if isinstance(value, float) else value
                raise OsoError(
                    f"{key}: {named}: the paper has no best point for it; leave it out, or set "
                    "select: grid"
                )


def _all_cohorts(config: StudyConfig) -> Iterator[Cohort]:
    for dataset, section in config.datasets.items():
        for name in config.methods:
            epsilons = section.epsilons if find_method(name).private else [None]
            for k in config.granularities:
                for epsilon in epsilons:
                    for part in _parts(config):
                        yield _cohort(config, dataset, name, k, epsilon, part)


def _parts(config: StudyConfig) -> tuple[str, ...] | tuple[None]:
    """Of each search; None: it is one."""
    shares = shares_of(config.tuning_accounting, config.trial_shares)
    return (None,) if shares is None else parts_of(shares)


def _cohort(
    config: StudyConfig,
    dataset: str,
    name: str,
    k: int,
    epsilon: float | None,
    part: str | None,
) -> Cohort:
    method, section, info = config.method(name), config.datasets[dataset], config.info(dataset)
    grid = candidates(method.search, config.grid, k)
    # A search without privacy costs none: its runs serve studies of every accounting.
    way = config.tuning_accounting if method.private else COMPOSITION
    cohort = Cohort(
        dataset=dataset,
        model=section.model,
        method=name,
        method_settings=asdict(method.settings),
        momentum=config.momentum if method.uses_momentum else None,
        k=k,
        epsilon=epsilon,
        delta=config.delta if method.private else None,
        selection=way,
        stopping_shape=config.stopping_shape if way == RANDOM_STOPPING else None,
        grid_runs=1 if way == SINGLE else len(grid),
        examples=info.examples,
        batch_size=config.batch_size,
        epochs=config.epochs,
        evaluate_every=config.evaluate_every,
        loss=section.loss,
        unknown_words=section.unknown_words,
        vocabulary=None if section.vocabulary in info.vocabularies[:1] else section.vocabulary,
        last_layer_nonlinearity=config.last_layer_nonlinearity,
        precision=section.precision,
        randomness=config.randomness,
        schedule=None if config.schedule == "constant" else config.schedule,
        averaging=config.averaging or None,
        part=part,
        trial_shares=shares_of(way, config.trial_shares),
        data_version=info.version,
    )
    try:
        _ = cohort.settings  # two searches that differ in what it does not hold would look alike
    except OsoError as error:
        raise OsoError(f"methods.{name}: {error}") from None
    if config.points == "paper_best":
        grid = nearest_to_papers_best(cohort, grid)
    points = [_point(method.starting_point(candidate)) for candidate in grid]
    return cohort.with_runs(points, config.seeds)


def _point(start: dict[str, float]) -> Point:
    learning_rate, threshold, quantile = (start.get(axis) for axis in POINT)
    assert learning_rate is not None
    return learning_rate, threshold, quantile
