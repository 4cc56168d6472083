"""Adapts a `Method` of `oso_dp.methods` to one Opacus run.

The method's `State` has one run (R = 1) and no parameters, since a torch optimizer updates those.
Its learning rate is the factor (initially 1) by which the optimizer's learning rate is multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.methods import Method, State
from oso_dp.methods.base import checked_queries

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers, Query


class MethodAdapter:
    """Holds C, the learning rate's factor and the method's buffers.

    Args:
        method: The method.
        threshold: Initial clipping threshold C_0.
        quantile: gamma, NaN if the method has none.
        batch_size: Expected batch size over all workers.
        size: Number of trained parameters P.
        dtype: Data type of the sanitized answers.
        device: Device of the sanitized answers.
    """

    def __init__(
        self,
        method: Method,
        threshold: float,
        quantile: float,
        batch_size: int,
        size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        def column(value: float) -> Tensor:
            return torch.tensor([value], dtype=dtype, device=device)

        self.method, self.size = method, size
        self.state = State(
            parameters=torch.empty(1, 0, dtype=dtype, device=device),
            learning_rate=column(1.0),
            threshold=column(threshold),
            quantile=column(quantile),
            noise_multiplier=0.0,  # set for each step
            batch_size=batch_size,
        )

    @property
    def threshold(self) -> float:
        """Clipping threshold C of the next step."""
        return float(self.state.threshold)

    @property
    def factor(self) -> float:
        """Factor of the optimizer's learning rate in the next step."""
        return float(self.state.learning_rate)

    def queries(self, noise_multiplier: float) -> tuple[Query, ...]:
        """The queries of a step at `noise_multiplier`; the first is the gradient."""
        self.state.noise_multiplier = noise_multiplier
        return checked_queries(self.method, self.state)

    def adapt_hyperparameters(self, answers: Answers) -> None:
        """Update C and the factor after a step that used the old ones."""
        self.state.step += 1
        self.method.adapt_hyperparameters(self.state, answers)

    def synchronize(self) -> None:
        """Take rank 0's C and factor, so that all workers clip at the same threshold."""
        for value in (self.state.threshold, self.state.learning_rate):
            torch.distributed.broadcast(value, 0)

    def content(self) -> dict[str, Any]:
        """The state for a checkpoint: sanitized values and public constants only."""
        state = self.state
        return {
            "method": self.method.name,
            "step": state.step,
            "threshold": state.threshold.clone(),
            "learning_rate_factor": state.learning_rate.clone(),
            "memory": {name: value.clone() for name, value in state.buffers.items()},
        }

    def restore(self, content: Mapping[str, Any]) -> None:
        """Load `content`; OsoError, and no change, if it does not fit this method or model."""
        state = self.state
        try:
            if content["method"] != self.method.name:
                raise OsoError(
                    f"state_dict: method {content['method']!r}; must be {self.method.name!r}"
                )
            step = int(content["step"])
            threshold = content["threshold"].to(state.threshold).view(1)
            factor = content["learning_rate_factor"].to(state.learning_rate).view(1)
            memory = {name: value.to(state.threshold) for name, value in content["memory"].items()}
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise OsoError(
                f"state_dict: key 'oso_dp' cannot be read ({type(error).__name__}: {error})"
            ) from None
        lengths = {value.shape[-1] for value in memory.values() if value.dim() == 2}
        if others := lengths - {self.size}:
            raise OsoError(
                f"state_dict: buffers have {max(others)} values; the optimizer's parameters "
                f"have {self.size}"
            )
        if not (threshold > 0).all() or not (threshold.isfinite() & factor.isfinite()).all():
            raise OsoError("state_dict: threshold and factor must be finite, and threshold > 0")
        state.step, state.threshold, state.learning_rate = step, threshold, factor
        state.buffers = memory
