"""The training options of `train_private`, validated before training starts."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import nn

from oso_dp.api.arguments import check_named, suggest_name
from oso_dp.api.callbacks import Callback
from oso_dp.api.users import make_local_training
from oso_dp.defaults import EPOCHS, MOMENTUM
from oso_dp.errors import OsoError
from oso_dp.gradients import PRECISIONS
from oso_dp.methods import Method, find_method, method_names
from oso_dp.methods.option_checks import make_options
from oso_dp.privacy.local_training import LocalTraining
from oso_dp.study.cohort import Run
from oso_dp.study.identity import POINT
from oso_dp.training.augmentation import Augment
from oso_dp.training.schedule_and_averaging import CONSTANT, SCHEDULES, Schedule
from oso_dp.training.torch_optimizer import MakeOptimizer, MakeScheduler
from oso_dp.value_checks import as_plain, check_integer, check_number

_DEFAULT_START = {"learning_rate": 1.0}
_FUNCTION = "a function"  # in place of one, in a file


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
    schedule: str | Schedule = CONSTANT
    warmup: float = 0.0
    averaging: float = 0.0
    optimizer: MakeOptimizer | None = None
    scheduler: MakeScheduler | None = None
    randomness: str = "system"
    seed: int | None = None
    device: str = "cpu"
    precision: str = "float32"
    microbatch_size: int | None = None
    augment: Augment | None = None
    augmentations: int = 1
    evaluate: Callable[[nn.Module], float] | None = None
    evaluate_every: int | None = None
    callbacks: Sequence[Callback] = ()
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: int | None = None
    users: Any = None
    local: Any = None
    method_options: Mapping[str, Any] = field(default_factory=dict)  # the method's constants

    def __post_init__(self) -> None:
        for option in fields(self):
            object.__setattr__(self, option.name, as_plain(getattr(self, option.name)))
        numbers = {name: as_plain(value) for name, value in self.method_options.items()}
        object.__setattr__(self, "method_options", numbers)
        check_number("epochs", self.epochs, gt=0)
        check_number("momentum", self.momentum, ge=0, lt=1)
        check_number("averaging", self.averaging, ge=0, lt=1)
        check_number("warmup", self.warmup, ge=0, lt=1)
        for name in ("method", "randomness", "precision"):
            check_named(name, getattr(self, name))
        self._check_schedule()
        self._check_optimizer()
        for name in (
            *("batch_size", "microbatch_size", "evaluate_every", "augmentations"),
            "checkpoint_every",
        ):
            if (number := getattr(self, name)) is not None:
                check_integer(name, number, ge=1)
        if self.precision not in PRECISIONS:
            allowed = ", ".join(PRECISIONS)
            raise OsoError(f"precision: {self.precision!r}; must be one of {allowed}")
        if (self.randomness == "seeded") != (self.seed is not None):
            raise OsoError(
                f"seed: {self.seed!r} with randomness={self.randomness!r}; set a seed if and only "
                "if randomness='seeded'"
            )
        if self.seed is not None:
            check_integer("seed", self.seed)
        for name in ("evaluate", "augment", "optimizer", "scheduler"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise OsoError(f"{name}: {type(function).__name__}; must be callable")
        if self.evaluate is not None:
            _check_signature("evaluate", self.evaluate, "the model")
        if not isinstance(self.callbacks, Sequence) or not all(map(callable, self.callbacks)):
            raise OsoError("callbacks: must be a list of functions, each called with an Evaluation")
        for callback in self.callbacks:
            _check_signature("callbacks", callback, "an Evaluation")
        if self.checkpoint is not None and not isinstance(self.checkpoint, str | os.PathLike):
            raise OsoError(f"checkpoint: {self.checkpoint!r}; must be a file name")
        if self.checkpoint is None and self.checkpoint_every is not None:
            raise OsoError("checkpoint_every: has no effect without checkpoint, a file name")
        if self.users is None and self.local is not None:
            raise OsoError("local: has no effect without users, one id for each row")
        _ = self.local_training  # checks it
        if self.augment is None and self.augmentations != 1:
            raise OsoError(
                f"augmentations: {self.augmentations}; has no effect without augment, a function "
                "of an example's inputs"
            )
        self.make_run("checked")

    def _check_schedule(self) -> None:
        if callable(self.schedule):
            _check_signature("schedule", self.schedule, "step", "steps")
        else:
            if self.schedule == _FUNCTION:
                raise OsoError(
                    "schedule: a function in resume_from, which is not stored; pass it again"
                )
            check_named("schedule", self.schedule)
            if self.schedule not in SCHEDULES:
                allowed = f"{', '.join(SCHEDULES)}, or a function of step and steps"
                raise OsoError(f"schedule: {self.schedule!r}; must be one of {allowed}")
        if find_method(self.method).supports_schedule:
            return
        for name, value, none in (
            ("schedule", self.schedule, CONSTANT),
            ("warmup", self.warmup, 0.0),
        ):
            if value != none:
                raise OsoError(f"{name}: {value!r}; must be {none!r} for method {self.method!r}")

    def _check_optimizer(self) -> None:
        if self.optimizer is None:
            if self.scheduler is not None:
                raise OsoError("scheduler: has no effect without optimizer; use schedule")
            return
        if not takes_momentum(self.method):
            names = ", ".join(name for name in method_names() if _takes_optimizer(name))
            raise OsoError(
                f"optimizer: method {self.method!r} has its own optimizer; method must be one of "
                f"{names}"
            )

    @property
    def local_training(self) -> LocalTraining:
        """What each user computes in a step."""
        return make_local_training(self.local)

    def resumable_options(self) -> dict[str, Any]:
        """The options that a resumed training keeps unless they are given anew."""
        names = ("method", *POINT, "momentum", "warmup", "averaging")
        return {
            **{name: getattr(self, name) for name in names},
            "schedule": _FUNCTION if callable(self.schedule) else self.schedule,
            "method_options": dict(self.method_options),
        }

    def make_method(self) -> Method:
        """The method with its constants."""
        private = [name for name in method_names() if find_method(name).is_private]
        if self.method not in private:
            raise OsoError(f"method: {self.method!r}; must be one of {', '.join(private)}")
        method = find_method(self.method)
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
                    initial = f"initial_{name}"
                    hint = f"; did you mean {initial}?" * hasattr(method.options, initial)
                    raise OsoError(
                        f"{name}: method {self.method!r} has no such option; it has {options}{hint}"
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


def takes_momentum(name: str) -> bool:
    """Whether `momentum` has an effect in a method."""
    method = find_method(name)
    return method(method.Options(), 0.0).uses_momentum


def check_effects(
    name: str, optimizer: MakeOptimizer | None, learning_rate: float | None, momentum: float | None
) -> None:
    """Raise OsoError for a rate or a momentum that has no effect.

    An optimizer has its own, as some methods have their own momentum; `name`: the method's.
    """
    if optimizer is not None:
        for option, value in {"learning_rate": learning_rate, "momentum": momentum}.items():
            if value is not None:
                raise OsoError(
                    f"{option}: {value}; has no effect with optimizer, which has its own"
                )
    if momentum is not None and not takes_momentum(name):
        raise OsoError(f"momentum: {momentum}; has no effect with method {name!r}, leave it out")


def _check_signature(name: str, function: Callable[..., Any], *arguments: str) -> None:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        raise OsoError(f"{name}: must be a function of {' and '.join(arguments)}") from None
    except ValueError:  # a function of C without a signature
        pass


def _takes_optimizer(name: str) -> bool:
    return find_method(name).is_private and takes_momentum(name)


def _as_float(value: float | None) -> float | None:
    """Integers too: a tensor of integers alone would have an integer dtype."""
    return None if value is None else float(value)
