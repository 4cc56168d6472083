"""A method of the study that drives an Opacus run: its sums, and what it learns from answers.

The method is the very one of `oso_dp.methods`. The study's `State` holds one run here (R = 1), no
parameters, since a torch optimizer moves those, and as learning rate the factor by which the
optimizer's own rate is multiplied: 1 at the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.methods import Method, State

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers, Query


class MethodAdapter:
    """C, the factor of rho, and the method's memory.

    `threshold`: C_0. `quantile`: gamma, NaN if the method has none. `batch_size`: expected, of all
    workers. `size`: P. `dtype`, `device`: of the sanitized answers.
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
        """C of the next step."""
        return float(self.state.threshold)

    @property
    def factor(self) -> float:
        """What the optimizer's rate is multiplied by in the next step: rho_t over its rate."""
        return float(self.state.learning_rate)

    def queries(self, noise_multiplier: float) -> tuple[Query, ...]:
        """The sums of a step that may cost `noise_multiplier`; the first is the gradient."""
        self.state.noise_multiplier = noise_multiplier
        return self.method.queries(self.state)

    def learn(self, answers: Answers) -> None:
        """Move C and the factor, after a step with the old ones."""
        self.state.step += 1
        self.method.adapt_hyperparameters(self.state, answers)

    def synchronize(self) -> None:
        """Take rank 0's C and factor: in workers whose values differ, the clip would, too."""
        for value in (self.state.threshold, self.state.learning_rate):
            torch.distributed.broadcast(value, 0)

    def content(self) -> dict[str, Any]:
        """For a checkpoint: sanitized values and public constants only."""
        state = self.state
        return {
            "method": self.method.name,
            "step": state.step,
            "threshold": state.threshold.clone(),
            "learning_rate_factor": state.learning_rate.clone(),
            "memory": {name: value.clone() for name, value in state.buffers.items()},
        }

    def restore(self, content: Mapping[str, Any]) -> None:
        """Go on from `content`; OsoError, and nothing is changed, if it is of something else."""
        state = self.state
        try:
            if content["method"] != self.method.name:
                raise OsoError(
                    f"state_dict: is of method {content['method']!r}, not {self.method.name!r}"
                )
            step = int(content["step"])
            threshold = content["threshold"].to(state.threshold).view(1)
            factor = content["learning_rate_factor"].to(state.learning_rate).view(1)
            memory = {name: value.to(state.threshold) for name, value in content["memory"].items()}
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise OsoError(
                f"state_dict: key 'oso_dp' is not readable ({type(error).__name__}: {error})"
            ) from None
        lengths = {value.shape[-1] for value in memory.values() if value.dim() == 2}
        if others := lengths - {self.size}:
            raise OsoError(
                f"state_dict: its last answers have {max(others)} numbers, the optimizer's "
                f"parameters {self.size}"
            )
        if not (threshold > 0).all() or not (threshold.isfinite() & factor.isfinite()).all():
            raise OsoError("state_dict: threshold and factor must be finite, the threshold above 0")
        state.step, state.threshold, state.learning_rate = step, threshold, factor
        state.buffers = memory
