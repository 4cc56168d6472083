"""The sdist, and the wheel made from it."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest


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


def test_sdist_contents_exclude_tests(sdist: Path) -> None:
    names = {path.name for path in sdist.iterdir()}
    assert names == {"src", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "PKG-INFO",
                     "setup.cfg"}  # fmt: skip


def test_wheel_contents_equal_package(repo: Path, wheel: Path) -> None:
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


BACKEND = "import sys; from setuptools import build_meta as b; print(b.build_{}(sys.argv[1]))"


def built(kind: str, source: Path, folder: Path) -> Path:
    """An sdist or a wheel of a source tree, made as pip makes one, by the setuptools at hand."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", BACKEND.format(kind), folder]
    done = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    return folder / done.stdout.split()[-1]


def unpacked(sdist: Path, folder: Path) -> Path:
    """The one folder that it holds."""
    with tarfile.open(sdist) as archive:
        # Python from 3.11.4 on asks for a filter, and others have none.
        archive.extractall(
            folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )
    (inside,) = folder.iterdir()
    return inside
