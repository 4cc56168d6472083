"""Planted faults: small changes to the code that would break the guarantee or a budget.

Each package below `src/oso_dp` has a file here. A line with @ says where the faults below it are
(the module and the qualified name of a function or class; the module alone for statements outside
of both), and the tests that must fail. A fault has a name, perhaps with tests of its own, the code
that it replaces (-, `old`), and what replaces it (+, `new`, may be absent).

`old` is one expression, or statements, compared as syntax trees: layout, quotes and comments do not
matter. `...` as the only statement of a block stands for any block, and returns in `new`. Names may
differ, each from one other name throughout, except for Python's built-in ones: the place with the
fewest other names is taken, and `new` gets its names. If no place or several fit, the fault does
not fit.
"""

import ast
import builtins
import symtable
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3] / "src/oso_dp"
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
BUILTINS = frozenset(dir(builtins))
IDENTIFIERS = {"id", "arg", "name", "asname", "attr", "rest"}  # fields of syntax trees

Block = list[ast.AST]
Names = dict[tuple[str, str], str]  # kind of a name, the name in `old`: the name in the code


class UnfitError(ValueError):
    """A fault that does not fit the code."""


@dataclass(frozen=True)
class Fault:
    name: str
    where: str
    old: str
    new: str
    tests: str  # paths, separated by spaces

    @property
    def module(self) -> str:
        """The part of `where` that names a module."""
        return self._module_and_scope[0]

    @property
    def scope(self) -> list[str]:
        """The names of the classes and functions around the fault, from outside to inside."""
        return self._module_and_scope[1]

    @property
    def path(self) -> Path:
        return _path(self.module)

    @property
    def _module_and_scope(self) -> tuple[str, list[str]]:
        names = self.where.split(".")
        for count in range(len(names), 0, -1):
            module = ".".join(names[:count])
            if _path(module).exists():
                return module, names[count:]
        raise UnfitError(f"{self.name}: where: {self.where}; no such module")


def _path(module: str) -> Path:
    path = SOURCE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def read_faults(path: Path) -> list[Fault]:
    """The faults of one file."""
    faults: list[Fault] = []
    where = usual_tests = ""
    for line in path.read_text().splitlines():
        sign, code = line[:1], line[2:]
        if sign == "@":
            where, _, usual_tests = code.partition(": ")
        elif sign and sign in "-+":
            part = "old" if sign == "-" else "new"
            faults[-1] = replace(faults[-1], **{part: f"{getattr(faults[-1], part)}{code}\n"})
        elif line:
            name, _, own = line.partition(": tests/")
            faults.append(Fault(name, where, "", "", (own and f"tests/{own}") or usual_tests))
    return faults


@dataclass
class Match:
    """Where `old` fits: elements `start` to `stop` of a list, or a field of `parent`."""

    parent: ast.AST
    field: str
    start: int | None
    stop: int
    names: Names
    blocks: list[Block]

    @property
    def renamed(self) -> int:
        return sum(old != new for (_, old), new in self.names.items())


def plant(fault: Fault, tree: ast.Module) -> ast.Module:
    """Changes a module's tree, and returns what changed at its top level; or raises UnfitError."""
    scopes: list[list[ast.AST]] = [[tree]]
    for name in fault.scope:
        inner = [node for scope in scopes[-1] for node in _definitions(scope) if node.name == name]
        scopes.append(inner)
    old, new = ast.parse(fault.old).body, ast.parse(fault.new).body
    found = [match for scope in scopes[-1] for match in _matches(old, new, scope)]
    fewest = min((match.renamed for match in found), default=0)
    best = [match for match in found if match.renamed == fewest]
    if len(best) != 1:
        what = f"`old` fits {len(best)} places, must be 1" if scopes[-1] else "no such name"
        raise UnfitError(f"{fault.name}: where: {fault.where}; {what}")
    _replace(best[0], new)
    outside = best[0].parent is tree
    around = [top for top in tree.body if any(node is best[0].parent for node in ast.walk(top))]
    return ast.Module(new if outside else around, [])


def _definitions(scope: ast.AST) -> Iterator[ast.AST]:
    """Functions and classes of a scope, not those inside of them."""
    return (node for node in _walk(scope) if isinstance(node, DEFINITIONS) and node is not scope)


