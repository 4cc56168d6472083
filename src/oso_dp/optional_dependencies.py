"""Which extra of this package brings a package that is not installed.

Read from the installed package's metadata, so that pyproject.toml alone says what belongs where.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires
from typing import Final

from oso_dp.errors import OsoError

_PACKAGE: Final = "oso-dp"
# Where a module is not called as its package is.
_PACKAGES: Final = {"PIL": "pillow", "yaml": "pyyaml"}
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<extras>[^]]*)])?")
_OF_EXTRA = re.compile(r"""extra\s*==\s*["'](?P<extra>[\w.-]+)["']""")


def package_of(module: str) -> str:
    """The package, in the index's spelling, that brings a top-level module or a part of it."""
    top = module.partition(".")[0]
    return _PACKAGES.get(top, _spelled(top))


def packages_of_extras() -> dict[str, set[str]]:
    """Each extra's packages, with those of the extras that it takes in; empty if not installed."""
    try:
        lines = requires(_PACKAGE) or []
    except PackageNotFoundError:  # a checkout's src alone, as on a machine for rent
        return {}
    direct: dict[str, set[str]] = {}
    taken_in: dict[str, set[str]] = {}
    for line in lines:
        requirement, extra = _REQUIREMENT.match(line), _OF_EXTRA.search(line)
        if requirement is None or extra is None:
            continue
        name, others = _spelled(requirement["name"]), requirement["extras"] or ""
        packages = direct.setdefault(extra["extra"], set())
        if name == _PACKAGE:
            names = {_spelled(other) for other in others.replace(",", " ").split()}
            taken_in.setdefault(extra["extra"], set()).update(names)
        else:
            packages.add(name)
    return {extra: _collect_requirements(extra, direct, taken_in) for extra in direct}


def extras_with(module: str) -> list[str]:
    """The extras that bring this module, the one with the fewest packages first."""
    extras, package = packages_of_extras(), package_of(module)
    having = [extra for extra, packages in extras.items() if package in packages]
    return sorted(having, key=lambda extra: (len(extras[extra]), extra))


@contextmanager
def describe_missing(user: str) -> Iterator[None]:
    """Turn the want of a package into OsoError: one line that names the smallest extra with it.

    user: the command or function that cannot do without it. Any other error goes through.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        extras = extras_with(error.name or "")
        if not extras:
            raise
        raise OsoError(
            f'{user} needs the extra "{extras[0]}": pip install "{_PACKAGE}[{extras[0]}]" '
            f"({package_of(error.name or '')} is not installed for {sys.executable})"
        ) from error


def _spelled(name: str) -> str:
    """As the package index compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _collect_requirements(
    extra: str, direct: dict[str, set[str]], taken_in: dict[str, set[str]]
) -> set[str]:
    packages = set(direct.get(extra, ()))
    for other in taken_in.get(extra, ()):
        packages |= _collect_requirements(other, direct, taken_in)
    return packages
