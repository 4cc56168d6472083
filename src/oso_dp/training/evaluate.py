"""Evaluation on the test set, which is public: not recorded in the ledger, without noise."""

from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from oso_dp.gradients import GradientEngine
from oso_dp.models.losses import LOSSES, METRICS


@dataclass
class Outcome:
    """What came out of one run."""

    run_id: str
    status: str = "running"  # then finished or diverged
    diverged_at: int | None = None
    ledger: str = ""
    wall_seconds: float = 0.0
    evaluations: list[dict[str, Any]] = field(default_factory=list)


# Examples per forward pass. Small batches keep the activations of convolutions in the CPU's cache
# (a quarter less time than with 500); accelerators need large ones.
BATCH, BATCH_MICROBATCHED, BATCH_ACCELERATOR = 500, 125, 5000

SPLITS: Final = {
    "test": slice(None),
    "test_even": slice(0, None, 2),
    "test_odd": slice(1, None, 2),
}


@dataclass(frozen=True)
class SplitScore:
    """Means over one split.

    `class_accuracy`: accuracy of each class, None for a class without examples in the split; None
    if the metric is not accuracy, or targets are not classes.
    """

    split: str
    value: float
    loss: float
    class_accuracy: tuple[float | None, ...] | None = None


class Evaluator:
    """Scores parameters on the complete test set and on its even- and odd-numbered halves."""

    def __init__(
        self, engine: GradientEngine, inputs: Tensor, targets: Tensor, metric: str
    ) -> None:
        self.engine, self.inputs, self.targets = engine, inputs, targets
        self.loss, self.metric = LOSSES[metric], METRICS[metric]
        self.batch = BATCH_MICROBATCHED if engine.chunk_size(inputs) else BATCH
        if inputs.device.type != "cpu":
            self.batch = BATCH_ACCELERATOR
        self.class_of: Tensor | None = None
        if metric == "accuracy" and targets.dim() == 1 and len(targets) and targets.min() >= 0:
            self.class_of = targets.long()

    @torch.inference_mode()
    def __call__(self, flat: Tensor) -> list[SplitScore]:
        """flat: parameters [P]."""
        losses, values = [], []
        for start in range(0, len(self.inputs), self.batch):
            batch = slice(start, start + self.batch)
            outputs = self.engine.outputs(flat, self.inputs[batch], training=False)
            losses.append(self.loss(outputs, self.targets[batch]))
            values.append(self.metric(outputs, self.targets[batch]))
        loss, value = torch.cat(losses).double(), torch.cat(values).double()
        return [
            SplitScore(
                split,
                value[rows].mean().item(),
                loss[rows].mean().item(),
                self._class_accuracy(value, rows),
            )
            for split, rows in SPLITS.items()
        ]

    def _class_accuracy(self, correct: Tensor, rows: slice) -> tuple[float | None, ...] | None:
        """correct: float64 [n], 1 for correctly classified examples."""
        if self.class_of is None:
            return None
        classes = int(self.class_of.max()) + 1
        labels = self.class_of[rows]
        hits = torch.bincount(labels, correct[rows], minlength=classes).tolist()
        counts = torch.bincount(labels, minlength=classes).tolist()
        return tuple(n / count if count else None for n, count in zip(hits, counts, strict=True))
