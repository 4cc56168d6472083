"""The study's configuration: every key with its type, range and default, and its validation.

config/README.md explains the keys, `config_schema` makes their JSON schema.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from reprlib import Repr
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    create_model,
    model_validator,
)

from oso_dp.accounting.search_accounting import (
    COMPOSITION,
    describe_all,
    find_foreign_option,
    find_search_accounting,
    search_accounting_names,
)
from oso_dp.data.catalogue import DATASETS, DatasetSpec
from oso_dp.data.plugins import GROUP, USER_MODEL, list_plugins, make_dataset_info
from oso_dp.defaults import (
    BATCH_SIZE,
    DELTA,
    EPOCHS,
    MAX_COUNT,
    MOMENTUM,
    STOPPING_DISTRIBUTION,
    LossReduction,
    PrecisionName,
)
from oso_dp.errors import OsoError
from oso_dp.methods import Method, find_method, method_names
from oso_dp.models import MODELS, fitting_models
from oso_dp.privacy.local_training import MAX_EPOCHS, MAX_RATE, MAX_ROWS
from oso_dp.privacy.promise import EXAMPLE
from oso_dp.study.private_datasets import check_private_datasets
from oso_dp.study.strict_yaml import read_limited, read_text, read_yaml

_MAPPING = "must be a mapping of keys to values, {} if it is empty"
_KINDS = {
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "list_type": "must be a list, as [1]",
    "int_parsing": "must be an integer in decimal digits",
    "float_parsing": "must be a number",
}
_SHORT = Repr()  # shortens values in messages
_FEW_KEYS: Final = 8  # that a message lists
_PATE_KEYS: Final = ("teachers", "aggregators", "student")
_SUBJECT = re.compile(
    "^(Input|String|List|Dictionary|Tuple|Value) should "
)  # of pydantic's messages
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 80, 80


def _number(value: Any) -> Any:
    # YAML reads 1e-5 (without a dot) as text, and true would pass as 1.
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    if isinstance(value, str) and "_" in value:  # pydantic would take 1_000
        raise ValueError("must be a number in decimal digits")
    return value


def _with_underscores(value: Any) -> Any:
    """Accept the spelling of `oso`'s options, too: random-stopping."""
    return value.replace("-", "_") if isinstance(value, str) else value


def _folder(value: str) -> str:
    """A path that Python, Snakemake and a shell all read as the same folder."""
    if not value.strip() or value.startswith("-"):
        raise ValueError("must name a folder, and not begin with '-'")
    if not value.isprintable() or set("{}") & set(value):
        raise ValueError("must not contain {, } or unprintable characters")
    try:
        return str(Path(value).expanduser())
    except RuntimeError:
        raise ValueError("no such user; write the full path") from None


_MODELS = [*(name for name in MODELS if name != "linear"), USER_MODEL]  # that is the audit's


def _model(value: str) -> str:
    if value not in _MODELS:
        raise ValueError(f"must be one of {', '.join(_MODELS)}")
    return value


def _search_accounting(value: str) -> str:
    if value not in search_accounting_names():
        raise ValueError(f"must be one of {', '.join(search_accounting_names())}")
    return value


Real = Annotated[float, BeforeValidator(_number)]
Integer = Annotated[int, BeforeValidator(_number)]
Folder = Annotated[str, AfterValidator(_folder)]
Epsilon = Annotated[Real, Field(gt=0, le=1000)]
Interval = tuple[Real, Real]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


AnySection = TypeVar("AnySection", bound=Section)


class LocalSection(Section):
    """What a user computes in a step, where a user is the unit of privacy: SGD on their rows."""

    epochs: Annotated[Integer, Field(ge=1, le=MAX_EPOCHS)] = 1
    batch_size: Annotated[Integer, Field(ge=1, le=MAX_ROWS)] | Literal["all"] = Field(
        "all", description="Rows of a local step; all: one step for each epoch."
    )
    learning_rate: Annotated[Real, Field(gt=0, le=MAX_RATE)] = 1.0
    rows_per_user: Annotated[Integer, Field(ge=1, le=MAX_ROWS)] | None = Field(
        None, description="Rows of a user that are used at most; null: all."
    )


