"""Base class of the ways to account for a hyperparameter search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.search import Search
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling


class AnySearch(Protocol):
    """A search with its sizes, whose price is known."""

    def __hash__(self) -> int: ...
    @property
    def sampling(self) -> PoissonSampling: ...
    @property
    def steps(self) -> int:
        """T, of each training."""

    @property
    def runs(self) -> int:
        """N, as the search accounting counts it."""

    def noise_multiplier(self, epsilon: float, delta: float, accountant: str = "rdp") -> float:
        """The smallest nu with which the complete search costs at most epsilon at delta."""

    def epsilon(self, noise_multiplier: float, delta: float, accountant: str = "rdp") -> float:
        """Epsilon at delta of the complete search."""


@dataclass(frozen=True)
class StoredRun:
    """A run that is charged."""

    ledger: Ledger
    run_id: str
    seed: int
    point: tuple[float | None, ...]
    stage: str | None = None


class Charge(NamedTuple):
    """What one search costs, of several that the stored runs contain (one per seed)."""

    spent: float  # epsilon by RDP
    stored: int  # of its runs
    ledgers: tuple[Ledger, ...]  # of all of its runs


class SearchAccounting(ABC):
    """A way to account for a hyperparameter search. Defaults: all N runs of a seed are charged."""

    name: ClassVar[str]
    label: ClassVar[str]  # in tables and figures
    summary: ClassVar[str]  # in the help of options
    options: ClassVar[Mapping[str, Any]] = {}  # defaults of the columns that only its cohorts set
    # Whether every run is counted, so that a study of private data may store all.
    counts_every_run: ClassVar[bool] = False
    needs_all_points: ClassVar[bool] = False  # of the grid
    is_search: ClassVar[bool] = True  # False: each run has a budget of its own
    has_stages: ClassVar[bool] = False  # one cohort for each, with noise of its own
    supports_pld: ClassVar[bool] = True

    @abstractmethod
    def search(
        self, sampling: PoissonSampling, steps: int, runs: int, options: Mapping[str, Any]
    ) -> AnySearch:
        """The search with these sizes; options: by name, None for the default."""

    def find_error(self, options: Mapping[str, Any]) -> str | None:
        """Why its options are invalid; None if they are valid."""
        return None

    def find_method_error(self, is_private: bool, axes: Collection[str]) -> str | None:
        """Why it cannot search a method with these axes; None if it can."""
        return None

    def complete_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Its own options, with defaults for those that are None; None for those of others."""
        given = {name: value for name, value in options.items() if value is not None}
        own = {name: given.get(name, default) for name, default in self.options.items()}
        return dict.fromkeys(options) | own

    def stages(self, options: Mapping[str, Any]) -> tuple[str | None, ...]:
        """The stages of a search, in order; (None,) without stages."""
        return (None,)

    def planned_runs(self, grid_size: int) -> int:
        """N of a search of a grid of this size."""
        return grid_size

    def stage_noise(
        self, search: Any, stage: str | None, epsilon: float, delta: float, accountant: str
    ) -> float:
        """The noise multiplier of a stage of a search under this budget."""
        return float(search.noise_multiplier(epsilon, delta, accountant))

    def stage_search(
        self, search: Any, stage: str | None, epsilon: float, delta: float
    ) -> tuple[Search, float]:
        """The search that the noise of a stage is calibrated for, and its budget."""
        return search, epsilon

    def charge(
        self, search: Any, stored: Sequence[StoredRun], epsilon: float, delta: float
    ) -> list[Charge]:
        """What each seed's search costs; more stored points than N mean a larger grid."""
        size = max(search.runs, len({run.point for run in stored}))
        filler = full_run_ledger([run.ledger for run in stored], search.steps)
        charges = []
        for seed in dict.fromkeys(run.seed for run in stored):
            own = [run.ledger for run in stored if run.seed == seed]
            ledgers = fill_up(own, filler, size)
            spent = self.spent_by(search, ledgers, filler, delta)
            charges.append(Charge(spent, len(own), ledgers))
        return charges

    def spent_by(
        self, search: Any, ledgers: Sequence[Ledger], full_run: Ledger, delta: float
    ) -> float:
        """Epsilon of the full runs of one seed's search."""
        return compute_epsilon(ledgers, delta)


def fill_up(ledgers: Sequence[Ledger], full_run: Ledger, size: int) -> tuple[Ledger, ...]:
    """Each ledger as that of a full run, and full runs for those that are not stored."""
    padded = [pad_to_full_run(ledger, full_run) for ledger in ledgers]
    return (*padded, *[full_run] * (size - len(padded)))


def full_run_ledger(ledgers: Sequence[Ledger], steps: int) -> Ledger:
    """The ledger charged for a run that is not stored: all steps, with the smallest noise."""
    least = min(nu for ledger in ledgers for nu, _ in ledger.releases())
    return Ledger(ledgers[0].sampling, [((SumQuery("not_stored", least),), steps)])


def pad_to_full_run(ledger: Ledger, whole: Ledger) -> Ledger:
    """The ledger padded to all steps of a full run, if the run diverged before its last step."""
    missing = whole.step_count - ledger.step_count
    if missing <= 0:
        return ledger
    least = min(nu for nu, _ in ledger.releases())
    return Ledger(ledger.sampling, [*ledger.steps, ((SumQuery("not_run", least),), missing)])
