"""Optional dependencies: which extra of this package provides a missing module.

Extras are read from the installed package's metadata, so pyproject.toml is their only definition.
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
# Packages whose names differ from their modules'.
_PACKAGES: Final = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<extras>[^]]*)])?")
_OF_EXTRA = re.compile(r"""extra\s*==\s*["'](?P<extra>[\w.-]+)["']""")


def package_of(module: str) -> str:
    """The package, with normalised name, of a module."""
    top = module.partition(".")[0]
    return _PACKAGES.get(top, _normalise(top))


def packages_of_extras() -> dict[str, set[str]]:
    """Each extra's packages, including those of nested extras; empty if not installed."""
    try:
        lines = requires(_PACKAGE) or []
    except PackageNotFoundError:  # run from a source checkout
        return {}
    direct: dict[str, set[str]] = {}
    nested: dict[str, set[str]] = {}
    for line in lines:
        requirement, extra = _REQUIREMENT.match(line), _OF_EXTRA.search(line)
        if requirement is None or extra is None:
            continue
        name, others = _normalise(requirement["name"]), requirement["extras"] or ""
        packages = direct.setdefault(extra["extra"], set())
        if name == _PACKAGE:
            names = {_normalise(other) for other in others.replace(",", " ").split()}
            nested.setdefault(extra["extra"], set()).update(names)
        else:
            packages.add(name)
    return {extra: _collect_requirements(extra, direct, nested) for extra in direct}


def extras_with(module: str) -> list[str]:
    """The extras that provide this module, the one with the fewest packages first."""
    extras, package = packages_of_extras(), package_of(module)
    providers = [extra for extra, packages in extras.items() if package in packages]
    return sorted(providers, key=lambda extra: (len(extras[extra]), extra))


@contextmanager
def describe_missing(user: str) -> Iterator[None]:
    """Convert ModuleNotFoundError to OsoError that names the smallest extra with the package.

    `user`: the command or function that needs it.
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


def _normalise(name: str) -> str:
    """A normalised package name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _collect_requirements(
    extra: str, direct: dict[str, set[str]], nested: dict[str, set[str]]
) -> set[str]:
    packages = set(direct.get(extra, ()))
    for other in nested.get(extra, ()):
        packages |= _collect_requirements(other, direct, nested)
    return packages
