"""The plan of a study: its cohorts with their calibrated noise multipliers, as one JSON file.

A plan is written once, before training. Training jobs, campaigns, accounts and reports read cohorts
from it alone, so they need neither the configuration nor an accounting library.

Each cohort is one line: its fields; `runs`, the grid size N; the points and seeds to train;
`run_ids`, a digest of the runs' identities; and a digest of the line.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, check_name, check_regular, format_os_error, parse_json
from oso_dp.study.calibration import calibrate
from oso_dp.study.cohort import Cohort, PlannedCohort
from oso_dp.study.expand import make_cohorts
from oso_dp.study.identity import USER_OPTIONS
from oso_dp.study.private_datasets import check_one_budget
from oso_dp.value_checks import check_integer

if TYPE_CHECKING:
    from oso_dp.study.config import StudyConfig

STORED_PLAN = "plan.json"  # in a results store
PLAN_VERSION = 4  # 3: cohorts instead of a configuration; 4: new names

_FACTS = tuple(field.name for field in fields(Cohort) if field.name not in ("runs", "grid_runs"))
# Fields that are left out where they are None.
_OPTIONAL_FACTS = (
    *("schedule", "averaging", "vocabulary", "stage", "trial_fractions"),
    *("data_version", "budget_runs", *USER_OPTIONS),
)


@dataclass(frozen=True)
class Plan:
    """A study's cohorts, and how its jobs train them."""

    name: str  # the study's
    cohorts: tuple[PlannedCohort, ...]
    device: str
    runs_per_job: int
    parallel_runs: int
    seconds_per_step: dict[str, float]  # by data set, on 2 CPU cores; for estimates only

    def __post_init__(self) -> None:
        """OsoError for values that no configuration has."""
        for name in ("runs_per_job", "parallel_runs"):
            check_integer(name, getattr(self, name), ge=1)
        if self.device not in ("cpu", "cuda"):
            raise OsoError(f"device: {self.device!r}; must be cpu or cuda")
        check_one_budget(self.cohorts)

    def run_ids(self) -> list[str]:
        return [run.run_id for cohort in self.cohorts for run in cohort.runs]

    def cohort(self, name: str) -> PlannedCohort:
        for cohort in self.cohorts:
            if cohort.name == name:
                return cohort
        raise OsoError(
            f"cohort: {name!r}; not in the plan of study {self.name!r}, whose "
            f"{len(self.cohorts):,} cohorts are {', '.join(cohort.name for cohort in self.cohorts)}"
        )


def make_plan(config: StudyConfig, cohorts: Sequence[Cohort] | None = None) -> Plan:
    """Calibrate each cohort: the least noise that keeps its search within its epsilon.

    On private data, all searches and seeds share that epsilon. OsoError where no noise
    multiplier suffices.
    """
    cohorts = make_cohorts(config) if cohorts is None else cohorts
    noise = {grid.cohort.name: grid.noise_multiplier for grid in calibrate(cohorts)}
    # Five decimals, so that machines agree; rounded up, so that the budget is kept.
    rounded = {name: math.ceil(nu * 1e5) / 1e5 for name, nu in noise.items()}
    return make_plan_with_noise(config, rounded, cohorts)


def make_plan_with_noise(
    config: StudyConfig, noise: Mapping[str, float], cohorts: Sequence[Cohort] | None = None
) -> Plan:
    """A plan with these noise multipliers, by name of private cohort.

    OsoError names a cohort whose method cannot split its noise among its queries.
    """
    return Plan(
        name=config.name,
        cohorts=tuple(
            _planned(cohort, noise[cohort.name] if cohort.is_private else 0.0)
            for cohort in (make_cohorts(config) if cohorts is None else cohorts)
        ),
        device=config.device,
        runs_per_job=config.runs_per_job,
        parallel_runs=config.parallel_runs,
        seconds_per_step={
            name: section.seconds_per_step for name, section in config.datasets.items()
        },
    )


def _planned(cohort: Cohort, noise_multiplier: float) -> PlannedCohort:
    facts = {field.name: getattr(cohort, field.name) for field in fields(Cohort)}
    planned = PlannedCohort(**facts, noise_multiplier=noise_multiplier)
    try:
        _ = planned.query_noise_multiplier
    except OsoError as error:
        raise OsoError(f"{cohort.name}: {error}") from None
    return planned


def write_plan(plan: Plan, path: Path) -> None:
    """Write the plan atomically."""
    entries = [_entry(cohort) for cohort in plan.cohorts]
    content = {"version": PLAN_VERSION, **_head(plan), "digest": _digest_plan(_head(plan), entries)}
    lines = [json.dumps(entry) for entry in entries]
    head = json.dumps(content, indent=1).removesuffix("\n}")
    body = ",\n  ".join(lines)
    with atomic_write(path) as file:
        file.write(f'{head},\n "cohorts": [\n  {body}\n ]\n}}\n'.encode())


