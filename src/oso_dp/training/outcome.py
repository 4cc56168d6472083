"""What comes out of one run, and whether what was read of one can have come out.

A checkpoint's checksum says that it is whole, not that this program wrote it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.training.evaluate import SPLITS

_FACTS = {"run_id", "step", "split", "metric", "value", "loss", "class_accuracy"}
_STATE = {"threshold", "learning_rate", "fraction_clipped"}  # of the method; None: has none


@dataclass
class Outcome:
    """What came out of one run."""

    run_id: str
    status: str = "running"  # then finished or diverged
    diverged_at: int | None = None
    ledger: str = ""
    wall_seconds: float = 0.0
    evaluations: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class RunProtocol:
    """What every run of a job goes through. Its checks raise ValueError for what cannot be."""

    sampling: PoissonSampling
    noise_multiplier: float  # of one step
    metric: str
    steps: int
    evaluate_every: int

    def check(self, outcomes: Sequence[Outcome], step: int) -> None:
        """Each was written after this step: by a run at work, finished, or diverged by then."""
        for outcome in outcomes:
            try:
                self._check(outcome, step)
            except ValueError as error:
                raise ValueError(f"run {outcome.run_id}: {error}") from None

    def ledger(self, text: str, steps: int) -> Ledger:
        """The books of so many steps."""
        try:
            ledger = Ledger.from_json(text)
            noise = {nu for nu, _ in ledger.releases()}
        except OsoError as error:
            raise ValueError(str(error)) from None
        if ledger.step_count != steps:
            raise ValueError(f"its ledger has {ledger.step_count} steps, not {steps}")
        if ledger.sampling != self.sampling:
            raise ValueError(f"its ledger has sampling rate {ledger.sampling.rate!r}")
        for nu in noise:
            if not math.isclose(nu, self.noise_multiplier, rel_tol=1e-6):
                raise ValueError(f"its ledger has noise multiplier {nu!r}")
        return ledger

    def _check(self, outcome: Outcome, step: int) -> None:
        diverged = outcome.status == "diverged"
        ended = outcome.diverged_at if diverged else step
        if type(ended) is not int or not 1 <= ended <= step <= self.steps:
            raise ValueError(f"its last step is {ended!r}")
        if diverged != (outcome.diverged_at is not None):
            raise ValueError(f"diverged_at {outcome.diverged_at!r}, but status {outcome.status!r}")
        if outcome.status == "running":
            if outcome.ledger:
                raise ValueError("it runs, and has a closed ledger")
        elif diverged or (outcome.status == "finished" and step == self.steps):
            self.ledger(outcome.ledger, ended)
        else:
            raise ValueError(f"status {outcome.status!r} after step {step} of {self.steps}")
        if not _within(outcome.wall_seconds, 0.0):
            raise ValueError(f"wall_seconds {outcome.wall_seconds!r}")
        due = [t for t in range(1, ended + (not diverged)) if self._evaluates(t)]
        expected = [(t, split) for t in due for split in SPLITS]
        if [(one["step"], one["split"]) for one in outcome.evaluations] != expected:
            raise ValueError(f"its evaluations are not those of {ended} steps")
        for evaluation in outcome.evaluations:
            self._check_evaluation(outcome.run_id, evaluation)

    def _evaluates(self, step: int) -> bool:
        return step % self.evaluate_every == 0 or step == self.steps

    def _check_evaluation(self, run_id: str, row: dict[str, Any]) -> None:
        where = f"its evaluation at step {row['step']}"
        if row.keys() != _FACTS | _STATE or type(row["step"]) is not int:
            raise ValueError(f"{where} has other columns")
        if (row["run_id"], row["metric"]) != (run_id, self.metric):
            raise ValueError(f"{where} is of another run or metric")
        most = 1.0 if self.metric == "accuracy" else math.inf
        if not (_within(row["value"], 0.0, most) and _within(row["loss"])):
            raise ValueError(f"{where}: {self.metric} {row['value']!r}, loss {row['loss']!r}")
        classes = row["class_accuracy"]
        if classes is not None and not (
            self.metric == "accuracy"
            and isinstance(classes, tuple)
            and all(value is None or _within(value, 0.0, 1.0) for value in classes)
        ):
            raise ValueError(f"{where}: class_accuracy {classes!r}")
        for name in sorted(_STATE):
            least = -math.inf if name == "fraction_clipped" else 0.0  # sanitized, so of any sign
            if row[name] is not None and not _within(row[name], least):
                raise ValueError(f"{where}: {name} {row[name]!r}")


def _within(value: object, least: float = -math.inf, most: float = math.inf) -> bool:
    """Whether this is a finite float within these limits."""
    return type(value) is float and math.isfinite(value) and least <= value <= most