class DatasetSection(Section):
    """One data set of the study."""

    model: Annotated[str, AfterValidator(_model), Field(json_schema_extra={"enum": [*_MODELS]})]
    epsilons: list[Epsilon] = Field(
        min_length=1,
        description="Budgets, one for each grid; if not public, one for all runs.",
    )
    seconds_per_step: Annotated[Real, Field(gt=0, le=1e6)] = Field(
        description="On 2 CPU cores, measured; used to estimate hours and time limits of jobs."
    )
    loss: LossReduction = Field(
        "mean", description="Reduction over the pixels of an image; for autoencoders."
    )
    oov_words: Literal["zeros", "skipped"] = Field(
        "zeros", description="Out-of-vocabulary words of a text: zero vectors, or skipped."
    )
    vocabulary: Literal["complete", "subset"] | None = Field(
        None, description="Vocabulary of word vectors; null: the data set's default."
    )
    precision: PrecisionName = Field(
        "float32", description="Of matrix products; norms, weights and sums are always float32."
    )
    unit: Literal["example", "user"] = Field(
        "example", description="Unit of privacy: what is protected, and what a batch is drawn of."
    )
    local: LocalSection | None = Field(
        None, description="With unit: user; null: one step on all rows, at rate 1 (FedSGD)."
    )

    @property
    def local_options(self) -> dict[str, Any]:
        """The options of `LocalTraining`, by name, without those that stand for all."""
        given = LocalSection.model_validate(self.local or {})
        return {name: value for name, value in given if value not in (None, "all")}


class GridSection(Section):
    """Ranges of the searched hyperparameters, as the paper states them."""

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
                raise ValueError(f"{name}: [{low:g}, {high:g}]; must be -10 <= low < high <= 10")
        return self


