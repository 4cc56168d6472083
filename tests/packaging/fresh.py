"""A new user's environment, made in a second: the wheel, and links to what its core asks for."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


class Environment:
    """A virtual environment with links to the packages that core requirements lead to."""

    def __init__(self, folder: Path, core: list[str]) -> None:
        command = [sys.executable, "-m", "venv", "--without-pip", folder]
        subprocess.run(command, check=True)
        self.folder = folder
        self.site = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
        for package in _closure(core):
            files = package.files or []
            for name in {file.parts[0] for file in files} - {"..", "__pycache__"}:
                (self.site / name).symlink_to(Path(str(package.locate_file(name))).resolve())

    def install(self, wheel: Path) -> None:
        """As pip does, but for what pip checks and compiles: the nightly tests use pip."""
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.site)

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Its Python, which sees neither the checkout nor the packages that the tests have."""
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
        surroundings = {name: value for name, value in os.environ.items() if name not in hidden}
        return subprocess.run(
            [self.folder / "bin" / "python", *map(str, arguments)],
            cwd=self.folder,
            env=surroundings | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )


def _closure(requirements: list[str]) -> list[Distribution]:
    """The installed packages that these need, and what those need, and so on."""
    ahead = [Requirement(line) for line in requirements]
    packages: dict[str, Distribution] = {}
    while ahead:
        requirement = ahead.pop()
        name = canonicalize_name(requirement.name)
        if name in packages:
            continue
        packages[name] = distribution(name)
        for line in packages[name].requires or []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                ahead.append(needed)
    return list(packages.values())
