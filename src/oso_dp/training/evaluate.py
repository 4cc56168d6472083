"""Evaluation on the test set, which is public here: no ledger, no noise."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from oso_dp.gradients import GradientCode
from oso_dp.models.losses import LOSSES, METRICS

# Examples per forward pass. What convolutions hand on stays in the cache then: measured, a quarter
# less time than with 500. An accelerator is kept waiting by many small ones.
BATCH, BATCH_IN_PORTIONS, BATCH_ELSEWHERE = 500, 125, 5000

# In the order in which an evaluation reports them.
SPLITS: Final = {
    "test": slice(None),
    "test_even": slice(0, None, 2),
    "test_odd": slice(1, None, 2),
}


@dataclass(frozen=True)
class SplitScore:
    """Means over one split."""

    split: str
    value: float
    loss: float


class Evaluator:
    """Scores parameters on the whole test set and on its even- and odd-numbered halves."""

    def __init__(self, code: GradientCode, inputs: Tensor, targets: Tensor, metric: str) -> None:
        self.code, self.inputs, self.targets = code, inputs, targets
        self.loss, self.metric = LOSSES[metric], METRICS[metric]
        self.batch = BATCH_IN_PORTIONS if code.portion(inputs) else BATCH
        if inputs.device.type != "cpu":
            self.batch = BATCH_ELSEWHERE

    @torch.inference_mode()
    def __call__(self, flat: Tensor) -> list[SplitScore]:
        """flat: parameters [P]."""
        losses, values = [], []
        for start in range(0, len(self.inputs), self.batch):
            part = slice(start, start + self.batch)
            outputs = self.code.outputs(flat, self.inputs[part])
            losses.append(self.loss(outputs, self.targets[part]))
            values.append(self.metric(outputs, self.targets[part]))
        loss, value = torch.cat(losses).double(), torch.cat(values).double()
        return [
            SplitScore(split, value[part].mean().item(), loss[part].mean().item())
            for split, part in SPLITS.items()
        ]
