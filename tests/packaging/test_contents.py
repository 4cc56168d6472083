"""What the packaging files must not say, and what the package must carry and declare."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

PACKAGING = [
    "Makefile",
    "requirements.in",
    "requirements.lock",
    "environment.yml",
    "pyproject.toml",
    "scripts/lock",
    ".ci/run",
    "CITATION.cff",
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


def test_licence_is_the_one_declared(repo: Path) -> None:
    text = (repo / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_wheel_carries_every_file_of_the_package(repo: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    copytree(repo / "src", source / "src", ignore=ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (source / name).write_bytes((repo / name).read_bytes())
    offline = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", tmp_path, source]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    package = source / "src" / "oso_dp"
    ours = {
        f"oso_dp/{p.relative_to(package).as_posix()}" for p in package.rglob("*") if p.is_file()
    }
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name for name in names if name.startswith("oso_dp/")} == ours
    assert any(name.endswith("/LICENSE") for name in names)


def test_every_import_is_a_declared_dependency(repo: Path) -> None:
    project = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    stated = project["dependencies"] + project["optional-dependencies"]["audit"]
    declared = {line.split("==")[0] for line in stated}
    distributions = packages_distributions()
    undeclared = set()
    for path in (repo / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            else:
                continue
            for top in {module.split(".")[0] for module in modules}:
                if top == "oso_dp" or top in sys.stdlib_module_names:
                    continue
                providers = {re.sub(r"[-_.]+", "-", d).lower() for d in distributions.get(top, [])}
                if not providers & declared:
                    undeclared.add(f"{path.relative_to(repo)}: {top}")
    assert undeclared == set()