def _walk(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope; of the functions and classes inside of it their heads alone."""
    waiting = [scope]
    while waiting:
        node = waiting.pop()
        yield node
        if node is scope or not isinstance(node, DEFINITIONS):
            waiting += ast.iter_child_nodes(node)


def _matches(old: Block, new: Block, scope: ast.AST) -> Iterator[Match]:
    expression = _is_expression(old) and _is_expression(new)
    wanted = [old[0].value] if expression else old
    for parent in _walk(scope):
        if parent is not scope and isinstance(parent, DEFINITIONS):
            continue
        for field, value in ast.iter_fields(parent):
            inside = value if isinstance(value, list) else [value]
            for start in range(len(inside) - len(wanted) + 1):
                stop = start + len(wanted)
                names, blocks = {}, []
                if _same(wanted, inside[start:stop], names, blocks):
                    listed = start if isinstance(value, list) else None
                    yield Match(parent, field, listed, stop, names, blocks)


def _is_expression(block: Block) -> bool:
    return len(block) == 1 and isinstance(block[0], ast.Expr)


def _is_any_block(block: object) -> bool:
    return (
        isinstance(block, list)
        and _is_expression(block)
        and isinstance(block[0].value, ast.Constant)
        and block[0].value.value is ...
    )


def _same(old: object, code: object, names: Names, blocks: list[Block]) -> bool:
    """Whether the code is `old` but for names; notes those, and blocks for `...`."""
    if type(old) is not type(code):
        return False
    if isinstance(old, list):
        if len(old) != len(code):
            return False
        return all(_same(*pair, names, blocks) for pair in zip(old, code, strict=True))
    if not isinstance(old, ast.AST):
        return repr(old) == repr(code)
    for field, value in ast.iter_fields(old):
        other = getattr(code, field, None)
        if _is_any_block(value) and isinstance(other, list):
            blocks.append(other)
        elif field in IDENTIFIERS and isinstance(value, str) and isinstance(other, str):
            if not _same_name((_kind(old), value), other, names):
                return False
        elif field != "kind" and not _same(value, other, names, blocks):
            return False
    return True


def _kind(node: ast.AST) -> str:
    """Variables, attributes and keywords of calls: one may be renamed and another not."""
    return type(node).__name__ if isinstance(node, ast.Attribute | ast.keyword) else "variable"


def _same_name(key: tuple[str, str], name: str, names: Names) -> bool:
    if key[0] == "variable" and {key[1], name} & BUILTINS and key[1] != name:
        return False
    taken = any(known == name and other[0] == key[0] for other, known in names.items())
    if key not in names and not taken:
        names[key] = name
    return names.get(key) == name


def _replace(match: Match, new: Block) -> None:
    blocks = iter(match.blocks)
    for node in [node for statement in new for node in ast.walk(statement)]:
        for field, value in ast.iter_fields(node):
            if _is_any_block(value):
                setattr(node, field, next(blocks))
            elif field in IDENTIFIERS and isinstance(value, str):
                setattr(node, field, match.names.get((_kind(node), value), value))
    value = getattr(match.parent, match.field)
    if match.start is None:
        setattr(match.parent, match.field, new[0].value)
    elif value and isinstance(value[match.start], ast.expr):
        value[match.start] = new[0].value
    else:
        value[match.start : match.stop] = new


@cache
def known_names(path: Path) -> frozenset[str]:
    """The names that every function of a module knows."""
    symbols = symtable.symtable(path.read_text(), path.name, "exec").get_symbols()
    bound = {
        symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()
    }
    return BUILTINS | bound | {"__file__"}


def undefined_names(statements: ast.Module, known: frozenset[str]) -> set[str]:
    """The names that statements of a module ask for, and that neither they nor `known` have."""
    tables = [symtable.symtable(ast.unparse(statements), "", "exec")]
    known |= {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_assigned()}
    asked: set[str] = set()
    for table in tables:
        tables += table.get_children()
        outside = table.get_type() == "module"
        symbols = table.get_symbols()
        asked |= {symbol.get_name() for symbol in symbols if outside or symbol.is_global()}
    return asked - known
