"""Mechanical faults, by cosmic-ray's operators: every comparison, number, condition, loop, handler.

A mutant is named by the function that it changes and by that function's code, before and after,
without comments, docstrings, annotations, imports and layout. So what is known of it stays true
when a file moves, and is forgotten when the function changes.
"""

import ast
import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

Functions = dict[str, str]  # the code of each function, or of what stands outside, by its name


@dataclass(frozen=True)
class Place:
    """Where an operator can do something to a file."""

    path: Path
    operator: str
    occurrence: int


@dataclass(frozen=True)
class Mutant:
    """One changed function, and the whole file with it."""

    function: str
    content: str  # digest of the function's code before
    name: str  # digest of the function's name and its code before and after
    text: str


@cache
def operators() -> tuple[str, ...]:
    """Those that need no arguments."""
    return tuple(name for name in operator_names() if not get_operator(name).arguments())


def places(path: Path) -> Iterator[Place]:
    """Every place of every operator in a file."""
    tree = get_ast(path.read_text())
    for name in operators():
        operator = get_operator(name)()
        count = sum(1 for node in ast_nodes(tree) for _ in operator.mutation_positions(node))
        yield from (Place(path, name, occurrence) for occurrence in range(count))


def mutant(place: Place) -> Mutant | None:
    """What the operator makes there; None if the code still means the same, or is none."""
    text = place.path.read_text()
    try:
        changed = mutate_code(text, get_operator(place.operator)(), place.occurrence)
    except AttributeError:  # cosmic-ray takes any name behind `except` for a single word
        return None
    if changed is None:
        return None
    before = functions(text)
    try:
        with warnings.catch_warnings(action="error"):  # `is` beside a number: no fault of anybody's
            compile(changed, "", "exec")
    except (SyntaxError, SyntaxWarning):
        return None
    after = functions(changed)
    names = [name for name in before | after if before.get(name) != after.get(name)]
    if not names:
        return None
    name = names[0]
    old, new = before.get(name, ""), after.get(name, "")
    return Mutant(name, digest(old), digest("\0".join((name, old, new))), changed)


def functions(text: str) -> Functions:
    """The code of each function, by its name with that of its class.

    What stands outside of functions has the name of its class, or of nothing.
    """
    found: dict[str, list[str]] = {}

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                inside = f"{prefix}{child.name}"
                head = [*child.bases, *child.keywords, *child.decorator_list]
                found.setdefault(inside, []).extend(ast.dump(part) for part in head)
                walk_body(child, f"{inside}.")
            else:
                note(child, prefix)

    def walk_body(node: ast.ClassDef, prefix: str) -> None:
        for child in node.body:
            if isinstance(child, ast.ClassDef):
                walk(ast.Module([child], []), prefix)
            else:
                note(child, prefix)

    def note(node: ast.AST, prefix: str) -> None:
        plain = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        name = f"{prefix}{node.name}" if plain else prefix.rstrip(".")
        found.setdefault(name, []).append(ast.dump(node))

    walk(_Bare().visit(ast.parse(text)), "")
    return {name: "\n".join(parts) for name, parts in found.items()}


class _Bare(ast.NodeTransformer):
    """Without docstrings and annotations: nothing is computed from them. And without imports.

    Those say where something stands, which may change, and are not mutated.
    """

    def visit(self, node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            return None
        self.generic_visit(node)
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                del body[0]
        for name in ("annotation", "returns"):
            if getattr(node, name, None) is not None:
                setattr(node, name, ast.Constant(None) if isinstance(node, ast.AnnAssign) else None)
        return node


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
