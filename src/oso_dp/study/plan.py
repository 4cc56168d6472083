"""The plan of a study: its cohorts with the noise that each one's budget asks for.

A plan is one JSON file, written once before training, which holds the whole configuration too; a
training job needs nothing else, and no accounting library. `oso_dp.study.plain` reads it where
pydantic is not installed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oso_dp.errors import OsoError
from oso_dp.files import atomic_write
from oso_dp.study.cohort import Cohort, cohorts

if TYPE_CHECKING:
    from oso_dp.study.config import StudyConfig

STORED_PLAN = "plan.json"  # in a results store
PLAN_VERSION = 2  # 2: with each method's settings, and each cohort's runs


@dataclass(frozen=True)
class Plan:
    """A configuration, its cohorts, and nu of each cohort by name (0 without privacy)."""

    config: StudyConfig
    cohorts: list[Cohort]
    noise_multipliers: dict[str, float]

    def run_ids(self) -> list[str]:
        return [run.run_id for cohort in self.cohorts for run in cohort.runs]

    def cohort(self, name: str) -> Cohort:
        for cohort in self.cohorts:
            if cohort.name == name:
                return cohort
        raise OsoError(f"cohort {name!r}: not in the plan of study {self.config.name!r}")


def make_plan(config: StudyConfig) -> Plan:
    """Price every cohort: its search has its epsilon. OsoError if no noise meets it."""
    from oso_dp.study.prices import grid_prices

    every = cohorts(config)
    noise = dict.fromkeys((cohort.name for cohort in every), 0.0)
    for price in grid_prices(config):
        cohort = price.cohort
        # The same on every machine, and on the safe side.
        nu = math.ceil(price.noise_multiplier * 1e5) / 1e5
        try:
            config.method(cohort.method).split_noise(nu, cohort.batch_size)
        except OsoError as error:
            raise OsoError(f"{cohort.name}: {error}") from None
        noise[cohort.name] = nu
    return Plan(config, every, noise)


def write_plan(plan: Plan, path: Path) -> None:
    """Write the plan atomically."""
    methods = plan.config.methods
    content = {
        "version": PLAN_VERSION,
        "config": plan.config.model_dump(mode="json"),
        "settings": {name: asdict(plan.config.method(name).settings) for name in methods},
        "cohorts": [_entry(plan, cohort) for cohort in plan.cohorts],
    }
    with atomic_write(path) as file:
        file.write((json.dumps(content, indent=1) + "\n").encode())


def read_plan(
    path: Path, parse: Callable[[dict[str, Any], str], StudyConfig] | None = None
) -> Plan:
    """Read what `write_plan` wrote; OsoError names a file that is not a plan, or another version's.

    `parse`: makes the configuration from the file's content; by default every key is checked.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content.get("version", 1)
        if version != PLAN_VERSION:
            raise OsoError(
                f"{path}: a plan of version {version}; this package reads {PLAN_VERSION}: "
                "write it anew with `oso plan`"
            )
        config = (parse or _checked)(content, str(path))
        stored = {entry["name"]: entry for entry in content["cohorts"]}
        noise = {name: entry["noise_multiplier"] for name, entry in stored.items()}
        every = cohorts(config)
    except OSError as error:
        raise OsoError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OsoError(f"{path}: not a plan (`oso plan` writes one): {error!r}") from None
    if {cohort.name for cohort in every} != noise.keys():
        raise OsoError(f"{path}: its cohorts are not those of its configuration; write it anew")
    for cohort in every:
        for name, fact in _facts(cohort).items():
            if stored[cohort.name].get(name) != fact:
                raise OsoError(
                    f"{path}: {cohort.name} was priced for {name} {stored[cohort.name].get(name)}, "
                    f"but is {fact}; write it anew"
                )
        nu = noise[cohort.name]
        if (isinstance(nu, float) and 0 < nu < math.inf) if cohort.private else nu is None:
            continue
        raise OsoError(
            f"{path}: {cohort.name}: noise_multiplier {nu!r}: must be "
            f"{'a number above 0' if cohort.private else 'null, it has no privacy'}"
        )
    return Plan(config, every, {name: nu or 0.0 for name, nu in noise.items()})


def plans_of(store: Path, named: Sequence[Path] | None = None) -> list[Path]:
    """The plan files that are named, else a results store's own if it has one."""
    own = store / STORED_PLAN
    return [*named] if named else [own] * own.exists()


def _checked(content: dict[str, Any], source: str) -> StudyConfig:
    from oso_dp.study.config import parse_config

    return parse_config(content["config"], source)


def _entry(plan: Plan, cohort: Cohort) -> dict[str, Any]:
    method = plan.config.method(cohort.method)
    nu = plan.noise_multipliers[cohort.name]
    query = method.split_noise(nu, cohort.batch_size)[1] if cohort.private else None
    return {
        "name": cohort.name,
        **_facts(cohort),
        "noise_multiplier": nu if cohort.private else None,
        "query_noise_multiplier": query,
    }


def _facts(cohort: Cohort) -> dict[str, Any]:
    """What the noise was computed from, and for which runs."""
    run_ids = "".join(run.run_id for run in cohort.runs)
    return {
        "dataset": cohort.dataset,
        "method": cohort.method,
        "k": cohort.k,
        "epsilon": cohort.epsilon,
        "delta": cohort.delta,
        "selection": cohort.selection,
        "stopping_shape": cohort.stopping_shape,
        "runs": cohort.grid_runs,  # of the whole grid, or their mean: what the budget pays for
        "steps": cohort.steps,
        "sampling_rate": cohort.batch_size / cohort.examples,
        "run_ids": hashlib.sha256(run_ids.encode()).hexdigest()[:16],
    }
