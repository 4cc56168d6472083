"""The study's configuration: every key, its type, its range, its default.

config/README.md explains the keys to people, `config_schema` makes their schema for editors.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from reprlib import Repr
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    model_validator,
)

from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.data.catalogue import DATASETS, DIMENSIONS, DatasetInfo
from oso_dp.data.plugins import GROUP, USER_MODEL, list_plugins, make_dataset_info
from oso_dp.errors import OsoError
from oso_dp.methods import Method, find_method
from oso_dp.study.data_options import WORDS_OF_MODEL
from oso_dp.study.identity import DEFAULT_STOPPING_DISTRIBUTION
from oso_dp.study.linear_scaling import check_linear_scaling
from oso_dp.study.private_datasets import check_private_datasets
from oso_dp.study.strict_yaml import read_limited, read_text, read_yaml

MAX_COUNT = 10**9  # of examples, or of steps
_SHORT = Repr()  # however large the value is
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 80, 80


def _number(value: Any) -> Any:
    # YAML reads 1e-5 (without a dot) as text, and true would pass as 1.
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    if isinstance(value, str) and "_" in value:  # pydantic would take 1_000
        raise ValueError("must be a number of decimal digits")
    return value


def _with_underscores(value: Any) -> Any:
    """As `oso` has it, too: random-stopping."""
    return value.replace("-", "_") if isinstance(value, str) else value


def _folder(value: str) -> str:
    """A path that means one folder wherever it arrives: in Python, Snakemake and a shell."""
    if not value.strip() or value.startswith("-"):
        raise ValueError("must name a folder, and not begin with -")
    if not value.isprintable() or set("{}") & set(value):
        raise ValueError("must have neither {, } nor characters that cannot be printed")
    try:
        return str(Path(value).expanduser())
    except RuntimeError:
        raise ValueError("~: there is no such user; write the whole path") from None


Real = Annotated[float, BeforeValidator(_number)]
Integer = Annotated[int, BeforeValidator(_number)]
Folder = Annotated[str, AfterValidator(_folder)]
Epsilon = Annotated[Real, Field(gt=0, le=1000)]
Interval = tuple[Real, Real]

# What each network takes, and what it is trained for.
MODELS: dict[str, tuple[tuple[int, ...], str]] = {
    "cnn": ((1, 28, 28), "accuracy"),
    "autoencoder": ((1, 28, 28), "mse"),
    "autoencoder_strided": ((1, 28, 28), "mse"),
    **{name: ((words * DIMENSIONS,), "accuracy") for name, words in WORDS_OF_MODEL.items()},
    "small_cnn": ((1, 14, 14), "accuracy"),
}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DatasetSection(_Section):
    """One data set of the study."""

    model: Literal[
        "cnn",
        "autoencoder",
        "autoencoder_strided",
        "bag_of_words",
        "bag_of_words_25",
        "small_cnn",
        "own",
    ]
    epsilons: list[Epsilon] = Field(
        min_length=1,
        description="Budgets, each for a whole grid; of own data that are not public one, for all.",
    )
    seconds_per_step: Annotated[Real, Field(gt=0, le=1e6)] = Field(
        description="Measured on 2 CPU cores; for estimates of hours, and a job's time limit."
    )
    loss: Literal["mean", "sum"] = Field(
        "mean", description="Over the pixels of an image, for training an autoencoder."
    )
    oov_words: Literal["zeros", "skipped"] = Field(
        "zeros", description="What becomes of a text's words without a vector."
    )
    vocabulary: Literal["complete", "subset"] | None = Field(
        None, description="Which words of a text have a vector; none: the data set's default."
    )
    precision: Literal["float32", "tf32", "bfloat16"] = Field(
        "float32", description="Of products; norms, weights and sums are float32 in any case."
    )


class GridSection(_Section):
    """Ranges of the hyperparameters, in the form in which the paper states them."""

    log10_learning_rate: Interval = (-2.5, 1.5)
    log10_threshold: Interval = (-2.0, 2.0)
    quantiles: list[Annotated[Real, Field(gt=0, lt=1)]] = Field(
        default=[0.1, 0.3, 0.5, 0.7, 0.9], min_length=1
    )

    @model_validator(mode="after")
    def _ordered(self) -> "GridSection":
        for name in ("log10_learning_rate", "log10_threshold"):
            low, high = getattr(self, name)
            if not -10 <= low < high <= 10:
                raise ValueError(f"{name} [{low:g}, {high:g}]: must be -10 <= low < high <= 10")
        return self


class StudyConfig(_Section):
    """A whole study."""

    name: str = Field(
        pattern=r"^[a-z0-9_]+$", max_length=150, description="Names the folder under build/."
    )
    results: Folder = Field("results", description="Folder of the results store.")
    report: Folder = Field("reports", description="Folder of the report.")
    data_dir: Folder | None = Field(None, description="Folder with raw data files, taken first.")
    datasets: dict[str, DatasetSection] = Field(min_length=1)
    methods: dict[str, dict[str, Any]] = Field(min_length=1)
    values_per_axis: list[Annotated[Integer, Field(ge=1, le=1000)]] = Field(min_length=1)
    # A row has 64 bits for it.
    seeds: list[Annotated[Integer, Field(ge=0, lt=2**63)]] = Field(min_length=1)
    grid_points: Literal["all", "paper_best"] = Field(
        "all",
        description="All of a grid, or the paper's best ones.",
    )
    grid: GridSection = GridSection()
    delta: Annotated[Real, Field(gt=0, lt=1)] = 1e-5
    batch_size: Annotated[Integer, Field(ge=1, le=MAX_COUNT)] = 512
    epochs: Annotated[Integer, Field(ge=1, le=1_000_000)] = 10
    evaluate_every: Annotated[Integer, Field(ge=1, le=MAX_COUNT)] = 50
    search_accounting: Annotated[
        Literal["composition", "random_stopping", "single", "linear_scaling"],
        BeforeValidator(_with_underscores),
    ] = Field(
        COMPOSITION,
        description="How the search of a grid is accounted for.",
    )
    stopping_distribution: Literal["logarithmic", "geometric", "poisson"] = Field(
        DEFAULT_STOPPING_DISTRIBUTION,
        description="Distribution of the number of runs under random_stopping.",
    )
    trial_fractions: list[Real] | None = Field(
        None, description="Of epsilon, one for each trial under linear_scaling; null: 0.1, 0.2."
    )
    momentum: Annotated[Real, Field(ge=0, lt=1)] = 0.9
    schedule: Literal["constant", "linear"] = Field(
        "constant", description="Of the learning rate; linear: it falls to zero."
    )
    averaging: Annotated[Real, Field(ge=0, lt=1)] = Field(
        0.0, description="Decay of an exponential average of the iterates, which is evaluated."
    )
    final_activation: bool = False
    randomness: Literal["seeded", "system"] = Field(
        "seeded", description="system: fresh entropy for batches and noise; not reproducible."
    )
    runs_per_job: Annotated[Integer, Field(ge=1, le=1_000_000)] = 45
    parallel_runs: Annotated[Integer, Field(ge=1, le=100_000)] = 1
    threads_per_job: Annotated[Integer, Field(ge=1, le=1024)] = 1
    device: Annotated[str, Field(pattern=r"^(cpu|cuda)$")] = "cpu"

    @model_validator(mode="after")
    def _consistent(self) -> "StudyConfig":
        if os.path.abspath(self.results) == os.path.abspath(self.report):
            raise ValueError(f"report {self.report}: must be another folder than results")
        for name, section in self.datasets.items():
            info = self._info(name)
            if self.batch_size > info.examples:
                raise ValueError(
                    f"batch_size {self.batch_size}: must be at most the {info.examples} "
                    f"examples of {name}"
                )
            if section.model == USER_MODEL:
                if self.final_activation:
                    raise ValueError(
                        f"final_activation true: datasets.{name} brings a model of its own"
                    )
                check_private_datasets(
                    info,
                    section.epsilons,
                    self.methods,
                    self.search_accounting,
                    self.randomness,
                )
            else:
                _check_fits(info, section.model)
            if section.loss == "sum" and info.metric != "mse":
                raise ValueError(f"datasets.{name}.loss sum: only where a model returns images")
            if section.oov_words != "zeros" and not info.words:
                raise ValueError(f"datasets.{name}.oov_words {section.oov_words}: only for texts")
            if section.vocabulary is not None and not info.words:
                raise ValueError(f"datasets.{name}.vocabulary {section.vocabulary}: only for texts")
            if section.precision == "tf32" and self.device != "cuda":
                raise ValueError(
                    f"datasets.{name}.precision tf32: not on device {self.device}; allowed are "
                    "float32, bfloat16"
                )
            _check_unique(f"datasets.{name}.epsilons", section.epsilons)
        for name in ("values_per_axis", "seeds"):
            _check_unique(name, getattr(self, name))
        _check_unique("grid.quantiles", self.grid.quantiles)
        if (
            self.search_accounting != RANDOM_STOPPING
            and self.stopping_distribution != DEFAULT_STOPPING_DISTRIBUTION
        ):
            raise ValueError(
                f"stopping_distribution {self.stopping_distribution}: only where search_accounting is "
                "random_stopping"
            )
        check_linear_scaling(
            self.search_accounting, self.trial_fractions, self.methods, self.grid_points
        )
        for name in self.methods if self.schedule != "constant" else ():
            if not find_method(name).supports_schedule:
                raise ValueError(f"methods.{name}: takes no schedule; allowed is constant")
        return self

    def info(self, dataset: str) -> DatasetInfo:
        """What is known of one of the study's data sets before it is there."""
        return make_dataset_info(dataset, self.datasets[dataset].model)

    def _info(self, dataset: str) -> DatasetInfo:
        """ValueError for a name that stands for nothing."""
        if self.datasets[dataset].model != USER_MODEL and dataset not in DATASETS:
            offered = ", ".join(sorted({*list_plugins()} - {*DATASETS})) or "nothing"
            raise ValueError(
                f"datasets.{dataset}: not known; allowed are {', '.join(DATASETS)}, and, with "
                f"model {USER_MODEL}, what installed packages offer in {GROUP}: {offered}"
            )
        try:
            return self.info(dataset)
        except OsoError as error:
            raise ValueError(f"datasets.{dataset}: {error}") from None

    def method(self, name: str) -> Method:
        """The method with this study's settings; OsoError for a setting that it does not take."""
        method = find_method(name)
        try:
            checked = method_options_model(name).model_validate(self.methods[name])
        except ValidationError as error:
            raise OsoError(_first_line(error, f"methods.{name}")) from None
        return method(method.Options(**dict(checked)), self.momentum)


