"""The privacy statement of a model: its (epsilon, delta) guarantee, in words and as data."""

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
from oso_dp.privacy.promise import EXAMPLE, RANDOMNESS, UNITS


@dataclass(frozen=True)
class Statement:
    """The privacy guarantee of a model. Every field is public; `str(statement)` is the text.

    Attributes:
        epsilon: of all ledgers and of `unused_steps`, at `delta`.
        delta: the delta of the guarantee.
        budget: the epsilon that was passed to the training or search.
        accountant: "rdp" or "pld".
        examples: the number of training examples, or of users if a user is the unit.
        sampling_rate: q, the probability of one of them to be in a step's batch.
        steps: the steps that the training took.
        planned_steps: the steps that it would have taken without an early end.
        method: the method's name.
        releases: the noisy sums of its steps, (name, noise multiplier) each.
        randomness: "seeded" or "system".
        tuning: how the hyperparameter search is counted.
        versions: of oso and torch.
        scored: the data on which a search scored its models.
        evaluated: whether an `evaluate` function scored the model during training.
        validation_examples: the number of private validation examples; 0 without.
        validation_epsilon: of each of these, at `delta`; None without private validation examples.
        unused_steps: planned steps that were not taken; they count in epsilon.
        resumed: whether the training was resumed after an interruption.
        types: dtypes and shapes of the examples.
        changes: what was replaced in the model before training.
        unit: of privacy: "example", or "user" for all rows with one id.
        local: at user level, what each user computes in a step.
    """

    epsilon: float
    delta: float
    budget: float
    accountant: str
    examples: int
    sampling_rate: float
    steps: int
    planned_steps: int
    method: str
    releases: tuple[tuple[str, float], ...]
    randomness: str
    tuning: str
    versions: str
    scored: str = ""
    evaluated: bool = False
    validation_examples: int = 0
    validation_epsilon: float | None = None
    unused_steps: int = 0
    resumed: bool = False
    types: str = ""
    changes: str = ""
    unit: str = EXAMPLE.name
    local: str = ""

    def __str__(self) -> str:
        unit = UNITS[self.unit]
        lines = [
            f"({format_spent_epsilon(self.epsilon)}, {self.delta!r})-differential privacy, by "
            f"{self.accountant} accounting; the budget was epsilon {self.budget:g}.",
            f"Protected: {unit.text}. Neighbours: {unit.neighbouring}.",
            f"Released: {self.steps} of {self.planned_steps} steps of {self.method}, and with them "
            "the weights, thresholds and learning rates after every step.",
            *self._ended_early(),
            *self._large_delta(),
            f"Each step: a Poisson batch at sampling rate {self.sampling_rate:.6g} of "
            f"{self.examples} {unit.plural}. Sums: {self._sums()}.",
            *([f"Each user: {self.local}."] if self.local else []),
            f"Tuning: {self.tuning}{self.scored and f' Scored on {self.scored}.'}",
            *self._validation(),
            *([_EVALUATED] if self.evaluated else []),
            _OTHER_TRAININGS,
            f"Public: the number of {unit.plural}, the model and its initial weights, all options.",
            *([f"Types: {self.types}."] if self.types else []),
            *([f"Model: {self.changes}."] if self.changes else []),
            f"Randomness: {RANDOMNESS[self.randomness]}",
            self.versions,
        ]
        return "\n".join(lines)

    def _sums(self) -> str:
        """Each name once, with all of its noise multipliers."""
        noise: dict[str, list[str]] = {}
        for name, nu in self.releases:
            noise.setdefault(name, []).append(format_used_noise_multiplier(nu))
        return ", ".join(
            f"{name} with noise multiplier {' or '.join(dict.fromkeys(texts))}"
            for name, texts in noise.items()
        )

    def _large_delta(self) -> list[str]:
        warning = format_large_delta_warning(
            self.delta, max(self.examples, self.validation_examples), UNITS[self.unit].plural
        )
        return [warning] if warning else []

    def _ended_early(self) -> list[str]:
        """How the number of steps, which may depend on the data, enters epsilon."""
        lines = []
        if self.unused_steps:
            lines.append(
                f"Epsilon counts {self.unused_steps} more steps, which were planned but not taken: "
                "the step at which a training ends may depend on the data."
            )
        if self.resumed:
            lines.append(
                "The training was interrupted and resumed; steps that the interruption left out do "
                "not count. This holds if the interruption did not depend on what was released."
            )
        return lines

    def _validation(self) -> list[str]:
        if self.validation_epsilon is None:
            return []
        return [
            f"Validation: noisy scores on {self.validation_examples} validation examples; each is "
            f"protected by ({format_spent_epsilon(self.validation_epsilon)}, "
            f"{self.delta!r})-differential privacy. An example in both sets has both costs."
        ]

    def describes(self, cost: PrivacyCost) -> bool:
        """Whether the statement follows from the ledgers of `cost`; epsilon is computed again."""
        ledger = cost.ledger
        return (
            _are_equal(self.epsilon, cost.epsilon(self.delta, self.accountant))
            and _are_equal(
                self.validation_epsilon, cost.validation_epsilon(self.delta, self.accountant)
            )
            and self.tuning == describe_tuning(cost)
            and self.steps == ledger.step_count
            and self.unused_steps == cost.unused_step_count
            and self.sampling_rate == ledger.sampling.rate
            and self.releases == list_releases(ledger)
            and (self.validation_examples > 0) == (cost.scores is not None)
            and self.unit == ledger.sampling.unit.name
        )

    def to_json(self) -> str:
        """All fields, as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Statement":
        """The inverse of `to_json`."""
        stored: dict[str, Any] = parse_json(text)
        stored["releases"] = tuple((name, nu) for name, nu in stored["releases"])
        # Before users could be the unit, both were texts.
        if (stored["unit"], stored.get("neighbouring")) == (EXAMPLE.text, EXAMPLE.neighbouring):
            del stored["neighbouring"]
            stored["unit"] = EXAMPLE.name
        return cls(**stored)


def list_releases(ledger: Ledger) -> tuple[tuple[str, float], ...]:
    """The distinct noisy sums of the ledger's steps: name and noise multiplier."""
    return tuple(
        dict.fromkeys(
            (query.name, query.noise_multiplier) for queries, _ in ledger.steps for query in queries
        )
    )


def describe_tuning(cost: PrivacyCost) -> str:
    """How the statement counts the hyperparameter search."""
    if cost.stopping is not None:
        return (
            f"included. The best of a random number of trainings, {cost.stopping.mean_runs} on "
            f"average ({cost.stopping.distribution} distribution); neither their number nor the "
            "others are released. The duration of the search reveals about how many there were."
        )
    if cost.other_trainings:
        runs = len(cost.other_trainings) + 1
        return f"included. The best of {runs} trainings, all of which are released and counted."
    return _NOT_TUNED


def _are_equal(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)


_EVALUATED = "Assumed: `evaluate` reads no private data; its scores are not counted."
_OTHER_TRAININGS = (
    "Not included: any other training or search on these data, such as another one resumed "
    "from this model; their epsilons and deltas add up."
)
_NOT_TUNED = (
    "not included. Choices that were made by looking at these data (learning rate, model, number "
    "of epochs) cost more."
)