class StudyConfig(Section):
    """A study: data sets, methods, search and resources."""

    name: str = Field(
        pattern=r"^[a-z0-9_]+$",
        max_length=150,
        description="Name of the working folder below build/.",
    )
    results: Folder = Field("results", description="Folder of the results store.")
    report: Folder = Field("reports", description="Folder of the report.")
    data_dir: Folder | None = Field(
        None, description="Folder with raw data files; null: download them."
    )
    datasets: dict[str, DatasetSection] = Field(min_length=1)
    methods: dict[str, dict[str, Any]] = Field(min_length=1)
    values_per_axis: list[Annotated[Integer, Field(ge=1, le=1000)]] = Field(min_length=1)
    # Stored as a signed 64-bit integer.
    seeds: list[Annotated[Integer, Field(ge=0, lt=2**63)]] = Field(min_length=1)
    grid_points: Literal["all", "paper_best"] = Field(
        "all",
        description="All points of a grid, or only those that the paper reports as best.",
    )
    grid: GridSection = GridSection()
    delta: Annotated[Real, Field(gt=0, lt=1)] = DELTA
    batch_size: Annotated[Integer, Field(ge=1, le=MAX_COUNT)] = BATCH_SIZE
    epochs: Annotated[Integer, Field(ge=1, le=1_000_000)] = EPOCHS
    evaluate_every: Annotated[Integer, Field(ge=1, le=MAX_COUNT)] = 50
    search_accounting: Annotated[
        str,
        BeforeValidator(_with_underscores),
        AfterValidator(_search_accounting),
        Field(json_schema_extra={"enum": [*search_accounting_names()]}),
    ] = Field(COMPOSITION, description=f"Of a hyperparameter search; {describe_all()}.")
    stopping_distribution: Literal["logarithmic", "geometric", "poisson"] = Field(
        STOPPING_DISTRIBUTION,
        description="Distribution of the number of runs, with random_stopping.",
    )
    trial_fractions: list[Real] | None = Field(
        None, description="Fraction of epsilon of each trial, with linear_scaling; null: 0.1, 0.2."
    )
    momentum: Annotated[Real, Field(ge=0, lt=1)] = MOMENTUM
    schedule: Literal["constant", "linear"] = Field(
        "constant", description="Learning rate schedule; linear: decay to zero."
    )
    averaging: Annotated[Real, Field(ge=0, lt=1)] = Field(
        0.0,
        description="Decay of the moving average of the parameters, which is evaluated; 0: none.",
    )
    final_activation: bool = False
    randomness: Literal["seeded", "system"] = Field(
        "seeded",
        description="system: batches and noise from the system's entropy; not reproducible.",
    )
    runs_per_job: Annotated[Integer, Field(ge=1, le=1_000_000)] = 45
    parallel_runs: Annotated[Integer, Field(ge=1, le=100_000)] = 1
    threads_per_job: Annotated[Integer, Field(ge=1, le=1024)] = 1
    device: Annotated[str, Field(pattern=r"^(cpu|cuda)$")] = "cpu"

    @model_validator(mode="after")
    def _consistent(self) -> "StudyConfig":
        if os.path.abspath(self.results) == os.path.abspath(self.report):
            raise ValueError(f"report: {self.report}; must be another folder than results")
        for name, section in self.datasets.items():
            info = self._info(name)
            try:
                records = info.records(section.unit)
            except OsoError as error:
                raise ValueError(f"datasets.{name}.{error}") from None
            if self.batch_size > records:
                raise ValueError(
                    f"batch_size: {self.batch_size}; must be <= {records}, the number of "
                    f"training {section.unit}s of {name}"
                )
            _check_user_level(name, section)
            if section.model == USER_MODEL:
                if self.final_activation:
                    raise ValueError(
                        f"final_activation: true; not available for datasets.{name}, whose model "
                        "is user-defined; leave it out"
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
                raise ValueError(f"datasets.{name}.loss: sum; only for models that return images")
            if section.oov_words != "zeros" and not info.words:
                raise ValueError(f"datasets.{name}.oov_words: {section.oov_words}; only for text")
            if section.vocabulary is not None and not info.words:
                raise ValueError(f"datasets.{name}.vocabulary: {section.vocabulary}; only for text")
            if section.precision == "tf32" and self.device != "cuda":
                raise ValueError(
                    f"datasets.{name}.precision: tf32; must be float32 or bfloat16 on device "
                    f"{self.device}"
                )
            _check_unique(f"datasets.{name}.epsilons", section.epsilons)
        for name in ("values_per_axis", "seeds"):
            _check_unique(name, getattr(self, name))
        _check_unique("grid.quantiles", self.grid.quantiles)
        self._check_search_accounting()
        for name in self.methods if self.schedule != "constant" else ():
            if not find_method(name).supports_schedule:
                raise ValueError(
                    f"methods.{name}: does not support schedules; set schedule: constant"
                )
        return self

    @property
    def search_options(self) -> dict[str, Any]:
        """The options of a search accounting; None for the default."""
        shape, fractions = self.stopping_distribution, self.trial_fractions
        return {
            "stopping_distribution": None if shape == STOPPING_DISTRIBUTION else shape,
            "trial_fractions": None if fractions is None else tuple(fractions),
        }

    def _check_search_accounting(self) -> None:
        """ValueError for what the study cannot combine with its search accounting."""
        name, options = self.search_accounting, self.search_options
        accounting = find_search_accounting(name)
        if foreign := find_foreign_option(name, options):
            option, owner = foreign
            value = options[option]
            value = ", ".join(map(str, value)) if isinstance(value, tuple) else value
            raise ValueError(f"{option}: {value}; only with search_accounting: {owner}")
        if error := accounting.find_error(accounting.complete_options(options)):
            raise ValueError(error)
        if accounting.needs_all_points and self.grid_points != "all":
            raise ValueError(
                f"grid_points: {self.grid_points}; must be all with search_accounting: {name}, "
                "which needs the best point of a grid"
            )
        known = {method: find_method(method) for method in method_names()}
        errors = {
            method: accounting.find_method_error(one.is_private, one.search)
            for method, one in known.items()
        }
        for method in self.methods:
            if why := errors.get(method):
                supported = ", ".join(one for one in known if not errors[one])
                raise ValueError(
                    f"methods.{method}: {why}; with search_accounting: {name}, must be one of "
                    f"{supported}"
                )

    def info(self, dataset: str) -> DatasetSpec:
        """Facts about one of the study's data sets that are known before it is prepared."""
        return make_dataset_info(dataset, self.datasets[dataset].model)

    def _info(self, dataset: str) -> DatasetSpec:
        """ValueError for an unknown data set."""
        if self.datasets[dataset].model != USER_MODEL and dataset not in DATASETS:
            plugins = ", ".join(sorted({*list_plugins()} - {*DATASETS})) or "none"
            raise ValueError(
                f"datasets.{dataset}: unknown; must be one of {', '.join(DATASETS)}, or, with "
                f"model: {USER_MODEL}, an entry point {GROUP} of an installed package: {plugins}"
            )
        try:
            return self.info(dataset)
        except OsoError as error:
            raise ValueError(f"datasets.{dataset}: {error}") from None

    def method(self, name: str) -> Method:
        """The method with this study's options; OsoError for an unknown or invalid option."""
        names = method_names()
        if name not in names:
            near = get_close_matches(name, names, 1)
            allowed = f"did you mean {near[0]}?" if near else f"must be one of {_listed(names)}"
            raise OsoError(f"methods.{name}: unknown method; {allowed}")
        method, options = find_method(name), method_options_model(name)
        try:
            checked = options.model_validate(self.methods[name])
        except ValidationError as error:
            raise OsoError(_first_line(error, options, f"methods.{name}")) from None
        return method(method.Options(**dict(checked)), self.momentum)


@cache
def method_options_model(name: str) -> type[Section]:
    """The model that validates a method's options: their declared types and limits."""
    method = find_method(name)
    types = get_type_hints(method.Options)
    numbers: dict[Any, Any] = {float: Real, int: Integer, bool: StrictBool}
    declared: dict[str, Any] = {
        one.name: (
            numbers.get(types[one.name], types[one.name]),
            Field(one.default, **one.metadata),
        )
        for one in fields(method.Options)
    }
    return create_model(name, __base__=Section, **declared)


def _check_fits(info: DatasetSpec, model: str) -> None:
    fitting = fitting_models(info.input_shapes, info.metric)
    if model not in fitting:
        raise ValueError(
            f"datasets.{info.name}.model: {model}; does not fit this data set; must be "
            f"{' or '.join(fitting)}"
        )


def _check_user_level(name: str, section: DatasetSection) -> None:
    if section.unit == EXAMPLE.name:
        if section.local is not None:
            raise ValueError(f"datasets.{name}.local: only with unit: user")
    elif section.precision != "float32":
        raise ValueError(
            f"datasets.{name}.precision: {section.precision}; must be float32 with unit: user"
        )


def _check_unique(name: str, values: list[Any]) -> None:
    if len(set(values)) != len(values):
        raise ValueError(f"{name}: {values}; each value may appear only once")


def validate(
    section: type[AnySection], values: Any, source: str, sources: Mapping[str, str]
) -> AnySection:
    """The values as a section; OsoError as by `parse_config`."""
    if not isinstance(values, dict):
        raise OsoError(f"{source}: must be a mapping of keys to values (see config/README.md)")
    try:
        return section.model_validate(values)
    except ValidationError as error:
        first = next(iter(_first_error(error)["loc"]), None)
        raise OsoError(
            f"{sources.get(str(first), source)}: {_first_line(error, section)}"
        ) from None


def parse_config(values: Any, source: str, sources: Mapping[str, str] | None = None) -> StudyConfig:
    """Check a configuration; OsoError names the source, the key and what is allowed.

    sources: for top-level keys that come from another source than `source`, that source.
    """
    of = {} if sources is None else sources
    config = validate(StudyConfig, values, source, of)
    try:
        for name in config.methods:
            config.method(name)
    except OsoError as error:
        raise OsoError(f"{of.get('methods', source)}: {error}") from None
    return config


def load_config(path: Path) -> StudyConfig:
    """Read and check a configuration file (YAML or JSON); the path - stands for standard input."""
    return parse_config(*read_values(path))


def read_values(path: Path) -> tuple[Any, str]:
    """The values of a configuration file, and its name in messages."""
    if str(path) != "-":
        return read_yaml(read_text(path), str(path)), str(path)
    try:
        text = read_limited(sys.stdin)
    except UnicodeDecodeError:
        raise OsoError("configuration: not YAML (not UTF-8 text)") from None
    return read_yaml(text, "configuration"), "configuration"


def _first_error(error: ValidationError) -> Any:
    """An unknown key if there is one, which may be why another key is missing, else the first."""
    errors = error.errors(include_url=False)
    return next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])


