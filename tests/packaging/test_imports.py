"""Modules do not import each other in circles, and tests import public names only."""

import ast
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def trees(repo: Path) -> dict[Path, ast.Module]:
    """Each file of the package, by its path below oso_dp."""
    package = repo / "src/oso_dp"
    return {
        path.relative_to(package): ast.parse(path.read_text()) for path in package.rglob("*.py")
    }


def test_no_modules_import_each_other(trees) -> None:
    """Not even for their types, within a package or across."""
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


def test_what_a_test_imports_is_public(repo: Path) -> None:
    private = [
        f"{path.name}: {alias.name}"
        for path in (repo / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oso_dp")
        for alias in node.names
        if alias.name.startswith("_") and alias.name != "__main__"
    ]
    assert private == []
