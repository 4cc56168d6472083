"""Lets a torch optimizer move the parameters by the sanitized gradient, in place of the method."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from oso_dp.errors import OsoError, failing_as

MakeOptimizer: TypeAlias = Callable[[nn.Module], Optimizer]
MakeScheduler: TypeAlias = Callable[[Optimizer], LRScheduler]


class TorchOptimizer:
    """An optimizer, and perhaps a scheduler, of a copy of the model.

    It sees sanitized gradients only. OsoError for an optimizer that needs more (closures), a
    scheduler that needs more (metrics), or parameters that are not the model's. Frozen parameters
    have no gradient, so the optimizer leaves them as they are.
    """

    def __init__(
        self, model: nn.Module, make: MakeOptimizer, make_scheduler: MakeScheduler | None = None
    ) -> None:
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._flat = torch.cat([p.detach().flatten() for p in trained.values()])
        self._gradient = torch.zeros_like(self._flat)
        places = torch.arange(len(self._flat)).split([p.numel() for p in trained.values()])
        for parameter, place in zip(trained.values(), places, strict=True):
            part = slice(int(place[0]), int(place[-1]) + 1)
            parameter.data = self._flat[part].view(parameter.shape)
            parameter.grad = self._gradient[part].view(parameter.shape)
        with failing_as(_failure("optimizer", make)):
            self.optimizer = make(model)
        _check_optimizer(self.optimizer, trained, model)
        self.scheduler = None
        if make_scheduler is not None:
            with failing_as(_failure("scheduler", make_scheduler)):
                self.scheduler = make_scheduler(self.optimizer)
            _check_scheduler(self.scheduler, self.optimizer)

    def step(self, parameters: Tensor, gradient: Tensor, factor: float) -> None:
        """Move parameters [P] in place by the gradient [P], at the rates times a factor."""
        self._flat.copy_(parameters)
        self._gradient.copy_(gradient)
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor
        try:
            self.optimizer.step()
        finally:
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
        if self.scheduler is not None:
            self.scheduler.step()
        parameters.copy_(self._flat)

    def rehearse_scheduler(self, steps: int) -> None:
        """OsoError if the scheduler fails within the steps, which a training learns too late.

        Afterwards this object cannot train.
        """
        assert self.scheduler is not None
        self.optimizer.zero_grad(set_to_none=True)  # its steps move nothing
        for step in range(1, steps + 1):
            with failing_as(f"scheduler: fails after step {step} of {steps}"):
                self.optimizer.step()
                self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """Of the optimizer and the scheduler: sanitized values and constants."""
        scheduler = {} if self.scheduler is None else self.scheduler.state_dict()
        return {"optimizer": self.optimizer.state_dict(), "scheduler": scheduler}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """ValueError for a state of another optimizer."""
        self.optimizer.load_state_dict(state["optimizer"])
        if (self.scheduler is not None) != bool(state["scheduler"]):
            raise ValueError("its state is with a scheduler and this call without, or the reverse")
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])


def _failure(name: str, make: Any) -> str:
    if isinstance(make, type):
        return f"{name}: the class {make.__name__}; must be a function that makes one"
    return f"{name}: fails"


def _check_optimizer(optimizer: Any, trained: dict[str, nn.Parameter], model: nn.Module) -> None:
    kind = type(optimizer).__name__
    if not isinstance(optimizer, Optimizer):
        raise OsoError(f"optimizer: returns {kind}; must return a torch.optim.Optimizer")
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if isinstance(optimizer, torch.optim.LBFGS) or (
        closure is not None and closure.default is inspect.Parameter.empty
    ):
        raise OsoError(f"optimizer: {kind} needs a closure, whose losses are not sanitized")
    given = {id(p) for group in optimizer.param_groups for p in group["params"]}
    missing = next((name for name, p in trained.items() if id(p) not in given), None)
    if missing is not None:
        raise OsoError(
            f"optimizer: lacks parameter {missing!r}, which would not be trained but get its share "
            "of the noise; add it, or freeze it with requires_grad_(False)"
        )
    if not given <= {id(p) for p in model.parameters()}:
        raise OsoError(
            "optimizer: has parameters of another model than the one passed to the function; use "
            "that one's model.parameters()"
        )


def _check_scheduler(scheduler: Any, optimizer: Optimizer) -> None:
    kind = type(scheduler).__name__
    if isinstance(scheduler, ReduceLROnPlateau):
        raise OsoError(f"scheduler: {kind} needs a metric, which is not sanitized; use another")
    if not isinstance(scheduler, LRScheduler):
        raise OsoError(f"scheduler: returns {kind}; must return a torch scheduler")
    if scheduler.optimizer is not optimizer:
        raise OsoError(
            "scheduler: has another optimizer; create it with the one passed to the function"
        )
