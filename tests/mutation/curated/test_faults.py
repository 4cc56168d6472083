"""The planted faults fit the code, and (`-m planted_fault`) the tests catch them."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest
from tests.mutation.curated.faults import (
    Fault,
    UnfitError,
    known_names,
    plant,
    read_faults,
    undefined_names,
)
from tests.mutation.forks import Forks

HERE = Path(__file__).parent
FAULTS = [fault for path in sorted(HERE.glob("*.faults")) for fault in read_faults(path)]
FAULTS.sort(key=lambda fault: fault.module)
MODULES = {name: [*faults] for name, faults in groupby(FAULTS, lambda fault: fault.module)}
SAMPLE = FAULTS[:: int(os.environ.get("ONE_IN") or 1)]
CODE = """
LIMIT = 3

class Sum:
    def noised(self, total, scale):
        if scale > 0:
            total = total + self.noise(total, scale)
            return total
        return total
"""


def change(fault: Fault, source: str) -> tuple[ast.Module, ast.Module]:
    tree = ast.parse(source)
    return tree, plant(fault, tree)


@pytest.mark.parametrize("module", MODULES)
def test_faults_of_module_fit(module: str, repo: Path) -> None:
    source = MODULES[module][0].path.read_text()
    for fault in MODULES[module]:
        assert ast.dump(ast.parse(fault.old)) != ast.dump(ast.parse(fault.new)), fault.name
        changed = ast.fix_missing_locations(change(fault, source)[1])
        unknown = undefined_names(changed, known_names(fault.path))
        assert not unknown, f"{fault.name}: names that are not there: {unknown}"
        compile(changed, module, "exec")
        assert all((repo / test.partition("::")[0]).exists() for test in fault.tests.split())


def test_faults_differ() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert len({(fault.where, fault.old, fault.new) for fault in FAULTS}) == len(FAULTS)


def fault_in_sum(old: str, new: str, where: str = "errors.Sum.noised") -> Fault:
    return Fault("a fault", where, old, new, "tests/test_exit_codes.py")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("self.noise(total, scale)", "0", "total = total + 0"),
        ("self . noise(\n total, scale\n)", "0", "total = total + 0"),
        ("self.draw(sums, width)", "self.draw(sums, 1)", "total = total + self.noise(total, 1)"),
        ("if width > 0: ...", "if width >= 0: ...", "if scale >= 0:"),
        ("x = x + f.noise(x, s)", "", "if scale > 0:\n            return total\n"),
    ],
)
def test_plant_takes_names_of_code(old: str, new: str, line: str) -> None:
    tree, _ = change(fault_in_sum(old, new), CODE)
    assert line in ast.unparse(tree)


@pytest.mark.parametrize(
    ("old", "where", "found"),
    [
        ("return total", "errors.Sum.noised", "2 places"),
        ("a.f(b, b)", "errors.Sum.noised", "0 places"),  # two names cannot be one
        ("abs(total, scale)", "errors.Sum.noised", "0 places"),
        ("return total", "errors.Sum", "0 places"),  # the inside of a function is not the class's
        ("return total", "errors.Sum.sum", "no such name"),
        ("return total", "error.Sum", "no such module"),
    ],
)
def test_plant_unfit_fault_rejected(old: str, where: str, found: str) -> None:
    with pytest.raises(UnfitError, match=found):
        change(fault_in_sum(old, "pass", where), CODE)


@pytest.mark.parametrize(
    ("new", "unknown"),
    [("sums", {"sums"}), ("max(3)", set()), ("[x for x in (1, 2)]", set()), ("x.y", {"x"})],
)
@pytest.mark.parametrize(
    ("where", "old"), [("errors", "3"), ("errors.Sum.noised", "total + self.noise(total, scale)")]
)
def test_undefined_names_lists_unbound_names(
    where: str, old: str, new: str, unknown: set[str]
) -> None:
    _, changed = change(fault_in_sum(old, new, where), CODE)
    assert undefined_names(changed, frozenset({"max"})) == unknown


class Rename(ast.NodeTransformer):
    """Renames variables throughout a module."""

    def __init__(self, renamed: set[str]) -> None:
        self.renamed = renamed

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(f"{node.id}_", node.ctx) if node.id in self.renamed else node


def local_variables(tree: ast.Module) -> set[str]:
    """Names that only assignments in functions bind."""
    bound: dict[bool, set[str]] = {True: set(), False: set()}

    def note(node: ast.AST, in_function: bool) -> None:
        stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        for field, value in ast.iter_fields(node):
            if isinstance(value, str) and (stored or field in ("arg", "name", "asname")):
                bound[stored and in_function].add(value)
        inside = in_function or isinstance(node, ast.FunctionDef)
        for child in ast.iter_child_nodes(node):
            note(child, inside and not isinstance(node, ast.ClassDef))

    note(tree, False)
    return bound[True] - bound[False]


def names_in(code: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}


@pytest.mark.parametrize("module", [*MODULES][::16])
def test_plant_renamed_variables_equivalent(module: str) -> None:
    source = MODULES[module][0].path.read_text()
    for fault in MODULES[module]:
        variables = local_variables(ast.parse(source))
        rename = Rename(variables - (names_in(fault.new) - names_in(fault.old)))
        renamed = ast.unparse(rename.visit(ast.parse(source)))
        expected = rename.visit(change(fault, source)[0])
        assert ast.unparse(change(fault, renamed)[0]) == ast.unparse(expected), fault.name


@pytest.fixture(scope="session")
def forks(repo: Path) -> Iterator[Forks]:
    paths = os.pathsep.join([str(HERE), str(repo / "src")])
    with Forks(repo, {"PYTHONPATH": paths}) as process:
        yield process


@pytest.fixture(scope="session")
def passes(forks: Forks, tmp_path_factory) -> Callable[[Path, str, str], bool]:
    """Whether a test passes where the module has another layout alone."""

    @cache
    def run(path: Path, module: str, test: str) -> bool:
        file = tmp_path_factory.mktemp("sound") / path.name
        file.write_text(ast.unparse(ast.parse(path.read_text())))
        return forks.run(test, **planted(module, file)).status == 0

    return run


def planted(module: str, file: Path) -> dict[str, str]:
    return {"OSO_PLANTED_MODULE": f"oso_dp.{module}", "OSO_PLANTED_FILE": str(file)}


def test_sitecustomize_child_process_has_fault(repo: Path, tmp_path: Path) -> None:
    file = tmp_path / "errors.py"
    file.write_text((repo / "src/oso_dp/errors.py").read_text() + "\nFAULT = 'seen'\n")
    paths = os.pathsep.join([str(HERE), str(repo / "src")])
    environment = {**os.environ, "PYTHONPATH": paths, **planted("errors", file)}
    inner = "import oso_dp.errors; print(oso_dp.errors.FAULT, oso_dp.errors.__file__)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}], check=True)"
    asked = [sys.executable, "-c", outer]
    printed = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == ["seen", str(repo / "src/oso_dp/errors.py")]


@pytest.mark.planted_fault
@pytest.mark.parametrize("fault", SAMPLE, ids=lambda fault: f"{fault.module}: {fault.name}")
def test_planted_fault_caught_by_tests(fault: Fault, forks: Forks, passes, tmp_path: Path) -> None:
    file = tmp_path / fault.path.name
    file.write_text(ast.unparse(change(fault, fault.path.read_text())[0]))
    tested = forks.run(*fault.tests.split(), **planted(fault.module, file))
    assert tested.status != 0, f"no test of {fault.tests} fails"
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", tested.output, flags=re.M)
    assert failed, tested.output[-3000:]
    assert tested.status == 1, tested.output[-3000:]
    assert passes(fault.path, fault.module, failed[1]), f"{failed[1]} fails without the fault, too"
