"""Cohorts and runs. A cohort is data set x method x k x epsilon: one grid, one budget."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from oso_dp.data.catalogue import DATASETS
from oso_dp.errors import OsoError
from oso_dp.methods import find_method
from oso_dp.paper.best_points import best_points
from oso_dp.study.grid import candidates
from oso_dp.study.identity import POINT, SELECTION, cohort_name, run_id, settings_text
from oso_dp.study.preparation import file_name, preparation

if TYPE_CHECKING:  # training reads cohorts without the configuration's checker
    from oso_dp.study.config import StudyConfig

# Distribution of the number of runs of a search by random stopping unless the configuration says
# otherwise: the one that asks for the least noise.
STOPPING_SHAPE: Final = "logarithmic"


@dataclass(frozen=True)
class Run:
    """One training: a point of the grid and a seed."""

    run_id: str
    seed: int
    learning_rate: float
    threshold: float | None
    quantile: float | None


@dataclass(frozen=True)
class Cohort:
    """One grid under one budget, or those of its points that the study asks for."""

    name: str  # dataset.method.k9.eps3, then .random_stopping if it is
    dataset: str
    model: str
    method: str
    k: int
    epsilon: float | None  # None for methods without privacy
    delta: float | None
    selection: str  # how the search is priced: composition, random_stopping
    stopping_shape: str | None  # distribution of the number of runs; None under composition
    momentum: float | None  # None for methods with a momentum of their own
    grid_runs: int  # N: all of the grid's runs are paid for, or that many on average
    examples: int  # n
    batch_size: int
    epochs: int
    loss: str  # over the pixels of an image: mean or sum
    unknown_words: str  # of a text: zeros or skipped
    precision: str  # of products: float32, tf32, bfloat16
    settings: str  # JSON of all else that the configuration decides: see `settings_text`
    runs: tuple[Run, ...]

    @property
    def private(self) -> bool:
        return self.epsilon is not None

    @property
    def steps(self) -> int:
        """T = ceil(epochs n / B) steps per run."""
        return math.ceil(self.epochs * self.examples / self.batch_size)

    @property
    def preparation(self) -> dict[str, Any]:
        """How its data are prepared."""
        return preparation(self.model, self.unknown_words)

    @property
    def data_file(self) -> str:
        """Name of its prepared data, under build/data/."""
        return f"{file_name(self.dataset, self.preparation)}.npz"

    def shards(self, runs_per_job: int) -> list[tuple[Run, ...]]:
        """The runs in portions of one job each, in a fixed order."""
        starts = range(0, len(self.runs), runs_per_job)
        return [self.runs[start : start + runs_per_job] for start in starts]


def cohorts(config: StudyConfig) -> list[Cohort]:
    """Every cohort of the study that has at least one run."""
    every = [cohort for cohort in _all_cohorts(config) if cohort.runs]
    for cohort in every:
        if len({run.run_id for run in cohort.runs}) != len(cohort.runs):
            raise OsoError(
                f"granularities {cohort.k}: too many values for the ranges of `grid`; "
                f"{cohort.name} would run one point twice"
            )
    return every


def _all_cohorts(config: StudyConfig) -> Iterator[Cohort]:
    for dataset, section in config.datasets.items():
        for name in config.methods:
            method = find_method(name)
            epsilons: list[float | None] = [*section.epsilons] if method.private else [None]
            for k in config.granularities:
                for epsilon in epsilons:
                    yield _cohort(config, dataset, name, k, epsilon)


def _cohort(config: StudyConfig, dataset: str, name: str, k: int, epsilon: float | None) -> Cohort:
    method = config.method(name)
    grid = candidates(method.search, config.grid, k)
    # A search without privacy has no price: its runs serve studies of either selection.
    stopping = method.private and config.selection == "random_stopping"
    section = config.datasets[dataset]
    shared: dict[str, Any] = {
        "dataset": dataset,
        "method": name,
        "k": k,
        "epsilon": epsilon,
        "delta": config.delta if method.private else None,
        "selection": config.selection if stopping else SELECTION,
        "momentum": config.momentum if method.uses_momentum else None,
        "examples": DATASETS[dataset].examples,
        "batch_size": config.batch_size,
        "epochs": config.epochs,
        "precision": section.precision,
    }
    # Whatever decides a result belongs to its run's identity: two runs that differ in any of it
    # must not share their noise.
    settings: dict[str, Any] = {
        "settings": asdict(method.settings),
        "model": section.model,
        "grid_runs": len(grid),
        "evaluate_every": config.evaluate_every,
        "last_layer_nonlinearity": config.last_layer_nonlinearity,
        "loss": section.loss,
        **preparation(section.model, section.unknown_words),
        "randomness": config.randomness,
        "stopping_shape": config.stopping_shape if stopping else None,
    }
    if config.select == "paper_best":
        grid = _paper_best(dataset, name, k, epsilon, grid)
    starts = [method.starting_point(candidate) for candidate in grid]
    return Cohort(
        name=cohort_name(shared),
        model=section.model,
        grid_runs=settings["grid_runs"],
        stopping_shape=settings["stopping_shape"],
        loss=section.loss,
        unknown_words=section.unknown_words,
        settings=settings_text(settings),
        runs=tuple(
            _run(shared, settings, start, seed) for start in starts for seed in config.seeds
        ),
        **shared,
    )


def _run(
    shared: dict[str, Any], settings: dict[str, Any], start: dict[str, float], seed: int
) -> Run:
    point = {axis: start.get(axis) for axis in POINT}
    assert point["learning_rate"] is not None
    return Run(
        run_id({**shared, **point, "seed": seed}, settings),
        seed,
        point["learning_rate"],
        threshold=point["threshold"],
        quantile=point["quantile"],
    )


def _paper_best(
    dataset: str, method: str, k: int, epsilon: float | None, grid: list[dict[str, float]]
) -> list[dict[str, float]]:
    """The grid points that mean the paper's best hyperparameters, which it prints rounded."""
    chosen = []
    for best in best_points():
        if (best.dataset, best.method, best.k, best.epsilon) != (dataset, method, k, epsilon):
            continue
        printed = {axis: getattr(best, axis) for axis in grid[0]}
        nearest = min(grid, key=lambda point: _distance(point, printed))
        if _distance(nearest, printed) > math.log(1.02):
            raise OsoError(
                f"table {best.table}, {method}, epsilon {epsilon}: {printed} is not a point of the "
                "grid; select: paper_best needs the paper's ranges"
            )
        if nearest not in chosen:
            chosen.append(nearest)
    return chosen


def _distance(point: dict[str, float], printed: dict[str, float]) -> float:
    return max(abs(math.log(point[axis] / printed[axis])) for axis in point)
