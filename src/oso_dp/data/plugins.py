"""Plug-ins: user-defined data sets that installed packages provide by entry points.

The package declares, in its pyproject.toml,

    [project.entry-points."oso_dp.data"]
    breast_cancer = "its_module:data_set"

where `data_set` is a `UserDataset`. A configuration uses it by `model: own` under the data set's
name. Nothing else is ever imported by a name that a configuration contains.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final

from oso_dp.data.catalogue import DATASETS, DatasetSpec, dataset_info
from oso_dp.errors import OsoError
from oso_dp.files import format_os_error
from oso_dp.metrics import METRICS
from oso_dp.value_checks import check_integer

if TYPE_CHECKING:
    from oso_dp.data.arrays import Arrays

GROUP: Final = "oso_dp.data"  # entry point group
USER_MODEL: Final = "own"  # the configuration's `model` of a plug-in
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")  # data set names are used in file names
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]{0,39}")  # so are versions


@dataclass(frozen=True, kw_only=True)
class UserDataset:
    """A user-defined data set and model for a study, provided by an entry point `oso_dp.data`.

    All values but the result of `load` are treated as public.

    Args:
        load: Returns the data as `Arrays`.
        model: Returns a `torch.nn.Module` with initial weights from torch's global generator. It
            maps examples [B, *input_shape] to logits [B, classes] or, if `metric` is "mse", to
            reconstructions [B, *input_shape].
        version: Letters, digits, `_` and `.`; change it whenever the data change.
        examples: Number of training examples n, from which the study plans its noise. With `users`
            it need not be exact, unless a study protects examples.
        test_examples: Number of test examples.
        input_shape: Shape of one example, such as (30,) or (3, 32, 32).
        classes: Number of classes. Default: 2.
        metric: "accuracy" (default) or "mse".
        public: Whether the data need no protection. Default: False.
        users: Number of users to whom the training examples belong, whose ids `load` returns as
            `Arrays.train_users`; for studies with `unit: user`. Default: unknown.

    Raises:
        OsoError: For a value that is not allowed.

    Example:
        >>> data_set = UserDataset(
        ...     load=load_arrays,
        ...     model=lambda: torch.nn.Linear(30, 2),
        ...     version="1",
        ...     examples=455,
        ...     test_examples=114,
        ...     input_shape=(30,),
        ... )
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
    users: int | None = None

    def __post_init__(self) -> None:
        for name in ("load", "model"):
            if not callable(getattr(self, name)):
                raise OsoError(f"UserDataset: {name}: must be a function without arguments")
        if not isinstance(self.version, str) or not _VERSION.fullmatch(self.version):
            raise OsoError(
                f"UserDataset: version: {self.version!r}; must be a string of letters, digits, _ "
                "and ."
            )
        for name in ("examples", "test_examples", "classes"):
            check_integer(f"UserDataset: {name}", getattr(self, name), ge=1)
        if self.users is not None:
            check_integer("UserDataset: users", self.users, ge=1)
        if not isinstance(self.input_shape, tuple) or not self.input_shape:
            raise OsoError(
                f"UserDataset: input_shape: {self.input_shape!r}; must be the shape of one "
                "example, such as (30,) or (3, 32, 32)"
            )
        for size in self.input_shape:
            check_integer("UserDataset: input_shape", size, ge=1)
        if self.metric not in METRICS:
            raise OsoError(
                f"UserDataset: metric: {self.metric!r}; must be one of {', '.join(METRICS)}"
            )
        if not isinstance(self.public, bool):
            raise OsoError(f"UserDataset: public: {self.public!r}; must be True or False")

    def info(self, name: str) -> DatasetSpec:
        """The catalogue entry, from which a study is planned."""
        return DatasetSpec(
            name=name,
            title=name,
            examples=self.examples,
            test_examples=self.test_examples,
            input_shape=self.input_shape,
            metric=self.metric,
            classes=self.classes,
            version=self.version,
            public=self.public,
            users=self.users,
        )


def list_plugins() -> list[str]:
    """The names of all plug-ins."""
    return sorted({point.name for point in entry_points(group=GROUP)})


@cache  # scanning all installed packages is slow
def find_plugin(name: str) -> UserDataset:
    """Import and return the plug-in of this name.

    OsoError if there is none, or more than one, or it is not a `UserDataset`.
    """
    if name in DATASETS:
        raise OsoError(
            f"data set {name!r}: built in, and cannot have `model: own`; use another name"
        )
    if not _NAME.fullmatch(name):
        raise OsoError(
            f"data set {name!r}: must be a name of at most 40 lower-case letters, digits and _"
        )
    point = _entry_point(name)
    try:
        dataset = point.load()
    except Exception as error:  # user code may raise anything
        raise OsoError(
            f"{_at(name, point)}: cannot be loaded ({_describe_error(error)})"
        ) from error
    if not isinstance(dataset, UserDataset):
        found = type(dataset).__name__
        raise OsoError(f"{_at(name, point)}: {found}; must be an oso_dp.UserDataset")
    return dataset


def make_dataset_info(name: str, model: str) -> DatasetSpec:
    """The catalogue entry of a built-in data set, or a plug-in's if `model` is `USER_MODEL`."""
    return find_plugin(name).info(name) if model == USER_MODEL else dataset_info(name)


def load_plugin(name: str) -> "Arrays":
    """The arrays of the plug-in's `load`; OsoError if it fails or returns another type."""
    from oso_dp.data.arrays import Arrays

    try:
        arrays = find_plugin(name).load()
    except OsoError as error:
        raise OsoError(f"data set {name!r}: {error}") from error
    except Exception as error:  # user code may raise anything
        raise OsoError(f"data set {name!r}: load() failed ({_describe_error(error)})") from error
    if not isinstance(arrays, Arrays):
        raise OsoError(
            f"data set {name!r}: load() returned {type(arrays).__name__}; must be oso_dp.Arrays"
        )
    return arrays


def _entry_point(name: str) -> EntryPoint:
    # A package may be on the path twice, such as an installed one and its source.
    points = {point.value: point for point in entry_points(group=GROUP) if point.name == name}
    if len(points) == 1:
        return next(iter(points.values()))
    if points:
        raise OsoError(
            f"data set {name!r}: several packages provide it, as {' and '.join(sorted(points))}; "
            "uninstall all but one"
        )
    others = ", ".join(list_plugins()) or "none"
    raise OsoError(
        f"data set {name!r}: no installed package provides an entry point {GROUP!r} of this name; "
        f"installed: {others}"
    )


def _at(name: str, point: EntryPoint) -> str:
    return f"data set {name!r}: entry point {point.value}"


def _describe_error(error: Exception) -> str:
    file = getattr(error, "filename", None)  # of an OSError
    return f"{type(error).__name__}: {format_os_error(error)}{f': {file}' if file else ''}"
