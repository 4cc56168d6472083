"""Which code is mutated, and which tests are asked about a file of it."""

import ast
from functools import cache
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]
CODE, TESTS = REPO / "src", REPO / "tests"
# Folders and files below src/oso_dp by the group whose score they make up.
GROUPS = {
    "trusted base": ("gradients", "privacy"),
    "accounting": (
        *("accounting", "privacy/noise_composition.py"),
        *("analysis/accounts.py", "results/checks.py"),
    ),
    "results": ("results",),
    "scheduler": ("scheduler",),
    "selection and verdicts": ("analysis",),
    "methods and training": ("methods", "training", "metrics.py"),
    "public interfaces": ("api", "opacus", "pate"),
    "study and tables": ("study", "reporting/tables"),
    "reports": ("reporting",),
    "commands": ("cli", "snakemake_support", "signals.py"),
    "data and models": ("data", "models", "labels.py"),
    "audit, reruns, diagnostics": ("audit", "rerun", "diagnostics"),
}
# Code that is found by its name, or by way of a fixture, and the tests that reach it.
BY_NAME = {
    "methods": ("methods/test_*.py", "training/test_*.py"),
    "reporting/tables": ("reporting/test_*.py",),
    "accounting/search_accounting": (
        "accounting/test_*.py",
        "analysis/test_accounts*.py",
        "analysis/test_linear_scaling_accounts.py",
    ),
    "api": ("api/test_*.py",),
    "data": ("data/test_*.py",),
    "models": ("models/test_*.py",),
    "opacus": ("opacus/test_*.py",),
    "snakemake_support": tuple(
        f"workflow/test_{name}.py" for name in ("preflight", "progress", "slurm")
    ),
    "audit": tuple(f"audit/test_{name}.py" for name in ("bounds", "run_audit", "observer")),
}
# These look at the repository, or run for minutes, and see no single line of code.
LEFT_OUT = ("mutation", "packaging", "docs", "workflow", "benchmarks", "audit")


def group_of(path: Path) -> str | None:
    """The group of a file, the most particular one that names it; None: it is not mutated."""
    below = path.relative_to(CODE / "oso_dp").as_posix()
    named = [
        (len(part), group)
        for group, parts in GROUPS.items()
        for part in parts
        if below == part or below.startswith(f"{part}/")
    ]
    return max(named)[1] if named else None


def mutated() -> dict[Path, str]:
    """Every file that is mutated, and its group."""
    found = {path: group_of(path) for path in sorted((CODE / "oso_dp").rglob("*.py"))}
    return {path: group for path, group in found.items() if group is not None}


def tests_of(path: Path) -> list[str]:
    """Test files about a file: those that import it, then those that import a user of it.

    Users are the files of its folder that import it, or a user of it; if no test imports one of
    those, files of other folders that do. Then the tests of what is found by its name.
    """
    users = _users(path)
    everywhere = {_name(path), *users}
    wider = {
        _name(other) for other in (CODE / "oso_dp").rglob("*.py") if everywhere & _imports(other)
    }
    tests = _tests_of(path, users) or _tests_of(path, frozenset(wider))
    folder = path.parent.relative_to(CODE / "oso_dp").as_posix()
    named = [test for tests in BY_NAME.get(folder, ()) for test in TESTS.glob(tests)]
    by_name = [test.relative_to(REPO).as_posix() for test in sorted(named)]
    return [*tests, *(test for test in by_name if test not in tests)]


def _tests_of(path: Path, users: frozenset[str]) -> list[str]:
    module = _name(path)
    tests = [
        test
        for test in sorted(TESTS.rglob("test_*.py"))
        if test.relative_to(TESTS).parts[0] not in LEFT_OUT
    ]
    direct = [test for test in tests if module in _imports(test)]
    near = [test for test in tests if users & _imports(test) and test not in direct]
    own = path.parent.name
    ordered = sorted(direct, key=lambda test: (path.stem not in test.stem, own not in test.parts))
    return [test.relative_to(REPO).as_posix() for test in (*ordered, *near)]


@cache
def _users(path: Path) -> frozenset[str]:
    """Modules of the file's folder that come to import it, by way of each other or not."""
    neighbours = {_name(other): _imports(other) for other in path.parent.glob("*.py")}
    found = {_name(path)}
    while more := {name for name, names in neighbours.items() if names & found} - found:
        found |= more
    return frozenset(found - {_name(path)})


def _name(path: Path) -> str:
    name = ".".join(path.relative_to(CODE).with_suffix("").parts)
    return name.removesuffix(".__init__")


@cache
def _imports(path: Path) -> frozenset[str]:
    """Modules of this project that a file imports; of a package, also what it hands on."""
    found: set[str] = set()
    waiting = _names(path)
    while waiting:
        found |= waiting
        packages = {CODE.joinpath(*name.split("."), "__init__.py") for name in waiting}
        handed_on = [_names(package) for package in packages if package.exists()]
        waiting = set().union(*handed_on) - found
    return frozenset(found)


@cache
def _names(path: Path) -> frozenset[str]:
    """What a file's own import lines name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(name for name in found if name.startswith("oso_dp"))
