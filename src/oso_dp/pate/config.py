"""The configuration of a study of PATE (config/pate.yaml), and the plans that it defines."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from oso_dp.accounting.pate import calibrate, calibrate_stable
from oso_dp.data.catalogue import dataset_info
from oso_dp.defaults import DELTA
from oso_dp.errors import OsoError
from oso_dp.models import fitting_models
from oso_dp.pate.networks import NetworkTraining
from oso_dp.privacy.votes import GaussianPlan, LaplacePlan, VotePlan
from oso_dp.study.config import (
    Epsilon,
    Folder,
    Integer,
    Real,
    Section,
    read_values,
    validate,
)

Count = Annotated[Integer, Field(ge=1, le=10**6)]
Positive = Annotated[Real, Field(gt=0, le=1e6)]


class _Options(Section):
    def options_text(self, without: set[str]) -> str:
        """The options as name=value, separated by a comma and a space."""
        options = self.model_dump(exclude=without, exclude_none=True)
        return ", ".join(f"{name}={value}" for name, value in sorted(options.items()))


class PateDataset(Section):
    """A data set. Its test examples with even index are the pool; the others test students."""

    model: str


class Training(_Options):
    """Of a network, see `oso_dp.pate.networks.NetworkTraining`."""

    epochs: Count
    batch_size: Count
    learning_rate: Positive
    shift: Annotated[Integer, Field(ge=0, le=10)] = Field(0, description="Pixels; of images only.")

    def make_training(self, dataset: str) -> NetworkTraining:
        """The training on a data set."""
        is_image = len(dataset_info(dataset).input_shape) == 3
        shift = self.shift if is_image else 0
        return NetworkTraining(self.epochs, self.batch_size, self.learning_rate, shift)


class Teachers(Training):
    count: list[Annotated[Integer, Field(ge=2, le=10**6)]] = Field(min_length=1)
    shards: Count = Field(1, description="Jobs among which the teachers are divided.")


class Student(Training):
    learning: list[Literal["supervised", "pseudo_labels"]] = Field(min_length=1)
    confidence: Annotated[Real, Field(gt=0, lt=1)] = Field(
        0.9, description="Probability from which a student's own prediction is a pseudo-label."
    )
    rounds: Count = Field(3, description="Of pseudo-labels, each by a new student.")
    round_epochs: Count = Field(10, description="In place of epochs, in these rounds.")


class Aggregator(_Options, ABC):
    """An aggregator's queries; its noise is calibrated to each epsilon."""

    queries: Count
    epsilons: list[Epsilon] | None = Field(None, description="In place of the study's.")

    @abstractmethod
    def make_plan(self, teachers: int, epsilon: float, delta: float) -> VotePlan:
        """The plan with the least noise whose epsilon at delta is at most this."""


class LaplaceAggregator(Aggregator):
    def make_plan(self, teachers: int, epsilon: float, delta: float) -> VotePlan:
        return calibrate(lambda noise: LaplacePlan(self.queries, noise), epsilon, delta)


class GaussianAggregator(Aggregator):
    def make_plan(self, teachers: int, epsilon: float, delta: float) -> VotePlan:
        return calibrate(lambda noise: GaussianPlan(self.queries, noise), epsilon, delta)


class ConfidentAggregator(Aggregator):
    answers: Count
    threshold: Annotated[Real, Field(gt=0, le=1)] = Field(description="Fraction of the teachers.")
    selection_noise: Positive = Field(description="In units of the noise of an answer.")

    @model_validator(mode="after")
    def _answers_fit(self) -> "ConfidentAggregator":
        if self.answers > self.queries:
            raise ValueError(f"answers: {self.answers}; must be <= queries, {self.queries}")
        return self

    def make_plan(self, teachers: int, epsilon: float, delta: float) -> VotePlan:
        threshold = self.threshold * teachers

        def make(noise: float) -> VotePlan:
            compared = self.selection_noise * noise
            return GaussianPlan(self.queries, noise, self.answers, threshold, compared)

        return calibrate(make, epsilon, delta)


class StableAggregator(Aggregator):
    unstable: Count

    def make_plan(self, teachers: int, epsilon: float, delta: float) -> VotePlan:
        return calibrate_stable(self.queries, self.unstable, epsilon, delta)


class Aggregators(Section):
    laplace: LaplaceAggregator | None = None
    gaussian: GaussianAggregator | None = None
    confident: ConfidentAggregator | None = None
    stable: StableAggregator | None = None

    @property
    def by_name(self) -> dict[str, Aggregator]:
        found = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: one for name, one in found.items() if one is not None}


class PateConfig(Section):
    """A study of PATE: teachers, aggregators at equal epsilon, students."""

    name: str = Field(pattern=r"^[a-z0-9_]+$", max_length=150)
    results: Folder = Field("results/pate", description="Folder of the table of students.")
    data_dir: Folder | None = None
    datasets: dict[str, PateDataset] = Field(min_length=1)
    teachers: Teachers
    aggregators: Aggregators
    epsilons: list[Epsilon] = Field(min_length=1)
    student: Student
    delta: Annotated[Real, Field(gt=0, lt=1)] = DELTA
    seeds: list[Annotated[Integer, Field(ge=0, lt=2**63)]] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> "PateConfig":
        if not self.aggregators.by_name:
            raise ValueError("aggregators: none; must be one or more")
        for name, section in self.datasets.items():
            try:
                self._check_dataset(name, section)
            except OsoError as error:
                raise ValueError(f"datasets.{name}: {error}") from None
        return self

    def _check_dataset(self, name: str, section: PateDataset) -> None:
        info = dataset_info(name)
        if info.metric != "accuracy":
            raise OsoError(f"has metric {info.metric}; must have classes to vote on")
        models = fitting_models(info.input_shapes, info.metric)
        if section.model not in models:
            raise OsoError(f"model {section.model!r}; must be one of {', '.join(models)}")
        if self.delta >= 1 / info.examples:
            raise OsoError(f"delta {self.delta:g}; must be < 1 / {info.examples} examples")
        pool = (info.test_examples + 1) // 2
        for key, aggregator in self.aggregators.by_name.items():
            if aggregator.queries > pool:
                raise OsoError(
                    f"aggregators.{key}.queries {aggregator.queries}; must be <= {pool}, the pool"
                )
        for count in self.teachers.count:
            if count > info.examples:
                raise OsoError(f"{count} teachers; must be <= {info.examples} examples")
            for key, aggregator in self.aggregators.by_name.items():
                for epsilon in aggregator.epsilons or self.epsilons:
                    try:
                        aggregator.make_plan(count, epsilon, self.delta).check(count)
                    except OsoError as error:
                        raise OsoError(
                            f"aggregators.{key} at epsilon {epsilon:g}: {error}"
                        ) from None

    def find_aggregator(self, name: str) -> Aggregator:
        """OsoError for one that the study does not have."""
        found = self.aggregators.by_name
        if name not in found:
            raise OsoError(f"aggregator: {name!r}; must be one of {', '.join(found)}")
        return found[name]

    def find_dataset(self, name: str) -> PateDataset:
        """OsoError for one that the study does not have."""
        if name not in self.datasets:
            raise OsoError(f"dataset: {name!r}; must be one of {', '.join(self.datasets)}")
        return self.datasets[name]


def parse_pate_config(values: Any, source: str) -> PateConfig:
    """OsoError names the source, the key and what is allowed."""
    return validate(PateConfig, values, source, {})


def load_pate_config(path: Path) -> PateConfig:
    """Read and check a configuration file; the path - stands for standard input."""
    return parse_pate_config(*read_values(path))
