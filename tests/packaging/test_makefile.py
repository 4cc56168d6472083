"""`make help`, and how `make setup` treats a .venv that is new, whole, stale or broken.

A stand-in for Python takes the place of the real one, so nothing is downloaded: it writes down
each pip call, and makes a .venv that holds only itself.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

DOCUMENTED = {
    *("setup", "demo", "test", "test-nightly", "test-slurm", "lint", "docs", "audit", "clean"),
    "help",
    *("bench", "bench-step-time", "bench-precision", "diagnose-cosine", "diagnose-signs"),
    *("planted-faults", "mutation-sample", "fuzz", "test-dependency-range", "notebooks"),
    *("account", "report", "verify", "artifact", "paper-best", "paper"),
    *("campaign", "campaign-stop", "collect"),
}

STAND_IN = f"""#!/bin/sh
if [ "$1" = -c ]; then exit 0; fi
if [ "$1" = scripts/with_lock.py ]; then exec '{sys.executable}' "$@"; fi
echo "$*" >> "$LOG"
sleep "${{PAUSE:-0}}"
if [ "$2" = venv ]; then
    mkdir -p .venv/bin && find .venv -type f -delete
    cp "$0" .venv/bin/python && touch .venv/bin/activate
fi
case "$*" in *"${{FAIL_AT:-nothing at all}}"*) exit 1 ;; esac
"""


class Checkout:
    """A copy of what `make setup` reads, with the stand-in as Python."""

    def __init__(self, repo: Path, folder: Path) -> None:
        self.folder = folder
        self.log = folder.parent / "log"
        self.python = folder.parent / "stand-in"
        (folder / "scripts").mkdir(parents=True)
        for name in ("with_lock.py", "clean.sh"):
            shutil.copy(repo / "scripts" / name, folder / "scripts")
        for name in ("Makefile", "requirements.in", "requirements.lock", "pyproject.toml"):
            shutil.copy(repo / name, folder)
        self.python.write_text(STAND_IN)
        self.python.chmod(0o755)

    def make(self, *args: str, **env: str) -> tuple[int, list[str], str]:
        """Exit status, the stand-in's calls, and all output of one `make`."""
        self.log.write_text("")
        process = self.start(*args, **env)
        output = process.communicate()[0]
        return process.returncode, self.log.read_text().splitlines(), output

    def start(self, *args: str, **env: str) -> subprocess.Popen:
        return subprocess.Popen(
            ["make", f"PYTHON={self.python}", *args],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LOG": str(self.log)} | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def checkout(repo: Path, tmp_path: Path) -> Checkout:
    return Checkout(repo, tmp_path / "a folder")


def made_anew(calls: list[str]) -> bool:
    return bool(calls) and calls[0].startswith("-m venv --clear ")


def test_make_help_lists_documented_targets(checkout: Checkout) -> None:
    status, calls, output = checkout.make()
    assert (status, calls) == (0, [])
    assert sorted(re.findall(r"^  make (\S+) +\S", output, flags=re.M)) == sorted(DOCUMENTED)
    assert checkout.make("help")[2] == output


def test_make_setup_installs_torch_first(checkout: Checkout) -> None:
    status, calls, _ = checkout.make("setup")
    assert status == 0
    assert made_anew(calls)
    torch, lock, package, check = calls[1:]
    assert re.search(r" install torch==[0-9.]+ --no-compile$", torch)
    assert {"--require-hashes", "--no-deps", "requirements.lock"} <= set(lock.split())
    assert "--no-deps" in package
    assert package.endswith("--editable .")
    assert check.endswith(" check")


def test_make_setup_second_call_waits(checkout: Checkout) -> None:
    checkout.log.write_text("")
    both = [checkout.start("setup", PAUSE="0.2") for _ in range(2)]
    said = sorted(process.communicate(timeout=60)[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert said[1] == "another make installs into this folder; waiting for it\n"
    calls = checkout.log.read_text().splitlines()
    assert sum(made_anew([call]) for call in calls) == 1
    assert len(calls) == 5  # as one would make: venv, torch, lock, package, check


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_make_setup_changed_requirement_installed(checkout: Checkout, name: str) -> None:
    checkout.make("setup")
    later = (checkout.folder / ".venv" / ".ready").stat().st_mtime + 10
    os.utime(checkout.folder / name, (later, later))
    status, calls, _ = checkout.make("setup")
    assert status == 0
    assert not made_anew(calls)
    assert any("requirements.lock" in call for call in calls)


@pytest.mark.parametrize("step", ["-m venv", "requirements.lock"])
def test_make_setup_interrupted_starts_afresh(checkout: Checkout, step: str) -> None:
    assert checkout.make("setup", FAIL_AT=step)[0] != 0
    status, calls, _ = checkout.make("setup")
    assert status == 0
    assert made_anew(calls)
    assert len(calls) == 5


def test_make_setup_copied_checkout_recreates_venv(checkout: Checkout) -> None:
    checkout.make("setup")
    shutil.copytree(checkout.folder, checkout.folder.parent / "copy")
    checkout.folder = checkout.folder.parent / "copy"
    assert made_anew(checkout.make("setup")[1])


def make_by_hand(checkout: Checkout, folder: Path | None = None) -> Path:
    """A .venv as the README's lines make one, with something in it."""
    venv = checkout.folder / ".venv"
    (venv / "bin").mkdir(parents=True)
    shutil.copy(checkout.python, venv / "bin/python")
    (venv / "bin/activate").write_text(f"VIRTUAL_ENV='{folder or venv}'\n")
    (venv / "mine").write_text("precious")
    return venv


def test_make_setup_users_venv_not_cleared(checkout: Checkout) -> None:
    venv = make_by_hand(checkout)
    for fail_at in ("requirements.lock", "nothing at all"):
        _, calls, _ = checkout.make("setup", FAIL_AT=fail_at)
        assert not made_anew(calls)
        assert any("requirements.lock" in call for call in calls)
    assert checkout.make("setup")[:2] == (0, [])
    later = (venv / ".ready").stat().st_mtime + 10
    os.utime(checkout.folder / "pyproject.toml", (later, later))
    assert not made_anew(checkout.make("setup")[1])
    assert (venv / "mine").read_text() == "precious"


@pytest.mark.parametrize("broken", ["moved", "no python", "no activate", "a file", "a link"])
def test_make_setup_broken_users_venv_rejected(checkout: Checkout, broken: str) -> None:
    elsewhere = checkout.folder.parent / "elsewhere"
    venv = make_by_hand(checkout, elsewhere if broken == "moved" else None)
    if broken in ("no python", "no activate"):
        (venv / "bin" / broken.removeprefix("no ")).unlink()
    if broken in ("a file", "a link"):
        venv.rename(elsewhere)
        venv.write_text("precious") if broken == "a file" else venv.symlink_to(elsewhere / "bin")
    before = sorted(checkout.folder.rglob("*")) + sorted(elsewhere.rglob("*"))
    status, calls, output = checkout.make("setup")
    lines = [line for line in output.splitlines() if not line.startswith("make: ***")]
    assert (status, calls) == (2, [])
    assert lines == [
        ".venv: not made by make, and does not work in this folder; move it away, then run make "
        "setup"
    ]
    assert sorted(checkout.folder.rglob("*")) + sorted(elsewhere.rglob("*")) == before


def test_make_setup_moved_users_venv_kept(checkout: Checkout) -> None:
    make_by_hand(checkout)
    assert checkout.make("setup")[0] == 0
    shutil.copytree(checkout.folder, checkout.folder.parent / "copy")
    checkout.folder = checkout.folder.parent / "copy"
    status, calls, _ = checkout.make("setup")
    assert (status, calls) == (2, [])
    assert (checkout.folder / ".venv/mine").read_text() == "precious"


def test_make_special_folder_name_quoted(repo: Path, tmp_path: Path) -> None:
    checkout = Checkout(repo, tmp_path / 'it\'s $(mine); a "folder"')
    make_by_hand(checkout)
    assert checkout.make("setup")[0] == 0
    plain = checkout.make("--dry-run", "demo", "DATA_DIR=it's; mine")[2]
    assert "--config 'data_dir=it'\\''s; mine'" in plain
