"""What a privately trained model promises, in words and as data."""

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Statement:
    """Printed with a model and saved with it. Every field is public."""

    epsilon: float  # of what the ledger holds, at delta
    delta: float
    budget: float  # the epsilon that was asked for
    accountant: str
    examples: int
    sampling_rate: float
    steps: int
    planned_steps: int
    method: str
    releases: tuple[tuple[str, float], ...]  # the sums of the last step: name and noise multiplier
    randomness: str
    tuning: str
    versions: str
    unit: str = "one example: one row of the training data"
    neighbouring: str = "data sets that differ by one example added or removed"

    def __str__(self) -> str:
        sums = ", ".join(f"{name} with noise multiplier {nu:.4g}" for name, nu in self.releases)
        lines = [
            f"({self.epsilon:.4g}, {self.delta:g})-differential privacy, by {self.accountant} "
            f"accounting; the budget was epsilon {self.budget:g}.",
            f"Protected: {self.unit}. Neighbours: {self.neighbouring}.",
            f"Released: {self.steps} of {self.planned_steps} steps of {self.method}, and with them "
            "the weights, thresholds and learning rates after every step.",
            f"Each step: a Poisson batch at sampling rate {self.sampling_rate:.6g} of "
            f"{self.examples} examples; {sums}.",
            f"Tuning: {self.tuning}",
            "Public: the number of examples, the model and its first weights, all settings.",
            f"Randomness: {_RANDOMNESS[self.randomness]}",
            self.versions,
        ]
        return "\n".join(lines)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Statement":
        stored: dict[str, Any] = json.loads(text)
        stored["releases"] = tuple((name, nu) for name, nu in stored["releases"])
        return cls(**stored)


_RANDOMNESS = {
    "system": "the operating system's cryptographic generator; nobody can repeat it.",
    "seeded": "seeded: whoever knows the seed knows the noise. For public data only.",
}
NOT_TUNED = (
    "not included. Whatever was chosen by looking at these data (learning rate, model, number of "
    "epochs) costs more."
)