def read_plan(path: Path) -> Plan:
    """Read what `write_plan` wrote.

    OsoError names a file that is not a plan, has another version, or was edited.
    """
    check_regular(path)
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        version = content.pop("version", 1)
        if version != PLAN_VERSION:
            raise OsoError(
                f"{path}: plan version {version}; must be {PLAN_VERSION}; write the plan again "
                "with `oso plan`"
            )
        entries, stated = content.pop("cohorts"), content.pop("digest")
        digest = _digest_plan(content, entries)
        check_name(content["name"], f"{path}: name")
        for entry in entries:  # jobs name files by it
            check_name(entry["name"], f"{path}: cohort")
        cohorts = tuple(_cohort(path, entry) for entry in entries)
        if stated != digest:
            raise OsoError(f"{path}: was edited after `oso plan` wrote it; write it again")
        return Plan(cohorts=cohorts, **content)
    except OSError as error:
        raise OsoError(f"{path}: cannot be read ({format_os_error(error)})") from None
    except UnicodeDecodeError:
        raise OsoError(f"{path}: not a plan (`oso plan` writes one): not UTF-8 text") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise OsoError(
            f"{path}: not a plan (`oso plan` writes one): {type(error).__name__}: {str(error)[:80]}"
        ) from None


def is_plan(path: Path) -> bool:
    """Whether a file is empty or a plan, of any version, edited or not."""
    try:
        content = parse_json(path.read_text(encoding="utf-8") or '{"cohorts": []}')
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and isinstance(content.get("cohorts"), list)


def find_plans(store: Path, named: Sequence[Path] | None = None) -> list[Path]:
    """The given plan files; by default the plan in the results store, if it has one."""
    stored_plan = store / STORED_PLAN
    return [*named] if named else [stored_plan] * stored_plan.exists()


def _entry(cohort: PlannedCohort) -> dict[str, Any]:
    entry = {
        "name": cohort.name,
        **{name: getattr(cohort, name) for name in _FACTS if _has(cohort, name)},
        **({} if cohort.data_version is None else {"public": cohort.is_public}),
        "runs": cohort.grid_runs,
        "steps": cohort.steps,
        "sampling_rate": cohort.sampling.rate,
        "noise_multiplier": cohort.noise_multiplier if cohort.is_private else None,
        "query_noise_multiplier": cohort.query_noise_multiplier,
        "points": cohort.points,
        "seeds": cohort.seeds,
        "run_ids": _digest([run.run_id for run in cohort.runs]),
    }
    return entry | {"digest": _digest(entry)}


def _has(cohort: Cohort, name: str) -> bool:
    return name not in _OPTIONAL_FACTS or getattr(cohort, name) is not None


def _cohort(path: Path, entry: dict[str, Any]) -> PlannedCohort:
    name = entry["name"]
    stated = entry.pop("digest")
    if _digest(entry) != stated:
        raise OsoError(f"{path}: {name} was edited after `oso plan` wrote it; write it again")
    facts = {fact: entry[fact] for fact in _FACTS if fact in entry or fact not in _OPTIONAL_FACTS}
    if "trial_fractions" in facts:
        facts["trial_fractions"] = tuple(facts["trial_fractions"])
    nu = 0.0 if entry["noise_multiplier"] is None else entry["noise_multiplier"]
    try:
        bare = PlannedCohort(**facts, grid_runs=entry["runs"], noise_multiplier=nu)
    except OsoError as error:
        raise OsoError(f"{path}: {error}") from None
    cohort = bare.with_runs([(c, t, q) for c, t, q in entry["points"]], entry["seeds"])
    # Steps, sampling rate, noise split, identities and method options as this version derives them
    # must equal the planned ones.
    same_settings = asdict(cohort.make_method().options) == cohort.method_options
    if _as_plain(_entry(cohort)) != {**entry, "digest": stated} or not same_settings:
        raise OsoError(
            f"{path}: {name} was planned by another version of this package, which trains it "
            "differently; write the plan again with `oso plan`"
        )
    return cohort


def _head(plan: Plan) -> dict[str, Any]:
    return {name: value for name, value in vars(plan).items() if name != "cohorts"}


def _digest_plan(head: dict[str, Any], entries: Sequence[dict[str, Any]]) -> str:
    """A digest of the plan: of its head and its cohorts' digests, in order."""
    return _digest([head, [entry.get("digest") for entry in entries]])


def _as_plain(entry: dict[str, Any]) -> Any:
    """The values after a round trip through JSON."""
    return parse_json(json.dumps(entry))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
