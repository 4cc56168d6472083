"""The cost of a search by the linear scaling rule, and the noise multipliers of its stages.

Panda et al., "A New Linear Scaling Rule for Private Adaptive Hyperparameter Optimization" (ICML
2024): trials, grids at small budgets, find the best r = learning rate x steps. The best r grows
linearly with epsilon, so a line through the trials predicts it for the rest of the budget, which
one final run spends. All stages are one composition of subsampled Gaussians: their noise is fixed
in advance, and the final learning rate is computed from what the trials released.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, Final

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting import LINEAR_SCALING
from oso_dp.accounting.search_accounting.base import (
    Charge,
    SearchAccounting,
    StoredRun,
    full_run_ledger,
    pad_to_full_run,
)
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling

TRIAL_FRACTIONS: Final = (0.1, 0.2)  # default
FINAL_STAGE: Final = "final"

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


class LinearScaling(SearchAccounting):
    """One account for all stages: all runs of all trials and one final run, under one seed.

    A study of public data has a final run at each grid point, to look the predicted one up; a
    search releases one of them, and the most expensive is charged.
    """

    name = LINEAR_SCALING
    label = "linear scaling"
    summary = (
        "trials at small budgets, then one final run, whose noise is printed (Panda et al. 2024)"
    )
    options: ClassVar = {"trial_fractions": TRIAL_FRACTIONS}
    has_stages = True
    needs_all_points = True

    def search(
        self, sampling: PoissonSampling, steps: int, runs: int, options: Mapping[str, Any]
    ) -> LinearScalingSearch:
        fractions = self.complete_options(options)["trial_fractions"]
        return LinearScalingSearch(sampling, steps, runs, tuple(fractions))

    def find_error(self, options: Mapping[str, Any]) -> str | None:
        fractions = options["trial_fractions"]
        error = find_fraction_error(fractions)
        return error and f"trial_fractions: {format_fractions(fractions)}; {error}"

    def find_method_error(self, is_private: bool, axes: Collection[str]) -> str | None:
        if not is_private:
            return "has no privacy"
        return None if "learning_rate" in axes else "does not search the learning rate"

    def stages(self, options: Mapping[str, Any]) -> tuple[str | None, ...]:
        return make_stages(options["trial_fractions"])

    def stage_noise(
        self,
        search: LinearScalingSearch,
        stage: str | None,
        epsilon: float,
        delta: float,
        accountant: str,
    ) -> float:
        by_stage = search.noise_multipliers(epsilon, delta, accountant)
        return by_stage[search.stages.index(str(stage))]

    def stage_search(
        self, search: LinearScalingSearch, stage: str | None, epsilon: float, delta: float
    ) -> tuple[Search, float]:
        if stage == FINAL_STAGE:
            return search.final_stage(search.noise_multipliers(epsilon, delta)[:-1]), epsilon
        fraction = search.trial_fractions[search.stages.index(str(stage))]
        return search.trial_stage, fraction * epsilon

    def charge(
        self, search: LinearScalingSearch, stored: Sequence[StoredRun], epsilon: float, delta: float
    ) -> list[Charge]:
        """What each seed's search costs.

        Runs that are not stored are charged as well: with the smallest noise of their stage's
        stored runs, else with the noise that the budget requires.
        """
        by_stage = {stage: [run for run in stored if run.stage == stage] for stage in search.stages}
        fillers = {
            stage: full_run_ledger([run.ledger for run in runs], search.steps)
            if runs
            else _planned_ledger(search, stage, epsilon, delta)
            for stage, runs in by_stage.items()
        }
        charges = []
        for seed in sorted({run.seed for run in stored}):
            count = 0
            charged: list[Ledger] = []
            for stage, runs in by_stage.items():
                own = [
                    pad_to_full_run(run.ledger, fillers[stage]) for run in runs if run.seed == seed
                ]
                if stage == FINAL_STAGE:
                    size = 1
                    own = sorted(own, key=lambda one: compute_epsilon([one], delta))[-1:]
                else:  # more points than the grid has mean a larger grid
                    size = max(search.runs, len({run.point for run in runs}))
                count += len(own)
                charged += [*own, *[fillers[stage]] * (size - len(own))]
            charges.append(Charge(compute_epsilon(charged, delta), count, tuple(charged)))
        return charges


def _planned_ledger(
    search: LinearScalingSearch, stage: str, epsilon: float, delta: float
) -> Ledger:
    """The ledger of a run of a stage without stored runs, with the budget's noise."""
    nu = search.noise_multipliers(epsilon, delta)[search.stages.index(stage)]
    return Ledger(search.sampling, [((SumQuery("not_stored", nu),), search.steps)])


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


def make_stages(fractions: Sequence[float]) -> tuple[str, ...]:
    """The names of the stages, in order: trial 1, trial 2, ..., final."""
    return (*(f"trial {number + 1}" for number in range(len(fractions))), FINAL_STAGE)


def find_fraction_error(fractions: Any) -> str | None:
    """Why these are not valid trial fractions; None if they are."""
    if not isinstance(fractions, list | tuple) or len(fractions) < 2:
        return "must be two numbers or more: a line needs two points"
    if not all(type(fraction) is float and 0 < fraction < 1 for fraction in fractions):
        return "each must be a number > 0 and < 1"
    if any(later <= fraction for fraction, later in pairwise(fractions)):
        return "must increase"
    if math.fsum(fractions) >= 1:
        return "their sum must be < 1: the rest is the final run's"
    return None


def format_fractions(fractions: Any) -> str:
    """Fractions, valid or not, for a message."""
    values = fractions if isinstance(fractions, list | tuple) else [fractions]
    return ", ".join(str(value) for value in values)[:40]
