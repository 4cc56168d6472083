"""What a privately trained model promises, in words and as data."""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from oso_dp.accounting.formatting import (
    format_large_delta_warning,
    format_spent_epsilon,
    format_used_noise_multiplier,
)
from oso_dp.api.privacy_cost import PrivacyCost
from oso_dp.files import parse_json
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.promise import NEIGHBOURING, RANDOMNESS, UNIT


@dataclass(frozen=True)
class Statement:
    """Printed with a model and saved with it. Every field is public."""

    epsilon: float  # of what the ledger holds, and of `unused_steps` steps, at delta
    delta: float
    budget: float  # the epsilon that was asked for
    accountant: str
    examples: int
    sampling_rate: float
    steps: int
    planned_steps: int
    method: str
    releases: tuple[tuple[str, float], ...]  # the sums of all its steps: name and noise multiplier
    randomness: str
    tuning: str
    versions: str
    scored: str = ""  # on what a search scored its models
    validation_examples: int = 0  # private ones, on which they were scored
    validation_epsilon: float | None = None  # that each of these is protected by, at delta
    unused_steps: int = 0  # steps that were planned, not made, and count all the same
    resumed: bool = False  # after somebody had stopped it
    types: str = ""  # of the examples' numbers
    unit: str = UNIT
    neighbouring: str = NEIGHBOURING

    def __str__(self) -> str:
        lines = [
            f"({format_spent_epsilon(self.epsilon)}, {self.delta!r})-differential privacy, by "
            f"{self.accountant} accounting; the budget was epsilon {self.budget:g}.",
            f"Protected: {self.unit}. Neighbours: {self.neighbouring}.",
            f"Released: {self.steps} of {self.planned_steps} steps of {self.method}, and with them "
            "the weights, thresholds and learning rates after every step.",
            *self._ended_early(),
            *self._large_delta(),
            f"Each step: a Poisson batch at sampling rate {self.sampling_rate:.6g} of "
            f"{self.examples} examples. Sums: {self._sums()}.",
            f"Tuning: {self.tuning}{self.scored and f' Scored on {self.scored}.'}",
            *self._validation(),
            _OTHERS,
            "Public: the number of examples, the model and its first weights, all settings.",
            *([f"Types: {self.types}."] if self.types else []),
            f"Randomness: {RANDOMNESS[self.randomness]}",
            self.versions,
        ]
        return "\n".join(lines)

    def _sums(self) -> str:
        """Each once by its name: steps of another noise are those of other trainings, or kinds."""
        noise: dict[str, list[str]] = {}
        for name, nu in self.releases:
            noise.setdefault(name, []).append(format_used_noise_multiplier(nu))
        return ", ".join(
            f"{name} with noise multiplier {' or '.join(dict.fromkeys(texts))}"
            for name, texts in noise.items()
        )

    def _large_delta(self) -> list[str]:
        warning = format_large_delta_warning(
            self.delta, max(self.examples, self.validation_examples)
        )
        return [warning] if warning else []

    def _ended_early(self) -> list[str]:
        """What the number of steps, which may depend on the data, does to epsilon."""
        lines = []
        if self.unused_steps:
            lines.append(
                f"Epsilon counts {self.unused_steps} steps more, which were planned and not "
                "made: when "
                "a training ends may tell something."
            )
        if self.resumed:
            lines.append(
                "It went on after somebody had stopped it; steps that were not made then do not "
                "count. That holds if the moment was not chosen by looking at what was released."
            )
        return lines

    def _validation(self) -> list[str]:
        if self.validation_epsilon is None:
            return []
        return [
            f"Protected otherwise: the {self.validation_examples} validation examples, of which "
            f"noisy scores are used: ({format_spent_epsilon(self.validation_epsilon)}, "
            f"{self.delta!r})-differential privacy for one of them. "
            "Whoever is in both sets has both costs."
        ]

    def describes(self, paid: PrivacyCost) -> bool:
        """Whether what it says was paid for, and for whom, is so; epsilon is computed again."""
        ledger = paid.ledger
        return (
            _are_equal(self.epsilon, paid.epsilon(self.delta, self.accountant))
            and _are_equal(
                self.validation_epsilon, paid.validation_epsilon(self.delta, self.accountant)
            )
            and self.tuning == describe_tuning(paid)
            and self.steps == ledger.step_count
            and self.unused_steps == paid.unused_step_count
            and self.sampling_rate == ledger.sampling.rate
            and self.releases == list_releases(ledger)
            and (self.validation_examples > 0) == (paid.scores is not None)
            and (self.unit, self.neighbouring) == (Statement.unit, Statement.neighbouring)
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Statement":
        stored: dict[str, Any] = parse_json(text)
        stored["releases"] = tuple((name, nu) for name, nu in stored["releases"])
        return cls(**stored)


def list_releases(ledger: Ledger) -> tuple[tuple[str, float], ...]:
    """The sums of all kinds of its steps, each once: name and noise multiplier."""
    return tuple(
        dict.fromkeys(
            (query.name, query.noise_multiplier) for queries, _ in ledger.steps for query in queries
        )
    )


def describe_tuning(paid: PrivacyCost) -> str:
    """What is to be said of the search that was paid for."""
    if paid.stopping is not None:
        return (
            f"included. The best of a random number of trainings, {paid.stopping.mean_runs} on "
            f"average ({paid.stopping.distribution} distribution); how many there were is not "
            "released, "
            "nor the others. Whoever saw the time that it took knows about how many."
        )
    if paid.other_trainings:
        runs = len(paid.other_trainings) + 1
        return f"included. The best of {runs} trainings, all of which are released and paid for."
    return _NOT_TUNED


def _are_equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)


_OTHERS = (
    "Not included: any other training or search with these examples, also another one that goes on "
    "from this model: their epsilons and deltas add up."
)
_NOT_TUNED = (
    "not included. Whatever was chosen by looking at these data (learning rate, model, number of "
    "epochs) costs more."
)
