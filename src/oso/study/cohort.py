"""Cohorts and runs. A cohort is data set x method x k x epsilon: one grid, one budget."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from oso.data.catalogue import DATASETS
from oso.errors import OsoError
from oso.methods import find_method
from oso.study.grid import candidates
from oso.study.paper_best import best_points
from oso.study.preparation import file_name, preparation

if TYPE_CHECKING:  # training reads cohorts without the configuration's checker
    from oso.study.config import StudyConfig

# How a grid's search is priced unless the configuration says otherwise, and the distribution of the
# number of runs if it is by random stopping: the one that asks for the least noise.
SELECTION: Final = "composition"
STOPPING_SHAPE: Final = "logarithmic"
# A data set's choices that are part of an identity where they differ from these only, so that runs
# from before there was a choice keep theirs.
USUAL = {"loss": "mean", "unknown_words": "zeros", "precision": "float32"}


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
    precision: str  # of products: float32, tf32 or bfloat16
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
    shared: dict[str, Any] = {
        "dataset": dataset,
        "model": config.datasets[dataset].model,
        "method": name,
        "k": k,
        "epsilon": epsilon,
        "delta": config.delta if method.private else None,
        "selection": config.selection if stopping else SELECTION,
        "momentum": config.momentum if method.uses_momentum else None,
        "grid_runs": len(grid),
        "examples": DATASETS[dataset].examples,
        "batch_size": config.batch_size,
        "epochs": config.epochs,
    }
    # Whatever decides a result belongs to its run's identity: two runs that differ in any of it
    # must not share their noise.
    identity = {
        **shared,
        "settings": asdict(method.settings),
        "evaluate_every": config.evaluate_every,
        "last_layer_nonlinearity": config.last_layer_nonlinearity,
    }
    chosen = {key: getattr(config.datasets[dataset], key) for key in USUAL}
    identity |= {key: value for key, value in chosen.items() if value != USUAL[key]}
    if config.randomness != "seeded":
        identity["randomness"] = config.randomness
    if stopping:
        identity["stopping_shape"] = config.stopping_shape
    if config.select == "paper_best":
        grid = _paper_best(dataset, name, k, epsilon, grid)
    starts = [method.starting_point(candidate) for candidate in grid]
    budget = "nonprivate" if epsilon is None else f"eps{epsilon:.15g}"
    return Cohort(
        name=f"{dataset}.{name}.k{k}.{budget}" + ".random_stopping" * stopping,
        stopping_shape=config.stopping_shape if stopping else None,
        loss=config.datasets[dataset].loss,
        unknown_words=config.datasets[dataset].unknown_words,
        precision=config.datasets[dataset].precision,
        runs=tuple(_run(identity, start, seed) for start in starts for seed in config.seeds),
        **shared,
    )


def _run(identity: dict[str, Any], start: dict[str, float], seed: int) -> Run:
    point = {axis: start.get(axis) for axis in ("learning_rate", "threshold", "quantile")}
    text = json.dumps({**identity, **point, "seed": seed}, sort_keys=True)
    run_id = hashlib.sha256(text.encode()).hexdigest()[:20]
    assert point["learning_rate"] is not None
    return Run(
        run_id,
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
