"""The sdist, the wheel made from it, and both in the environment of somebody who wants the library.

`make test-dependency-range` does the same with real downloads, at both ends of the version ranges.
"""

import re
import tomllib
import zipfile
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest
from tests.packaging.fresh import Environment, built, unpacked

CALIBRATE = "--epsilon 3 --delta 1e-5 --examples 60000 --batch-size 512 --epochs 10 --runs 9"


@pytest.fixture(scope="module")
def sdist(repo: Path, tmp_path_factory) -> Path:
    """Unpacked; made from a copy, since setuptools writes beside what it packs."""
    folder = tmp_path_factory.mktemp("packages")
    source = folder / "source"
    copytree(repo / "src", source / "src", ignore=ignore_patterns("__pycache__", "*.egg-info"))
    copytree(repo / "tests/packaging", source / "tests/packaging")
    for name in (
        "pyproject.toml",
        "MANIFEST.in",
        "README.md",
        "LICENSE",
        "tests/test_exit_codes.py",
    ):
        (source / name).write_bytes((repo / name).read_bytes())
    return unpacked(built("sdist", source, folder / "sdist"), folder / "unpacked")


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory) -> Path:
    return built("wheel", sdist, tmp_path_factory.mktemp("wheels"))


def test_the_sdist_holds_what_the_wheel_is_made_of_and_no_tests(sdist: Path) -> None:
    names = {path.name for path in sdist.iterdir()}
    assert names == {"src", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "PKG-INFO",
                     "setup.cfg"}  # fmt: skip


def test_the_wheel_carries_every_file_of_the_package_and_nothing_else(
    repo: Path, wheel: Path
) -> None:
    package = repo / "src" / "oso_dp"
    ours = {
        f"oso_dp/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("METADATA"))
        (programs,) = (archive.read(name) for name in names if name.endswith("entry_points.txt"))
    about = {name for name in names if ".dist-info/" in name}
    assert names - about == ours
    assert "oso_dp/py.typed" in names
    assert any(name.endswith("/LICENSE") for name in about)
    assert b"oso = oso_dp.cli:main" in programs
    project = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    stated = set(re.findall(r"^Provides-Extra: (\S+)", metadata, re.M))
    assert stated == project["optional-dependencies"].keys()


@pytest.mark.nightly
def test_a_new_user_gets_the_library_and_is_told_of_the_rest(
    repo: Path, wheel: Path, tmp_path: Path
) -> None:
    project = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    environment = Environment(tmp_path / "fresh", project["dependencies"])
    environment.install(wheel)
    for absent in ("snakemake", "pandas", "matplotlib"):
        assert environment.run("-c", f"import {absent}").returncode == 1

    page = (repo / "docs/user/quickstart.md").read_text()
    (lines,) = re.findall(r"```python\n(.*?)```", page, re.S)
    trained = environment.run("-c", lines)
    assert trained.returncode == 0, trained.stderr
    assert re.fullmatch(r"epsilon (2\.99|3\.00), accuracy (9\d|100)%\n", trained.stdout)

    assert environment.run("-m", "oso_dp", "--version").stdout == f"oso {project['version']}\n"
    priced = environment.run("-m", "oso_dp", "calibrate", *CALIBRATE.split())
    assert priced.stdout.startswith("noise multiplier 1.4936 for 9 runs")

    plan = f"plan --config {repo / 'config/ci/smoke.yaml'}"
    for command in ("report", plan):
        refused = environment.run("-m", "oso_dp", *command.split())
        assert refused.returncode == 2, refused.stderr
        assert refused.stderr.startswith(f"oso: error: oso {command.split()[0]} needs the extra ")
        assert 'pip install "oso-dp[report]"' in refused.stderr
        assert refused.stderr.count("\n") == 1
