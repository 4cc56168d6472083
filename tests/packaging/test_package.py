"""What the package holds and loads."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

# Rooms whose every file is imported by commands that plan, collect, price and list.
ROOMS = ("accounting", "analysis", "cli", "methods", "paper", "results", "study")
LOAD = """
import importlib, pkgutil, sys
for room in sys.argv[1:]:
    package = importlib.import_module(f"oso_dp.{room}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
        if "torch" in sys.modules:
            sys.exit(f"{module.name} loads torch")
"""


def test_plans_results_and_prices_are_read_without_torch() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD, *ROOMS], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


SLOW = ("torch", "numpy", "pandas", "opacus", "dp_accounting", "snakemake", "matplotlib")


def test_the_package_loads_nothing_slow_until_it_is_used() -> None:
    code = (
        f"import sys, oso_dp; print([name for name in {SLOW} if name in sys.modules]); "
        "oso_dp.train_private; print('torch' in sys.modules, 'opacus' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True False"]


PACKAGING = [
    "Makefile",
    "requirements.in",
    "requirements.lock",
    "environment.yml",
    "environment.post-deploy.sh",
    "pyproject.toml",
    "scripts/update_lockfile.sh",
    ".ci/run",
    "CITATION.cff",
    "MANIFEST.in",
]


# A build of torch, an address, or a folder that only some machines have.
PARTICULAR = "|".join(
    [
        r"\+cpu|\+cu\d",
        r"https?://|file:/|--(?:extra-)?index-url|--find-links",
        r"(?<![\w.])/(?:home|mnt|opt|root|srv|tmp|Users)/",
    ]
)


@pytest.mark.parametrize("name", PACKAGING)
def test_packaging_is_bound_to_no_machine_index_or_build(repo: Path, name: str) -> None:
    text = (repo / name).read_text()
    assert [m[0] for m in re.finditer(PARTICULAR, text)] == []


@pytest.fixture(scope="module")
def trees(repo: Path) -> dict[Path, ast.Module]:
    """Each file of the package, by its path below oso_dp."""
    package = repo / "src/oso_dp"
    return {
        path.relative_to(package): ast.parse(path.read_text()) for path in package.rglob("*.py")
    }


def test_no_modules_import_each_other(trees) -> None:
    modules = {".".join(("oso_dp", *path.with_suffix("").parts)): path for path in trees}
    imports = {name: _imports(trees[path]) & modules.keys() for name, path in modules.items()}
    ready: set[str] = set()
    while loose := {name for name in modules.keys() - ready if imports[name] <= ready}:
        ready |= loose
    assert modules.keys() - ready == set()


def _imports(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names
