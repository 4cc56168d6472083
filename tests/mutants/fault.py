"""A fault: a small change to one file of the code that would make the guarantee false."""

from dataclasses import dataclass, replace
from typing import Self

P, M, T = "tests/privacy/", "tests/methods/test_methods.py", "tests/training/"
G, A = "tests/gradients/", "tests/accounting/"
MECHANISM = f"{P}test_mechanism.py {P}test_mechanism_books.py"
GRADIENTS = f"{G}test_gradients.py {G}test_gradients_refused.py"
PRECISION = f"{G}test_precision.py {G}test_precision_from_outside.py"
INDEPENDENCE = G + "test_independence.py"
ACCOUNTS = "tests/analysis/test_accounts.py tests/analysis/test_accounts_planned.py"
QUERIES, LOOP = P + "test_queries.py", T + "test_loop.py"

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

    name: str
    file: str  # below src/oso_dp
    old: str
    new: str
    tests: str
    kind: str = ""  # of KINDS, if it is of one

    def of(self, kind: str) -> Self:
        """The same fault, said to be of this kind."""
        return replace(self, kind=kind)


def of_kind(kind: str, *faults: Fault) -> list[Fault]:
    return [fault.of(kind) for fault in faults]


def in_mechanism(name: str, old: str, new: str, tests: str = MECHANISM) -> Fault:
    return Fault(name, "privacy/mechanism.py", old, new, tests)


def in_sums(name: str, old: str, new: str, tests: str = MECHANISM) -> Fault:
    return Fault(name, "privacy/exact_sums.py", old, new, tests)


def in_random_numbers(
    name: str, old: str, new: str, tests: str = P + "test_random_numbers.py"
) -> Fault:
    return Fault(name, "privacy/random_numbers.py", old, new, tests)


def in_streams(name: str, old: str, new: str, tests: str = P + "test_streams.py") -> Fault:
    return Fault(name, "privacy/streams.py", old, new, tests)


def in_sampling(name: str, old: str, new: str, tests: str = P + "test_subsets.py") -> Fault:
    return Fault(name, "privacy/sampling.py", old, new, tests)


def in_subsets(name: str, old: str, new: str, tests: str = P + "test_subsets.py") -> Fault:
    return Fault(name, "privacy/subsets.py", old, new, tests)


def in_queries(name: str, old: str, new: str, tests: str = QUERIES) -> Fault:
    return Fault(name, "privacy/queries.py", old, new, tests)
