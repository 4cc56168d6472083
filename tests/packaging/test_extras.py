"""What is said where a package is missing that one of the extras brings."""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

from oso_dp import optional_dependencies
from oso_dp.errors import OsoError


@pytest.fixture(autouse=True)
def project(repo: Path, monkeypatch) -> dict:
    """pyproject.toml's; its extras as the metadata of a package have them."""
    stated = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    lines = [
        *stated["dependencies"],
        *(
            f'{line}; extra == "{extra}"'
            for extra, needs in stated["optional-dependencies"].items()
            for line in needs
        ),
    ]
    monkeypatch.setattr(optional_dependencies, "requires", lambda name: lines)
    return stated


def said(module: str, who: str = "oso report") -> str:
    with pytest.raises(OsoError) as refused, optional_dependencies.describe_missing(who):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    return str(refused.value)


def test_the_extra_with_the_fewest_packages_is_the_one_to_install() -> None:
    start = 'oso report needs the extra "report": pip install "oso-dp[report]" (jinja2 is not '
    assert said("jinja2").startswith(start)
    assert optional_dependencies.extras_with("jinja2") == ["report", "bench", "workflow", "dev"]
    assert 'pip install "oso-dp[audit]"' in said("jax_privacy.auditing", "oso audit")
    assert 'pip install "oso-dp[workflow]"' in said("snakemake")


@pytest.mark.parametrize("module", ["torch", "oso_dp.nothing", "nobody_knows"])
def test_what_no_extra_brings_goes_through(module) -> None:
    with pytest.raises(ModuleNotFoundError), optional_dependencies.describe_missing("oso report"):
        raise ModuleNotFoundError("No module", name=module)


def test_imports_are_dependencies_or_extras(repo: Path, project) -> None:
    core = {
        optional_dependencies.package_of(line.split(">")[0]) for line in project["dependencies"]
    }
    known = core.union(*optional_dependencies.packages_of_extras().values())
    unknown = set()
    for path in (repo / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            else:
                continue
            for top in {module.partition(".")[0] for module in modules}:
                if top in sys.stdlib_module_names or top == "oso_dp":
                    continue
                if optional_dependencies.package_of(top) not in known:
                    unknown.add(f"{path.relative_to(repo)}: {top}")
    assert unknown == set()
