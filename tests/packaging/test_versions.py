"""requirements.in, the lock and environment.yml name the same versions, pyproject.toml ranges."""

import re
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import oso_dp

# Where conda calls a package otherwise.
CONDA_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib"}
# In environment.yml for its own sake, with no version of ours.
UNPINNED_IN_CONDA = {"python", "pip", "setuptools"}


def pins(lines: list[str]) -> dict[str, str]:
    """`name==version` lines as a dictionary; anything but an exact pin is refused."""
    found = {}
    for line in lines:
        match = re.fullmatch(r"([a-z0-9-]+)==([0-9][0-9a-z.]*)", line)
        assert match, f"{line!r} is no exact pin of a public version in lower case"
        assert match[1] not in found, f"{match[1]} stands there twice"
        found[match[1]] = match[2]
    return found


@pytest.fixture(scope="module")
def direct(repo: Path) -> dict[str, str]:
    lines = (repo / "requirements.in").read_text().splitlines()
    return pins([line for line in lines if line and not line.startswith("#")])


@pytest.fixture(scope="module")
def lock_text(repo: Path) -> str:
    return (repo / "requirements.lock").read_text()


@pytest.fixture(scope="module")
def lock(lock_text: str) -> dict[str, str]:
    return pins(re.findall(r"^([^\s#]+) \\$", lock_text, flags=re.M))


@pytest.fixture(scope="module")
def pyproject(repo: Path) -> dict:
    return tomllib.loads((repo / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def environment(repo: Path) -> dict:
    return yaml.safe_load((repo / "environment.yml").read_text())


@pytest.fixture(scope="module")
def conda(environment: dict) -> dict[str, str]:
    """Every pin of environment.yml, conda's and pip's, under its name on the package index."""
    found: dict[str, str] = {}
    for entry in environment["dependencies"]:
        if isinstance(entry, dict):
            named = pins(entry["pip"])
        elif re.split(r"[ =<>]", entry)[0] in UNPINNED_IN_CONDA:
            continue
        else:
            name, version = entry.split("=")
            named = {CONDA_NAMES.get(name, name): version}
        assert not set(found) & set(named), "a package is asked of both conda and pip"
        found |= named
    return found


@pytest.fixture(scope="module")
def ranges(pyproject: dict) -> list[Requirement]:
    """Everything that the package asks for, with and without its extras, but for its own extras."""
    project = pyproject["project"]
    lines = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    return [Requirement(line) for line in lines if not line.startswith(project["name"])]


def test_pyproject_names_the_direct_needs_once_each(direct: dict, ranges: list) -> None:
    assert sorted(requirement.name for requirement in ranges) == sorted(direct)


def test_each_pin_lies_within_its_range(direct: dict, ranges: list) -> None:
    outside = [str(needed) for needed in ranges if direct[needed.name] not in needed.specifier]
    assert outside == []


def test_lock_holds_the_direct_needs_but_torch(direct: dict, lock: dict, lock_text: str) -> None:
    asked = set(re.findall(r"^(\S+)==[^\n]*\n(?:    [^\n]*\n)*?[^\n]*-r requirements\.in$",
                           lock_text, flags=re.M))  # fmt: skip
    assert asked == set(direct) - {"torch"}
    assert {name: lock[name] for name in asked} == {name: direct[name] for name in asked}


def test_environment_holds_the_direct_needs(direct: dict, conda: dict) -> None:
    assert {name: conda.get(name) for name in direct} == direct


def test_environment_agrees_with_the_lock_on_the_rest(
    direct: dict, lock: dict, conda: dict
) -> None:
    rest = set(conda) - set(direct)
    assert {name: conda[name] for name in rest} == {name: lock.get(name) for name in rest}


def test_a_copy_of_the_environment_elsewhere_gets_the_package_too(repo: Path) -> None:
    script = (repo / "environment.post-deploy.sh").read_text()
    assert script.startswith("#!/usr/bin/env bash\n")
    assert script.endswith("pip install --no-deps --no-build-isolation -e .\n")
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    for rules in (repo / "workflow/rules").glob("*.smk"):
        for named in re.findall(r'conda:\s*"([^"]+)"', rules.read_text()):
            assert (rules.parent / named).resolve() == repo / "environment.yml"


def test_every_entry_of_the_lock_has_a_hash(lock: dict, lock_text: str) -> None:
    entries = re.split(r"^(?=[^\s#])", lock_text, flags=re.M)[1:]
    assert len(entries) == len(lock)
    without = [e.split()[0] for e in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", e)]
    assert without == []


def test_package_citation_and_metadata_state_one_version(repo: Path, pyproject: dict) -> None:
    citation = yaml.safe_load((repo / "CITATION.cff").read_text())
    assert oso_dp.__version__ == pyproject["project"]["version"] == citation["version"]
    assert pyproject["project"]["license"] == citation["license"]
