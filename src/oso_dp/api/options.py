"""The training options of `train_private`, validated before training starts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import nn

from oso_dp.api.arguments import as_plain, check_named, suggest_name
from oso_dp.defaults import EPOCHS, MOMENTUM
from oso_dp.errors import OsoError
from oso_dp.gradients import PRECISIONS
from oso_dp.methods import Method, find_method
from oso_dp.methods.option_checks import check_number, make_options
from oso_dp.study.cohort import Run
from oso_dp.study.identity import POINT
from oso_dp.training.augmentation import Augment
from oso_dp.training.schedule_and_averaging import CONSTANT, SCHEDULES

_DEFAULT_START = {"learning_rate": 1.0}


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The arguments of `train_private` except model, loss, data and budget.

    Raises OsoError for a value that is not allowed, and for an option that the method lacks.
    """

    epochs: float = EPOCHS
    batch_size: int | None = None
    method: str = "online"
    learning_rate: float | None = None
    threshold: float | None = None
    quantile: float | None = None
    momentum: float = MOMENTUM
    schedule: str = CONSTANT
    averaging: float = 0.0
    randomness: str = "system"
    seed: int | None = None
    device: str = "cpu"
    precision: str = "float32"
    microbatch_size: int | None = None
    augment: Augment | None = None
    augmentations: int = 1
    evaluate: Callable[[nn.Module], float] | None = None
    evaluate_every: int | None = None
    method_options: Mapping[str, float] = field(default_factory=dict)  # the method's constants

    def __post_init__(self) -> None:
        for option in fields(self):
            object.__setattr__(self, option.name, as_plain(getattr(self, option.name)))
        numbers = {name: as_plain(value) for name, value in self.method_options.items()}
        object.__setattr__(self, "method_options", numbers)
        check_number("epochs", self.epochs, gt=0)
        check_number("momentum", self.momentum, ge=0, lt=1)
        check_number("averaging", self.averaging, ge=0, lt=1)
        for name in ("method", "schedule", "randomness", "precision"):
            check_named(name, getattr(self, name))
        if self.schedule not in SCHEDULES:
            allowed = ", ".join(SCHEDULES)
            raise OsoError(f"schedule: {self.schedule!r}; must be one of {allowed}")
        if self.schedule != CONSTANT and not find_method(self.method).supports_schedule:
            raise OsoError(
                f"schedule: {self.schedule!r}; must be {CONSTANT!r} for method {self.method!r}"
            )
        for name in ("batch_size", "microbatch_size", "evaluate_every", "augmentations"):
            number = getattr(self, name)
            if number is not None and (type(number) is not int or number < 1):
                raise OsoError(f"{name}: {number!r}; must be an integer >= 1")
        if self.precision not in PRECISIONS:
            allowed = ", ".join(PRECISIONS)
            raise OsoError(f"precision: {self.precision!r}; must be one of {allowed}")
        if (self.randomness == "seeded") != (self.seed is not None):
            raise OsoError(
                f"seed: {self.seed!r} with randomness={self.randomness!r}; set a seed if and only "
                "if randomness='seeded'"
            )
        if self.seed is not None and type(self.seed) is not int:
            raise OsoError(f"seed: {self.seed!r}; must be an integer")
        for name in ("evaluate", "augment"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise OsoError(f"{name}: {type(function).__name__}; must be callable")
        if self.augment is None and self.augmentations != 1:
            raise OsoError(
                f"augmentations: {self.augmentations}; has no effect without augment, a function "
                "of an example's inputs"
            )
        self.make_run("checked")

    def resumable_options(self) -> dict[str, Any]:
        """The options that a resumed training keeps unless they are given anew."""
        names = ("method", *POINT, "momentum", "schedule", "averaging")
        return {
            **{name: getattr(self, name) for name in names},
            "method_options": dict(self.method_options),
        }

    def make_method(self) -> Method:
        """The method with its constants."""
        method = find_method(self.method)
        if not method.is_private:
            raise OsoError(f"method: {self.method!r}; must be a private method")
        names = {field.name for field in fields(method.Options)}
        constants = {
            name: value
            for name, value in self._explicit_start().items()
            if name in names and name not in method.search
        }
        values = {**self.method_options, **constants}
        try:
            options = make_options(method.Options, values, "train_private")
        except OsoError as error:
            unknown = next((name for name in self.method_options if name not in names), None)
            if unknown is None:
                raise
            known = [*names, *(field.name for field in fields(self))]
            raise OsoError(f"{error}{suggest_name(unknown, known)}") from None
        return method(options, self.momentum)

    def make_run(self, run_id: str) -> Run:
        """The run with these options and their initial values."""
        method = self.make_method()
        default = {name: value for name, value in _DEFAULT_START.items() if name in method.search}
        searched = {**default, **self._explicit_start()}
        for name, value in self._explicit_start().items():
            check_number(name, value, gt=0, **({"lt": 1} if name == "quantile" else {}))
            if name not in method.search:
                del searched[name]
                if not hasattr(method.options, name):
                    options = " and ".join([*filter(None, [", ".join(method.search)]), "constants"])
                    raise OsoError(
                        f"{name}: method {self.method!r} has no such option; it has {options}"
                    )
        point = method.initial_values(searched)
        for name in method.search:
            if point.get(name) is None:
                raise OsoError(f"{name}: not set; method {self.method!r} needs it")
        rho, *others = (_as_float(point.get(name)) for name in POINT)
        assert rho is not None  # all methods have a learning rate
        return Run(run_id, self.seed or 0, rho, *others)

    def _explicit_start(self) -> dict[str, float]:
        """The given initial values; to some methods one of these is a constant."""
        return {name: getattr(self, name) for name in POINT if getattr(self, name) is not None}

    def torch_device(self) -> torch.device:
        """The device to train on; OsoError if there is no such device."""
        try:
            device = torch.device(self.device)
        except (RuntimeError, TypeError, ValueError):
            raise OsoError(f"device: {self.device!r}; must be cpu or cuda") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            raise OsoError(f"device: {self.device!r}; no CUDA device is visible, use cpu")
        if device.type not in ("cpu", "cuda"):
            raise OsoError(f"device: {self.device!r}; must be cpu or cuda")
        count = torch.cuda.device_count()
        if device.type == "cuda" and (device.index or 0) >= count:
            raise OsoError(f"device: {self.device!r}; only {count} CUDA devices are visible")
        return device


def _as_float(value: float | None) -> float | None:
    """Integers too: a tensor of integers alone would have an integer dtype."""
    return None if value is None else float(value)
