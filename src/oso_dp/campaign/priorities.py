"""What a campaign takes first, as a file says: config/priorities.toml.

Entries, each a table [[first]], in the order of their value. An entry selects runs by plan (a
study's name; a run that several plans hold is each one's), dataset, method, k, epsilon, seed, part
(of a search by the linear scaling rule), learning_rate, threshold (their starting values) and
quantile (these three to three digits), each one value or a list; what it does not name is free.
"""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oso_dp.campaign.order import Work
from oso_dp.errors import OsoError
from oso_dp.files import check_regular, reason
from oso_dp.methods import AXES
from oso_dp.study.cohort import Run

KEYS = {
    "plan": (str,),
    "dataset": (str,),
    "method": (str,),
    "k": (int,),
    "epsilon": (int, float),
    "seed": (int,),
    "part": (str,),
    **dict.fromkeys(AXES, (int, float)),
}
MAX_NUMBER = 10**18
_THREE_DIGITS = 5e-3  # values of a grid lie much farther apart


@dataclass(frozen=True)
class Priority:
    """One entry; `allowed` holds the keys that it names, each with its values."""

    number: int  # from 1
    allowed: dict[str, tuple[Any, ...]]

    def takes(self, work: Work, run: Run) -> bool:
        """Whether this run of the work is selected."""
        cohort = work.cohort
        facts: dict[str, set[Any]] = {
            "plan": work.holders[run.run_id],
            "dataset": {cohort.dataset},
            "method": {cohort.method},
            "k": {cohort.k},
            "epsilon": {cohort.epsilon},
            "seed": {run.seed},
            "part": {cohort.part},
        }
        facts |= {axis: self._near(axis, getattr(run, axis)) for axis in AXES}
        return all(not facts[key].isdisjoint(values) for key, values in self.allowed.items())

    def _near(self, axis: str, value: float | None) -> set[Any]:
        """Those of the axis' allowed values that this is one of."""
        if value is None:
            return set()
        allowed = self.allowed.get(axis, ())
        return {one for one in allowed if math.isclose(one, value, rel_tol=_THREE_DIGITS)}

    @property
    def text(self) -> str:
        parts = (f"{key} = {', '.join(map(str, values))}" for key, values in self.allowed.items())
        return f"entry {self.number} ({'; '.join(parts)})"


def read_priorities(path: Path, everything: Sequence[Work]) -> list[Priority]:
    """The file's entries, but for those of plans that this campaign does not have.

    OsoError names an entry with an unknown key or a value of another kind, one that selects no run,
    and a file whose entries are all of other plans.
    """
    check_regular(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise OsoError(f"{path}: cannot be read ({reason(error)})") from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, and a number too long to read
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        raise OsoError(f"{path}: not TOML ({why})") from None
    entries = content.pop("first", None)
    if content or not isinstance(entries, list) or not entries:
        raise OsoError(f"{path}: must hold tables [[first]], and nothing else")
    plans = {work.plan.name for work in everything}
    entries_here = []
    for number, entry in enumerate(entries, start=1):
        priority = Priority(number, _allowed(path, number, entry))
        if plans.isdisjoint(priority.allowed.get("plan", plans)):
            continue
        if not any(priority.takes(work, run) for work in everything for run in work.cohort.runs):
            raise OsoError(f"{path}: {priority.text} selects no run of {', '.join(sorted(plans))}")
        entries_here.append(priority)
    if not entries_here:
        raise OsoError(
            f"{path}: all entries are for plans that are not here; here are "
            f"{', '.join(sorted(plans))}"
        )
    return entries_here


def _allowed(path: Path, number: int, entry: Any) -> dict[str, tuple[Any, ...]]:
    where = f"{path}: entry {number}"
    if not isinstance(entry, dict) or not entry:
        raise OsoError(f"{where}: must name at least one of {', '.join(KEYS)}")
    allowed = {}
    for key, value in entry.items():
        if key not in KEYS:
            raise OsoError(f"{where}: {key}: unknown key; allowed are {', '.join(KEYS)}")
        values = value if isinstance(value, list) else [value]
        wrong = [v for v in values if not isinstance(v, KEYS[key]) or isinstance(v, bool)]
        too_large = [v for v in values if isinstance(v, int) and abs(v) > MAX_NUMBER]
        if too_large:
            raise OsoError(f"{where}: {key}: a number must be at most {MAX_NUMBER:.0e}")
        if wrong or not values:
            kind = "text" if KEYS[key] == (str,) else "a number"
            raise OsoError(f"{where}: {key} = {value!r}: must be {kind}, or a list of such")
        allowed[key] = tuple(values)
    return allowed