def _unknown_key(
    error: ValidationError, model: type[BaseModel], unknown: tuple[int | str, ...]
) -> str:
    """What a key may stand for: a missing one of its section, or another; else which there are."""
    missing = [
        str(one["loc"][-1])
        for one in error.errors(include_url=False)
        if one["type"] == "missing" and one["loc"][:-1] == unknown[:-1]
    ]
    known = _keys(model, unknown[:-1])
    for names in (missing, known):
        if near := get_close_matches(str(unknown[-1]), names, 1):
            return f"did you mean {near[0]}?"
    if unknown[0] in _PATE_KEYS:
        return "of a study of PATE: snakemake --snakefile workflow/pate.smk"
    if 0 < len(known) <= _FEW_KEYS:
        return f"must be one of {_listed(known)}"
    return "config/README.md lists the known ones"


def _keys(model: Any, section: tuple[int | str, ...]) -> list[str]:
    """The keys of a section of a model; empty where it has no fixed ones."""
    for part in section:
        if isinstance(model, type) and issubclass(model, BaseModel):
            field = model.model_fields.get(str(part))
            model = None if field is None else field.annotation
        else:  # a dictionary's values
            model = get_args(model)[-1] if get_origin(model) is dict else None
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [*model.model_fields]
    return []


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _first_line(error: ValidationError, model: type[BaseModel], prefix: str = "") -> str:
    """One of pydantic's errors of a model as one line: key, value, what is allowed."""
    first = _first_error(error)
    parts = [prefix, *(str(part) for part in first["loc"])]
    key = ".".join(part for part in parts if part)
    message = _SUBJECT.sub("must ", first["msg"].removeprefix("Value error, "))
    message = _KINDS.get(first["type"], message)  # in YAML's words, not in Python's
    if first["type"] == "extra_forbidden":
        return f"{key}: unknown key; {_unknown_key(error, model, first['loc'])}"
    if first["type"] == "missing":
        return f"{key}: missing; must be set"
    if not key:
        return message
    if first["type"] == "value_error" and isinstance(first["input"], dict):  # of a section
        return f"{key}.{message}"
    value = " ".join(_SHORT.repr(first["input"]).split())
    return f"{key}: {value[:80]}; {message[:1].lower()}{message[1:]}"
