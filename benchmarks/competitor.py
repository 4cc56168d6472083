"""What every competitor offers: it is built for a setting and some data, and takes steps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from workloads import Data, Workload, find_workload

from oso_dp.errors import OsoError
from oso_dp.models import build_model


@dataclass(frozen=True)
class Setting:
    """One measurement: who trains what. The rest is the same for all."""

    competitor: str
    model: str
    runs: int = 1  # R, trained at once
    device: str = "cpu"
    threads: int = 1
    batch_size: int = 512
    learning_rate: float = 1e-3
    threshold: float = 0.1  # C
    noise_multiplier: float = 1.0  # nu
    momentum: float = 0.9  # the study's
    precision: str = "float32"  # of ours; a peer's name says its own
    method_options: dict[str, Any] = field(default_factory=dict)  # of ours; else the defaults

    @property
    def workload(self) -> Workload:
        return find_workload(self.model)


class SkippedError(Exception):
    """There is nothing to measure, and no fault in that."""


class Competitor:
    """One way to train. A subclass sets `package` and writes `step` and `parameters`.

    The peers are given a batch of exactly `setting.batch_size` examples, the first of the data, and
    take every step on it: drawing batches is left out of their time.
    """

    package: ClassVar[str]  # whose version is shown

    def __init__(self, setting: Setting, data: Data) -> None:
        self.setting = setting

    def step(self) -> None:
        """Take one step. It may return before the device is done."""
        raise NotImplementedError

    def parameters(self) -> np.ndarray:
        """The parameters now, [R, P], in the order of the PyTorch model's."""
        raise NotImplementedError

    def evaluate(self) -> None:
        """Score the parameters on a test set of the study's size."""
        raise SkippedError("a peer's evaluation is not measured")

    def finish(self) -> None:
        """Wait until the device is done."""
        if self.setting.device == "cuda":
            torch.cuda.synchronize()

    def peak_bytes(self) -> int | None:
        """The device's peak, from a competitor that does not allocate through PyTorch."""
        return None

    def data_bytes(self) -> int:
        """What a copy of the whole data set on the device takes: it is not part of a step."""
        return 0

    def version(self) -> str:
        return f"{self.package} {metadata.version(self.package)}"


# Layers that oso has in place of PyTorch's own, and what anybody else would write.
_PLAIN_LAYERS = {"StrideOneMaxPool": lambda: nn.MaxPool2d(2, stride=1), "Flatten": nn.Flatten}


def fresh_model(setting: Setting, plain: bool = True) -> nn.Module:
    """The network with the weights from which all competitors start, [P].

    `plain`: of PyTorch's own layers alone, as the peers have it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = setting.workload.network
        model = build_model(setting.model) if network is None else network()
    for name, layer in list(model.named_modules()):
        if plain and name and type(layer).__module__.startswith("oso_dp."):
            kind = type(layer).__name__
            if kind not in _PLAIN_LAYERS:
                raise OsoError(f"{kind}: no plain layer in benchmarks/competitor.py")
            model.set_submodule(name, _PLAIN_LAYERS[kind]())
    return model.to(setting.device)


def has_own_layers(model: nn.Module) -> bool:
    """Whether `fresh_model` would replace some."""
    return any(type(layer).__name__ in _PLAIN_LAYERS for layer in model.modules())


def flat_parameters(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def batch_of(setting: Setting, data: Data) -> tuple[Tensor, Tensor]:
    """The batch on the device; an autoencoder's targets are its inputs."""
    part = data.first(setting.batch_size)
    inputs = torch.tensor(part.inputs, device=setting.device)
    if setting.workload.metric == "mse":
        return inputs, inputs
    return inputs, torch.tensor(part.targets, device=setting.device)


class ExampleLoss(nn.Module):
    """A loss of outputs and targets as a criterion: per example, or their mean.

    The attribute `reduction` is how Opacus asks for one or the other. Its ghost clipping needs one
    loss per example; nn.MSELoss has one per pixel instead, and is refused.
    """

    def __init__(self, loss: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.loss = loss
        self.reduction = "mean"

    def forward(self, outputs: Any, targets: Tensor) -> Tensor:
        losses = self.loss(outputs, targets)
        return losses if self.reduction == "none" else losses.mean()
