"""The cost of a search by the linear scaling rule, and the noise multipliers of its stages.

Panda et al., "A New Linear Scaling Rule for Private Adaptive Hyperparameter Optimization" (ICML
2024): trials, grids at small budgets, find the best r = learning rate x steps. The best r grows
linearly with epsilon, so a line through the trials predicts it for the rest of the budget, which
one final run spends. All stages are one composition of subsampled Gaussians: their noise is fixed
in advance, and the final learning rate is computed from what the trials released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from oso_dp.accounting.search_accounting import (
    LINEAR_SCALING,
    TRIAL_FRACTIONS,
    find_fraction_error,
    format_fractions,
    make_stages,
)
from oso_dp.accounting.tuning_cost import Search
from oso_dp.errors import OsoError

if TYPE_CHECKING:
    from oso_dp.privacy.sampling import PoissonSampling

_MAX_EPSILON_FACTOR = 64.0  # the largest epsilon tried, as a multiple of the final run's


@dataclass(frozen=True)
class LinearScalingSearch:
    """Trials of `runs` trainings of `steps` steps each, and one final training of as many steps.

    Attributes:
        sampling: the sampling scheme of all steps.
        steps: T, of each training.
        runs: N, trainings of each trial.
        trial_fractions: of epsilon, one per trial, for all of its trainings together; increasing,
            at least two, with a sum below 1. The final run has what the composition with all trials
            leaves.

    Raises:
        OsoError: for a value out of range.
    """

    sampling: PoissonSampling
    steps: int
    runs: int
    trial_fractions: tuple[float, ...] = TRIAL_FRACTIONS

    search_accounting: ClassVar[str] = LINEAR_SCALING

    def __post_init__(self) -> None:
        _ = self.trial_stage  # checks steps and runs
        if error := find_fraction_error(self.trial_fractions):
            raise OsoError(f"trial_fractions: {format_fractions(self.trial_fractions)}; {error}")

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the stages, in order."""
        return make_stages(self.trial_fractions)

    @property
    def trial_stage(self) -> Search:
        """One trial alone."""
        return Search(self.sampling, self.steps, self.runs)

    def final_stage(self, trials: Sequence[float]) -> Search:
        """The final run after trials with these noise multipliers; its cost includes theirs."""
        prior_releases = tuple((nu, self.runs * self.steps) for nu in trials)
        return Search(self.sampling, self.steps, 1, prior_releases=prior_releases)

    def noise_multipliers(
        self, epsilon: float, delta: float, accountant: str = "rdp"
    ) -> tuple[float, ...]:
        """The smallest nu of each of `stages` such that all together cost at most epsilon at delta.

        Returns:
            One noise multiplier per stage, the final run's last.

        Raises:
            OsoError: if the trials use up the budget, or no noise multiplier meets it.
        """
        return _noise_multipliers(self, epsilon, delta, accountant)

    def noise_multiplier(self, epsilon: float, delta: float, accountant: str = "rdp") -> float:
        """The final run's noise multiplier, see `noise_multipliers`."""
        return self.noise_multipliers(epsilon, delta, accountant)[-1]

    def cost(
        self, noise_multipliers: Sequence[float], delta: float, accountant: str = "rdp"
    ) -> float:
        """Epsilon at delta of all trials and the final run, with these nu of `stages`."""
        *trials, final = noise_multipliers
        return self.final_stage(trials).epsilon(final, delta, accountant)

    def epsilon(self, noise_multiplier: float, delta: float, accountant: str = "rdp") -> float:
        """The epsilon at delta of the search whose final run has this noise multiplier.

        The inverse of `noise_multiplier`, to a relative accuracy of 1e-7.

        Raises:
            OsoError: if there is no such epsilon.
        """
        from scipy.optimize import brentq

        lower = Search(self.sampling, self.steps, 1).epsilon(noise_multiplier, delta, accountant)

        def excess(log_epsilon: float) -> float:
            final = self.noise_multiplier(math.exp(log_epsilon), delta, accountant)
            return math.log(final / noise_multiplier)

        upper = lower
        while excess(math.log(upper)) > 0:
            upper *= 1.5
            if upper > _MAX_EPSILON_FACTOR * lower:
                raise OsoError(
                    f"noise_multiplier: {noise_multiplier:g}; no epsilon up to {upper:.4g} gives "
                    f"it to a final run after trials of {self.runs} x {self.steps} steps"
                )
        if upper == lower:  # the cost of the trials is below the accuracy
            return lower
        return math.exp(brentq(excess, math.log(upper / 1.5), math.log(upper), xtol=1e-7))


@cache  # needed for each stage of a search
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
    """The smallest nu of the final run after trials with these noise multipliers.

    Raises:
        OsoError: if the trials use up the budget, or no noise multiplier meets it.
    """
    try:
        return search.final_stage(trials).noise_multiplier(epsilon, delta, accountant)
    except OsoError:
        # Raises if not even a single run without trials can meet the budget.
        Search(search.sampling, search.steps, 1).noise_multiplier(epsilon, delta, accountant)
        *earlier, last = trials
        steps = search.runs * search.steps
        all_trials = Search(
            search.sampling,
            search.steps,
            search.runs,
            prior_releases=tuple((nu, steps) for nu in earlier),
        )
        raise OsoError(
            f"trial_fractions: {format_fractions(search.trial_fractions)}; the trials cost epsilon "
            f"{all_trials.epsilon(last, delta, accountant):.4g} of {epsilon:g}, which leaves too "
            "little for a final run; use smaller fractions"
        ) from None
