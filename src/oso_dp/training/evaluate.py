"""Evaluation on the test set, which is public here: no ledger, no noise."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from oso_dp.gradients import GradientEngine
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
    """Means over one split.

    class_accuracy: of each class in order, None for one without examples in the split; None as a
    whole where the metric is no accuracy, or targets are no classes.
    """

    split: str
    value: float
    loss: float
    class_accuracy: tuple[float | None, ...] | None = None


class Evaluator:
    """Scores parameters on the whole test set and on its even- and odd-numbered halves."""

    def __init__(self, code: GradientEngine, inputs: Tensor, targets: Tensor, metric: str) -> None:
        self.code, self.inputs, self.targets = code, inputs, targets
        self.loss, self.metric = LOSSES[metric], METRICS[metric]
        self.batch = BATCH_IN_PORTIONS if code.microbatch_size(inputs) else BATCH
        if inputs.device.type != "cpu":
            self.batch = BATCH_ELSEWHERE
        self.class_of: Tensor | None = None
        if metric == "accuracy" and targets.dim() == 1 and len(targets) and targets.min() >= 0:
            self.class_of = targets.long()

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
            SplitScore(
                split,
                value[part].mean().item(),
                loss[part].mean().item(),
                self._class_accuracy(value, part),
            )
            for split, part in SPLITS.items()
        ]

    def _class_accuracy(self, correct: Tensor, part: slice) -> tuple[float | None, ...] | None:
        """correct: float64 [n], 1 where an example's class was found."""
        if self.class_of is None:
            return None
        classes = int(self.class_of.max()) + 1
        of_part = self.class_of[part]
        found = torch.bincount(of_part, correct[part], minlength=classes).tolist()
        counts = torch.bincount(of_part, minlength=classes).tolist()
        return tuple(
            hits / count if count else None for hits, count in zip(found, counts, strict=True)
        )