@cache
def method_options_model(name: str) -> type[_Section]:
    """What checks a method's settings: their declared types and limits."""
    method = find_method(name)
    types = get_type_hints(method.Options)
    numbers: dict[Any, Any] = {float: Real, int: Integer}
    declared: dict[str, Any] = {
        one.name: (
            numbers.get(types[one.name], types[one.name]),
            Field(one.default, **one.metadata),
        )
        for one in fields(method.Options)
    }
    return create_model(name, __base__=_Section, **declared)


def _check_fits(info: DatasetInfo, model: str) -> None:
    prepared = [(shape, info.metric) for shape in info.input_shapes]
    if MODELS[model] not in prepared:
        fitting = [m for m in MODELS if MODELS[m] in prepared]
        raise ValueError(
            f"datasets.{info.name}.model {model}: does not fit these data; allowed is "
            f"{' or '.join(fitting)}"
        )


def _check_unique(name: str, values: list[Any]) -> None:
    if len(set(values)) != len(values):
        raise ValueError(f"{name} {values}: each value may stand there once")


def parse_config(values: Any, source: str, sources: Mapping[str, str] | None = None) -> StudyConfig:
    """Check a configuration; OsoError names the source, the key and what is allowed.

    sources: of keys of the top level that another source than `source` set.
    """
    of = {} if sources is None else sources
    if not isinstance(values, dict):
        raise OsoError(f"{source}: must be a mapping of keys to values (see config/README.md)")
    try:
        config = StudyConfig.model_validate(values)
    except ValidationError as error:
        first = next(iter(error.errors(include_url=False)[0]["loc"]), None)
        raise OsoError(f"{of.get(str(first), source)}: {_first_line(error)}") from None
    try:
        for name in config.methods:
            config.method(name)
    except OsoError as error:
        raise OsoError(f"{of.get('methods', source)}: {error}") from None
    return config


def load_config(path: Path) -> StudyConfig:
    """Read and check a configuration file (YAML or JSON); the path - stands for standard input."""
    if str(path) != "-":
        return parse_config(read_yaml(read_text(path), str(path)), str(path))
    try:
        text = read_limited(sys.stdin)
    except UnicodeDecodeError:
        raise OsoError("configuration: not YAML (not a text in UTF-8)") from None
    return parse_config(read_yaml(text, "configuration"), "configuration")


def _first_line(error: ValidationError, prefix: str = "") -> str:
    """Pydantic's first complaint as one line: key, value, what is allowed."""
    first = error.errors(include_url=False)[0]
    parts = [prefix, *(str(part) for part in first["loc"])]
    key = ".".join(part for part in parts if part)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"{key}: unknown key (config/README.md lists the known ones)"
    if first["type"] == "missing":
        return f"{key}: must be given"
    if not key:
        return message
    value = " ".join(_SHORT.repr(first["input"]).split())
    return f"{key}: {message[:1].lower()}{message[1:]} (found {value[:80]})"
