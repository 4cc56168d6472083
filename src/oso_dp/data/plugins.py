"""A user's own data set: what an installed package offers under an entry point.

The package declares, in its pyproject.toml,

    [project.entry-points."oso_dp.data"]
    breast_cancer = "its_module:data_set"

and `data_set` is a `DataSet`. A configuration that says `model: own` under the data set's name
takes it from there. Nothing else is ever imported by a name that a configuration gives.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final

from oso_dp.data.catalogue import DATASETS, DatasetInfo, dataset_info
from oso_dp.errors import OsoError
from oso_dp.files import format_os_error
from oso_dp.metrics import METRICS

if TYPE_CHECKING:
    from oso_dp.data.arrays import Arrays

GROUP: Final = "oso_dp.data"  # of entry points
USER_MODEL: Final = "own"  # the value of a configuration's `model` that asks for one
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")  # of the data set: files are called so
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]{0,39}")  # files are called so, too


@dataclass(frozen=True, kw_only=True)
class UserDataset:
    """A data set for the study: what is known of it before it is read, and how to read it.

    load: gives the four arrays. model: gives a `torch.nn.Module` with fresh weights from torch's
    global generator; it takes examples [B, *input_shape] and gives outputs [B, classes], or, where
    the metric is `mse`, the examples again. version: another one whenever the data change.
    examples, test_examples: the numbers of rows of both parts; a study plans its noise with the
    first. public: whether nobody needs protection from what a study of these data shows.

    Everything but what `load` gives counts as public. OsoError names a value that cannot be.
    """

    load: "Callable[[], Arrays]"
    model: Callable[[], Any]
    version: str
    examples: int
    test_examples: int
    input_shape: tuple[int, ...]
    classes: int = 2
    metric: str = "accuracy"
    public: bool = False

    def __post_init__(self) -> None:
        for name in ("load", "model"):
            if not callable(getattr(self, name)):
                raise OsoError(f"DataSet: {name}: must be a function without arguments")
        if not isinstance(self.version, str) or not _VERSION.fullmatch(self.version):
            raise OsoError(
                f"DataSet: version {self.version!r}: must be a text of letters, digits, _ and ."
            )
        for name in ("examples", "test_examples", "classes"):
            _check_count(name, getattr(self, name))
        if not isinstance(self.input_shape, tuple) or not self.input_shape:
            raise OsoError(
                f"DataSet: input_shape {self.input_shape!r}: must be the shape of one example, as "
                "(30,) or (3, 32, 32)"
            )
        for size in self.input_shape:
            _check_count("input_shape", size)
        if self.metric not in METRICS:
            raise OsoError(f"DataSet: metric {self.metric!r}: allowed are {', '.join(METRICS)}")
        if not isinstance(self.public, bool):
            raise OsoError(f"DataSet: public {self.public!r}: allowed are True, False")

    def info(self, name: str) -> DatasetInfo:
        """What the study plans with."""
        return DatasetInfo(
            name=name,
            title=name,
            examples=self.examples,
            test_examples=self.test_examples,
            input_shape=self.input_shape,
            metric=self.metric,
            classes=self.classes,
            version=self.version,
            public=self.public,
        )


def _check_count(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise OsoError(f"DataSet: {name} {value!r}: must be a whole number from 1")


def list_plugins() -> list[str]:
    """Of the data sets that installed packages offer."""
    return sorted({point.name for point in entry_points(group=GROUP)})


@cache  # looking through all installed packages takes a while
def find_plugin(name: str) -> UserDataset:
    """The data set that an installed package offers under this name; its module is imported.

    OsoError if there is none, or two, or what is there is no `DataSet`.
    """
    if name in DATASETS:
        raise OsoError(f"data set {name!r}: is the study's own, which has models of its own")
    if not _NAME.fullmatch(name):
        raise OsoError(
            f"data set {name!r}: must be a name of small letters, digits and _, at most 40"
        )
    point = _entry_point(name)
    try:
        made = point.load()
    except Exception as error:  # whatever a user's module may do
        raise OsoError(
            f"{_at(name, point)}: cannot be loaded ({_describe_error(error)})"
        ) from error
    if not isinstance(made, UserDataset):
        raise OsoError(f"{_at(name, point)}: is a {type(made).__name__}, not an oso_dp.DataSet")
    return made


def make_dataset_info(name: str, model: str) -> DatasetInfo:
    """What the study plans with, of its own data set or, where `model` is `OWN`, a user's."""
    return find_plugin(name).info(name) if model == USER_MODEL else dataset_info(name)


def load_plugin(name: str) -> "Arrays":
    """What the data set's `load` gives; OsoError where it fails, or gives something else."""
    from oso_dp.data.arrays import Arrays

    try:
        arrays = find_plugin(name).load()
    except OsoError as error:
        raise OsoError(f"data set {name!r}: {error}") from error
    except Exception as error:  # whatever a user's function may do
        raise OsoError(f"data set {name!r}: load() failed ({_describe_error(error)})") from error
    if not isinstance(arrays, Arrays):
        raise OsoError(
            f"data set {name!r}: load() gave a {type(arrays).__name__}, not oso_dp.Arrays"
        )
    return arrays


def _entry_point(name: str) -> EntryPoint:
    # A package may stand twice on the path, as an installed one does beside its source.
    points = {point.value: point for point in entry_points(group=GROUP) if point.name == name}
    if len(points) == 1:
        return next(iter(points.values()))
    if points:
        raise OsoError(f"data set {name!r}: installed twice, as {' and '.join(sorted(points))}")
    others = ", ".join(list_plugins()) or "none"
    raise OsoError(
        f"data set {name!r}: no installed package offers it as an entry point of {GROUP!r} "
        f"(offered: {others})"
    )


def _at(name: str, point: EntryPoint) -> str:
    return f"data set {name!r}: entry point {point.value}"


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {format_os_error(error)}"
