"""What a search by the linear scaling rule costs, and the noise of its parts.

Panda et al., "A New Linear Scaling Rule for Private Adaptive Hyperparameter Optimization" (ICML
2024): trials, which are grids at small budgets, find the best r = learning rate x steps there; the
best r grows linearly with epsilon, so that a line says which one the rest of the budget wants; and
one final run is made with it. All that is one composition of subsampled Gaussians: the noise of
every part is fixed beforehand, and the final run's learning rate is computed from what the trials
have released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from oso_dp.accounting.search_accounting import LINEAR_SCALING
from oso_dp.accounting.trial_fractions import (
    TRIAL_FRACTIONS,
    find_fraction_error,
    format_fractions,
    make_stages,
)
from oso_dp.accounting.tuning_cost import Search
from oso_dp.errors import OsoError

if TYPE_CHECKING:
    from oso_dp.privacy.sampling import PoissonSampling

_MAX_EPSILON_FACTOR = 64.0  # how many times what the final run costs a whole search is looked for


@dataclass(frozen=True)
class LinearScalingSearch:
    """Trials of `runs` trainings of `steps` steps each, and one final training of as many steps.

    runs: N, of each trial. shares: trial i has shares[i] of epsilon for all its runs together. The
    final run has what a composition with all trials leaves. OsoError names a value out of range.
    """

    sampling: PoissonSampling
    steps: int
    runs: int
    trial_fractions: tuple[float, ...] = TRIAL_FRACTIONS

    search_accounting: ClassVar[str] = LINEAR_SCALING

    def __post_init__(self) -> None:
        _ = self.trial_stage
        if wrong := find_fraction_error(self.trial_fractions):
            raise OsoError(f"trial_fractions {format_fractions(self.trial_fractions)}: {wrong}")

    @property
    def stages(self) -> tuple[str, ...]:
        return make_stages(self.trial_fractions)

    @property
    def trial_stage(self) -> Search:
        """One trial, by itself."""
        return Search(self.sampling, self.steps, self.runs)

    def final_stage(self, trials: Sequence[float]) -> Search:
        """The final run after trials with these noise multipliers; its cost is that of all."""
        before = tuple((nu, self.runs * self.steps) for nu in trials)
        return Search(self.sampling, self.steps, 1, prior_releases=before)

    def noise_multipliers(
        self, epsilon: float, delta: float, accountant: str = "rdp"
    ) -> tuple[float, ...]:
        """The least nu of a step in each of `parts`, with which all cost no more than epsilon.

        In their order, the final run last. OsoError for a budget that the trials use up, and where
        no noise within reach meets it.
        """
        return _noise_multipliers(self, epsilon, delta, accountant)

    def noise_multiplier(self, epsilon: float, delta: float, accountant: str = "rdp") -> float:
        """The final run's, see `noise_multipliers`."""
        return self.noise_multipliers(epsilon, delta, accountant)[-1]

    def cost(
        self, noise_multipliers: Sequence[float], delta: float, accountant: str = "rdp"
    ) -> float:
        """Epsilon at delta of all trials and the final run, with these noises of `parts`."""
        *trials, final = noise_multipliers
        return self.final_stage(trials).epsilon(final, delta, accountant)

    def epsilon(self, noise_multiplier: float, delta: float, accountant: str = "rdp") -> float:
        """The epsilon at delta whose search leaves this noise to the final run.

        The way back from `noise_multiplier`, to a millionth. OsoError where there is none.
        """
        from scipy.optimize import brentq

        least = Search(self.sampling, self.steps, 1).epsilon(noise_multiplier, delta, accountant)

        def too_much(log_epsilon: float) -> float:
            left = self.noise_multiplier(math.exp(log_epsilon), delta, accountant)
            return math.log(left / noise_multiplier)

        most = least
        while too_much(math.log(most)) > 0:
            most *= 1.5
            if most > _MAX_EPSILON_FACTOR * least:
                raise OsoError(
                    f"noise multiplier {noise_multiplier:g}: no epsilon up to {most:.4g} leaves it "
                    f"to a final run; {self.runs} x {self.steps} steps of each trial"
                )
        if most == least:  # its trials cost nothing that could be told
            return least
        return math.exp(brentq(too_much, math.log(most / 1.5), math.log(most), xtol=1e-7))


@cache  # all parts of a search ask for the same
def _noise_multipliers(
    search: LinearScalingSearch, epsilon: float, delta: float, accountant: str
) -> tuple[float, ...]:
    trials = tuple(
        search.trial_stage.noise_multiplier(fraction * epsilon, delta, accountant)
        for fraction in search.trial_fractions
    )
    return *trials, final_noise_multiplier(search, trials, epsilon, delta, accountant)


def final_noise_multiplier(
    search: LinearScalingSearch,
    trials: Sequence[float],
    epsilon: float,
    delta: float,
    accountant: str = "rdp",
) -> float:
    """The final run's least nu after trials with these.

    OsoError where they leave it nothing, or no noise within reach meets the budget.
    """
    try:
        return search.final_stage(trials).noise_multiplier(epsilon, delta, accountant)
    except OsoError:
        # Where no run at all can have this epsilon, that is the reason, and is said here.
        Search(search.sampling, search.steps, 1).noise_multiplier(epsilon, delta, accountant)
        *earlier, last = trials
        many = search.runs * search.steps
        alone = Search(
            search.sampling,
            search.steps,
            search.runs,
            prior_releases=tuple((nu, many) for nu in earlier),
        )
        raise OsoError(
            f"trial_fractions {format_fractions(search.trial_fractions)}: the trials cost epsilon "
            f"{alone.epsilon(last, delta, accountant):.4g} of {epsilon:g}, and leave too little "
            "for a final run; allowed are smaller shares"
        ) from None
