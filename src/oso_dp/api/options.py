"""How to train, as somebody chose it: checked before anything else is done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import nn

from oso_dp.api.arguments import as_plain, check_named, suggest_name
from oso_dp.errors import OsoError
from oso_dp.gradients import PRECISIONS
from oso_dp.methods import Method, find_method
from oso_dp.methods.option_checks import check_number, make_options
from oso_dp.study.cohort import Run
from oso_dp.study.identity import POINT
from oso_dp.training.schedule_and_averaging import CONSTANT, SCHEDULES

_DEFAULT_START = {"learning_rate": 1.0}  # where nothing is said


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The arguments of `train_private` that are neither what is trained nor its budget.

    OsoError for a value that is not allowed, or that the method lacks.
    """

    epochs: float = 10
    batch_size: int | None = None
    method: str = "online"
    learning_rate: float | None = None
    threshold: float | None = None
    quantile: float | None = None
    momentum: float = 0.9
    schedule: str = CONSTANT
    averaging: float = 0.0
    randomness: str = "system"
    seed: int | None = None
    device: str = "cpu"
    precision: str = "float32"
    microbatch_size: int | None = None
    evaluate: Callable[[nn.Module], float] | None = None
    evaluate_every: int | None = None
    method_options: Mapping[str, float] = field(default_factory=dict)  # the method's constants

    def __post_init__(self) -> None:
        for one in fields(self):
            object.__setattr__(self, one.name, as_plain(getattr(self, one.name)))
        numbers = {name: as_plain(value) for name, value in self.method_options.items()}
        object.__setattr__(self, "method_options", numbers)
        check_number("epochs", self.epochs, gt=0)
        check_number("momentum", self.momentum, ge=0, lt=1)
        check_number("averaging", self.averaging, ge=0, lt=1)
        for name in ("method", "schedule", "randomness", "precision"):
            check_named(name, getattr(self, name))
        if self.schedule not in SCHEDULES:
            raise OsoError(f"schedule {self.schedule!r}: allowed are {', '.join(SCHEDULES)}")
        if self.schedule != CONSTANT and not find_method(self.method).supports_schedule:
            raise OsoError(
                f"schedule {self.schedule!r}: {self.method} takes none; allowed is {CONSTANT}"
            )
        for name in ("batch_size", "microbatch_size", "evaluate_every"):
            number = getattr(self, name)
            if number is not None and (type(number) is not int or number < 1):
                raise OsoError(f"{name} {number!r}: must be a whole number above 0")
        if self.precision not in PRECISIONS:
            raise OsoError(f"precision {self.precision!r}: allowed are {', '.join(PRECISIONS)}")
        if (self.randomness == "seeded") != (self.seed is not None):
            raise OsoError("seed: goes with randomness='seeded', which goes with a seed")
        if self.seed is not None and type(self.seed) is not int:
            raise OsoError(f"seed {self.seed!r}: must be a whole number")
        if self.evaluate is not None and not callable(self.evaluate):
            raise OsoError(f"evaluate: must be callable, not {type(self.evaluate).__name__}")
        self.make_run("checked")

    def resumable_options(self) -> dict[str, Any]:
        """What a later training keeps of these, unless it is told otherwise."""
        names = ("method", *POINT, "momentum", "schedule", "averaging")
        return {
            **{name: getattr(self, name) for name in names},
            "method_options": dict(self.method_options),
        }

    def make_method(self) -> Method:
        """The method with its constants."""
        kind = find_method(self.method)
        if not kind.is_private:
            raise OsoError(f"method {self.method!r}: protects nobody")
        constants = {one.name for one in fields(kind.Options)} - set(kind.search)
        explicit_constants = {
            name: value for name, value in self._explicit_start().items() if name in constants
        }
        try:
            settings = make_options(
                kind.Options, {**self.method_options, **explicit_constants}, "train_private"
            )
        except OsoError as error:
            names = {one.name for one in fields(kind.Options)}
            wrong = next((name for name in self.method_options if name not in names), None)
            if wrong is None:
                raise
            known = [*names, *(one.name for one in fields(self))]
            raise OsoError(f"{error}{suggest_name(wrong, known)}") from None
        return kind(settings, self.momentum)

    def make_run(self, run_id: str) -> Run:
        """A run of these choices that starts at their point."""
        method = self.make_method()
        usual = {name: value for name, value in _DEFAULT_START.items() if name in method.search}
        searched = {**usual, **self._explicit_start()}
        for name, value in self._explicit_start().items():
            check_number(name, value, gt=0, **({"lt": 1} if name == "quantile" else {}))
            if name not in method.search:
                del searched[name]
                if not hasattr(method.options, name):
                    taken = " and ".join(filter(None, [", ".join(method.search), "its constants"]))
                    raise OsoError(f"{name}: method {self.method!r} takes none; it takes {taken}")
        point = method.initial_values(searched)
        for name in method.search:
            if point.get(name) is None:
                raise OsoError(f"method {self.method!r}: needs a {name}")
        rho, *others = (_decimal(point.get(name)) for name in POINT)
        assert rho is not None  # all methods have one
        return Run(run_id, self.seed or 0, rho, *others)

    def _explicit_start(self) -> dict[str, float]:
        """Starting values that were said; a method may have one of these names as a constant."""
        return {name: getattr(self, name) for name in POINT if getattr(self, name) is not None}

    def torch_device(self) -> torch.device:
        """Where the model trains; OsoError where there is no such device."""
        try:
            device = torch.device(self.device)
        except (RuntimeError, TypeError, ValueError):
            raise OsoError(f"device {self.device!r}: not known; allowed are cpu, cuda") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            raise OsoError("device cuda: no CUDA device is visible here; allowed is cpu")
        if device.type not in ("cpu", "cuda"):
            raise OsoError(f"device {self.device!r}: is not for this; allowed are cpu, cuda")
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise OsoError(
                f"device {self.device!r}: there are {torch.cuda.device_count()} CUDA devices here"
            )
        return device


def _decimal(value: float | None) -> float | None:
    """Whole numbers too: a tensor of them alone would hold whole numbers only."""
    return None if value is None else float(value)
