"""Every fault: a small change to the code that would make the guarantee or a number false.

Those of `src/oso_dp/privacy/ledger.py` are in `planted/privacy/ledger.toml`, and so on. A fault
says its name, the `old` text (it stands in the code once), the `new` one, the tests that are
expected to see it, and its kind if it is of one. `python tests/mutants` plants them, one by one.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

PLANTED = Path(__file__).parent / "planted"

# Faults that tests of the smallest case do not see, by what hides them.
KINDS = {
    "company": "holds for one run and fails for several at once",
    "late": "holds for the first steps and small draws, and fails for later and larger ones",
    "second plan": "holds for the first plan and fails for the second",
    "campaign": "a campaign trains, or keeps, something else than its plan says",
    "restart": "goes on with other data, or scores a part of the test set",
    "books": "ledgers, rates, budgets and shapes that are slightly off",
    "reported": "a reported number is that of something else",
}


@dataclass(frozen=True)
class Fault:
    """Replace `old` (it stands in `file` once) by `new`; `tests` are expected to see it."""

    file: str  # below src/oso_dp
    name: str
    old: str
    new: str
    tests: str  # paths, with blanks between them
    kind: str = ""  # of KINDS, if it is of one


def _faults_of(path: Path) -> list[Fault]:
    file = path.relative_to(PLANTED).with_suffix(".py").as_posix()
    return [Fault(file, **fault) for fault in tomllib.loads(path.read_text())["fault"]]


FAULTS = [fault for path in sorted(PLANTED.rglob("*.toml")) for fault in _faults_of(path)]
