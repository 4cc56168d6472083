"""What the package holds, loads and needs, and that all files name the same versions."""

import ast
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.official_data import find_shared

import oso_dp
from oso_dp import optional_dependencies
from oso_dp.errors import OsoError

# Rooms whose every file is imported by commands that plan, collect, price and list.
ROOMS = ("accounting", "analysis", "cli", "methods", "paper", "results", "study")
LOAD = """
import importlib, pkgutil, sys
for room in sys.argv[1:]:
    package = importlib.import_module(f"oso_dp.{room}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
        if "torch" in sys.modules:
            sys.exit(f"{module.name} loads torch")
"""


def test_subpackages_import_without_torch() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD, *ROOMS], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


SLOW = ("torch", "numpy", "pandas", "opacus", "dp_accounting", "snakemake", "matplotlib")


def test_import_oso_dp_defers_slow_packages() -> None:
    code = (
        f"import sys, oso_dp; print([name for name in {SLOW} if name in sys.modules]); "
        "oso_dp.train_private; print('torch' in sys.modules, 'opacus' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True False"]


PACKAGING = [
    "Makefile",
    "requirements.in",
    "requirements.lock",
    "environment.yml",
    "environment.post-deploy.sh",
    "pyproject.toml",
    "scripts/update_lockfile.sh",
    ".ci/run",
    "CITATION.cff",
    "MANIFEST.in",
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
def test_packaging_files_machine_independent(repo: Path, name: str) -> None:
    text = (repo / name).read_text()
    assert [m[0] for m in re.finditer(PARTICULAR, text)] == []


@pytest.fixture(scope="module")
def trees(repo: Path) -> dict[Path, ast.Module]:
    """Each file of the package, by its path below oso_dp."""
    package = repo / "src/oso_dp"
    return {
        path.relative_to(package): ast.parse(path.read_text()) for path in package.rglob("*.py")
    }


def test_modules_import_cycles_absent(trees) -> None:
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


def test_pyproject_requirements_equal_requirements_in(direct: dict, ranges: list) -> None:
    assert sorted(requirement.name for requirement in ranges) == sorted(direct)


def test_requirements_in_pins_within_ranges(direct: dict, ranges: list) -> None:
    outside = [str(needed) for needed in ranges if direct[needed.name] not in needed.specifier]
    assert outside == []


def test_lock_holds_requirements_except_torch(direct: dict, lock: dict, lock_text: str) -> None:
    asked = set(re.findall(r"^(\S+)==[^\n]*\n(?:    [^\n]*\n)*?[^\n]*-r requirements\.in$",
                           lock_text, flags=re.M))  # fmt: skip
    assert asked == set(direct) - {"torch"}
    assert {name: lock[name] for name in asked} == {name: direct[name] for name in asked}


def test_environment_pins_equal_requirements_in(direct: dict, conda: dict) -> None:
    assert {name: conda.get(name) for name in direct} == direct


def test_environment_other_pins_equal_lock(direct: dict, lock: dict, conda: dict) -> None:
    rest = set(conda) - set(direct)
    assert {name: conda[name] for name in rest} == {name: lock.get(name) for name in rest}


def test_lock_entries_have_hashes(lock: dict, lock_text: str) -> None:
    entries = re.split(r"^(?=[^\s#])", lock_text, flags=re.M)[1:]
    assert len(entries) == len(lock)
    without = [e.split()[0] for e in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", e)]
    assert without == []


def test_version_agrees_across_files(repo: Path, pyproject: dict) -> None:
    citation = yaml.safe_load((repo / "CITATION.cff").read_text())
    assert oso_dp.__version__ == pyproject["project"]["version"] == citation["version"]
    assert pyproject["project"]["license"] == citation["license"]


EXPECTED = {
    "ci.yml": {"test", "lint", "docs"},
    "nightly.yml": {
        *("test-nightly", "test-slurm", "planted-faults", "mutation-sample", "fuzz"),
        *("test-dependency-range", "audit", "notebooks"),
    },
}


def called_targets(workflow: Path) -> set[str]:
    """Each `make X` of the steps, with the job's matrix filled in."""
    targets = set()
    for job in yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for step in job["steps"]:
            for call in re.findall(r"\bmake (\$\{\{.*?\}\}|\S+)", step.get("run", "")):
                name = re.fullmatch(r"\$\{\{ matrix\.(\w+) \}\}", call)
                targets |= set(matrix[name[1]]) if name else {call}
    return targets


def test_ci_workflows_call_existing_targets(repo: Path) -> None:
    known = set(re.findall(r"^([a-z-]+):.*?## ", (repo / "Makefile").read_text("utf-8"), re.M))
    called = {path.name: called_targets(path) for path in (repo / ".github/workflows").iterdir()}
    assert called == EXPECTED
    assert set().union(*called.values()) <= known


@pytest.fixture
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


def test_describe_missing_names_smallest_extra(project) -> None:
    start = 'oso report needs the extra "report": pip install "oso-dp[report]" (jinja2 is not '
    assert said("jinja2").startswith(start)
    assert optional_dependencies.extras_with("jinja2") == ["report", "bench", "workflow", "dev"]
    assert 'pip install "oso-dp[audit]"' in said("jax_privacy.auditing", "oso audit")
    assert 'pip install "oso-dp[workflow]"' in said("snakemake")


def test_modules_import_declared_packages_only(repo: Path, project) -> None:
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


def closure(names: set[str]) -> set[str]:
    """These distributions and what they require, extras aside, in the form of canonical names."""
    found: set[str] = set()
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            with suppress(metadata.PackageNotFoundError):
                needs = map(Requirement, metadata.requires(name) or [])
                names |= {
                    canonicalize_name(one.name)
                    for one in needs
                    if one.marker is None or one.marker.evaluate({"extra": ""})
                }
    return found


# `sys.argv[2:]`: top-level modules that are not there.
ALONE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[2:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
exec(sys.argv[1])
trained.save("model.oso")
assert oso_dp.load_private("model.oso", model).epsilon == trained.epsilon
options = {"epsilon": 3, "delta": 1e-5, "epochs": 1, "validation": test, "method": "online"}
oso_dp.search_private(model, loss, training, {"learning_rate": [0.1, 1.0]}, **options)
from oso_dp.opacus import OnlinePrivacyEngine
"""


def test_library_core_dependencies_suffice(repo: Path, project, tmp_path: Path) -> None:
    """The library trains, searches, saves and loads without the packages of any extra."""
    core = closure({canonicalize_name(Requirement(line).name) for line in project["dependencies"]})
    others = [
        module
        for module, names in metadata.packages_distributions().items()
        if module != "oso_dp" and not {canonicalize_name(name) for name in names} & core
    ]
    assert {"pandas", "pyarrow", "yaml", "snakemake", "sklearn"} <= {*others}
    page = (repo / "docs/user/quickstart.md").read_text(encoding="utf-8")
    (quick_start,) = re.findall(r"```python\n(.*?)```", page, re.S)
    command = [sys.executable, "-c", ALONE, quick_start, *others]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("epsilon 3.00")


@pytest.mark.parametrize(
    ("required", "outcome"), [("0", pytest.skip.Exception), ("1", pytest.fail.Exception)]
)
def test_find_shared_absent_skips_or_fails(tmp_path: Path, monkeypatch, required, outcome) -> None:
    (tmp_path / "shared").mkdir()  # a folder of that name need not be ours
    monkeypatch.setenv("OSO_TEST_SHARED", "")
    monkeypatch.setenv("OSO_REQUIRE_SHARED", required)
    with pytest.raises(outcome, match="no official data"):
        find_shared(tmp_path / "repo")
