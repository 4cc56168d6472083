"""The house as planned: small files, a name for each thing, no circles, nothing pried open."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

# Of variables: they say nothing of what they hold.
PRONOUNS = {"found", "shown", "each", "it", "its", "them", "they", "this", "that", "these", "those"}
PRONOUNS |= {"mine", "ours", "theirs", "who", "which", "what", "some", "nothing", "everybody"}
# Rooms whose files are commands, tables and figures: these may be called like what they show.
NAMED_AFTER_OTHERS = {"cli", "tables", "figures"}
LARGEST = 15_000  # bytes


@pytest.fixture(scope="module")
def trees(repo: Path) -> dict[Path, ast.Module]:
    """Each file of the package, by its path below oso_dp."""
    package = repo / "src/oso_dp"
    return {
        path.relative_to(package): ast.parse(path.read_text()) for path in package.rglob("*.py")
    }


def test_files_are_small(repo: Path) -> None:
    large = [path for path in (repo / "src").rglob("*.py") if path.stat().st_size > LARGEST]
    assert large == []


def test_no_two_modules_have_one_name(trees) -> None:
    paths = defaultdict(list)
    for path in trees:
        if not NAMED_AFTER_OTHERS & set(path.parts) and not path.stem.startswith("__"):
            paths[path.stem].append(path)
    assert [twins for twins in paths.values() if len(twins) > 1] == []


def test_no_two_classes_have_one_name(trees) -> None:
    paths = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                paths[node.name].append(path)
    assert {name: twins for name, twins in paths.items() if len(twins) > 1} == {}


def test_no_variable_is_a_pronoun(trees) -> None:
    pronouns = [
        f"{path}:{node.lineno}: {node.id}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in PRONOUNS
    ]
    pronouns += [
        f"{path}:{node.lineno}: {node.arg}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.arg) and node.arg in PRONOUNS
    ]
    assert pronouns == []


def test_no_modules_import_each_other(trees) -> None:
    """Not even for their types, within a room or across."""
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
        if alias.name.startswith("_")
    ]
    assert private == []
