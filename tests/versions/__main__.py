"""Try the package where only its lowest, or only its highest, supported versions are installed.

    make test-dependency-range        # both ends of the ranges in pyproject.toml
    python tests/versions lowest      # one of them

Each end is a new environment in build/versions: torch by its pin (an index may have one build that
fits a machine), the wheel that `python -m build` makes, and nothing of the checkout. There a new
user's first steps are taken; then extras are added, some tests of the library run, and the smallest
study is made from its plan to its report. `lowest` has the extra `report` and takes the study's
commands one by one; `highest` has `workflow` and takes Snakemake. Of the other extras the lowest
versions are those of the lock. Ends with status 1 if anything fails.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement

REPO = Path(__file__).resolve().parents[2]
FOLDER = REPO / "build" / "versions"
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
EXTRAS = {"lowest": "report,sklearn", "highest": "workflow,sklearn"}
TESTS = (
    *("tests/api", "tests/privacy", "tests/methods", "tests/accounting/test_accountants.py"),
    *("tests/opacus/test_examples_and_page.py", "tests/opacus/test_sanitize.py"),
)
CALIBRATE = "calibrate --epsilon 3 --examples 60000 --batch-size 512 --epochs 10 --runs 9"


class StepError(Exception):
    """A step that did not do what it should; the text says which, and how."""


def lowest_of(lines: Iterable[str]) -> list[str]:
    """`name==version` for the lower end of each range."""
    pins = []
    for line in lines:
        needed = Requirement(line)
        if needed.name not in ("torch", PROJECT["name"]):
            (lowest,) = (bound for bound in needed.specifier if bound.operator == ">=")
            pins.append(f"{needed.name}=={lowest.version}")
    return pins


def torch_pin() -> str:
    (pin,) = re.findall(r"^torch==\S+$", (REPO / "requirements.in").read_text(), re.M)
    return str(pin)


class End:
    """An environment with one end of the ranges, and what is tried in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = FOLDER / name
        self.programs = self.folder / "bin"
        self.work = self.folder / "work"
        self.constraints = self.folder / "constraints.txt"

    def step(self, what: str, *command: object, says: str = "", status: int = 0) -> None:
        """Run a command; StepError unless it ends with this status and says this."""
        started = time.monotonic()
        # The last one: without it each process would compile torch and its like anew.
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
        surroundings = {name: value for name, value in os.environ.items() if name not in hidden}
        surroundings["PATH"] = f"{self.programs}:{surroundings['PATH']}"
        done = subprocess.run(
            [str(part) for part in command],
            cwd=self.work,
            env=surroundings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != status or says not in done.stdout:
            raise StepError(f"{self.name}: {what}: status {done.returncode}\n{done.stdout[-4000:]}")
        print(f"{self.name}: {what} ({time.monotonic() - started:.0f} s)", flush=True)

    def install(self, *wanted: object) -> None:
        pip = [self.programs / "python", "-m", "pip", "--disable-pip-version-check", "install"]
        named = " ".join(Path(str(one)).name for one in wanted)
        options = ["--quiet", "--no-compile", "-c", self.constraints]
        self.step(f"install {named}", *pip, *options, *wanted)

    def oso(self, line: str, says: str = "", status: int = 0) -> None:
        program = self.programs / "oso"
        self.step(f"oso {line.split()[0]}", program, *line.split(), says=says, status=status)

    def run(self, wheel: Path) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", self.folder], check=True)
        self.work.mkdir()
        extra = EXTRAS[self.name]
        pins = [torch_pin()]
        if self.name == "lowest":
            extras = map(PROJECT["optional-dependencies"].get, extra.split(","))
            pins += lowest_of(chain(PROJECT["dependencies"], *extras))
        self.constraints.write_text("\n".join(pins))

        self.install(torch_pin())
        self.install(wheel)
        self.first_steps()
        self.install(f"{wheel}[{extra}]", "pytest", "hypothesis")
        pytest = [self.programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        pytest += ["-o", "filterwarnings=default", "--rootdir", REPO]
        self.step("tests", *pytest, *(REPO / path for path in TESTS))
        self.study()

    def first_steps(self) -> None:
        """Those of docs/user/quickstart.md, with nothing installed but the library."""
        page = (REPO / "docs/user/quickstart.md").read_text(encoding="utf-8")
        (lines,) = re.findall(r"```python\n(.*?)```", page, re.S)
        self.step("the quick start", self.programs / "python", "-c", lines, says="epsilon ")
        drop_in = "from oso_dp.opacus import OnlinePrivacyEngine"
        self.step("the drop-in's import", self.programs / "python", "-c", drop_in)
        self.oso("--version", says=PROJECT["version"])
        self.oso(CALIBRATE, says="noise multiplier 1.4936 ")
        for line in ("report", f"plan --config {REPO / 'config/ci/smoke.yaml'}"):
            self.oso(line, says='pip install "oso-dp[report]"', status=2)

    def study(self) -> None:
        """The smallest one, from its plan to its report."""
        config = REPO / "config/ci/smoke.yaml"
        if self.name == "highest":
            snakemake = [self.programs / "snakemake", "--cores", "2", "--directory", self.work]
            snakemake += ["--snakefile", REPO / "Snakefile", "--configfile", config]
            self.step("the smallest study", *snakemake)
            return
        self.oso(f"plan --config {config} --output plan.json")
        self.oso("data glyphs --output glyphs.npz")
        options = "--plan plan.json --data glyphs.npz"
        self.oso(f"train {options} --cohort glyphs.online.k2.eps3 --output part")
        self.oso("collect part --store store", says="2 runs")
        self.oso("report store --plan plan.json --output report")
        self.oso("account store --plan plan.json")


def wheel_in(folder: Path) -> Path:
    """The wheel that `python -m build` makes from the sdist that it made before."""
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "source"  # a copy, since setuptools writes beside what it packs
    unneeded = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(REPO / "src", source / "src", ignore=unneeded)
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(REPO / name, source)
    command = [sys.executable, "-m", "build", "--outdir", folder, source]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise StepError(f"build: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ends", nargs="*", help=f"which: {', '.join(EXTRAS)} [both]")
    ends = parser.parse_args().ends or list(EXTRAS)
    if unknown := set(ends) - EXTRAS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: allowed are {', '.join(EXTRAS)}")
    try:
        wheel = wheel_in(FOLDER / "dist")
        for name in ends:
            End(name).run(wheel)
    except StepError as failed:
        print(failed, file=sys.stderr)
        return 1
    print(f"the package works with its {' and its '.join(ends)} versions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
