"""A folder that may be read and not written: one line, exit 2, and nothing in it changed."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oso_dp.cli import main
from oso_dp.reporting.page import build  # noqa: F401 (once, not in each copy)
from oso_dp.scheduler.__main__ import main as campaign

from .conftest import COHORT, content, refused

_OVERRIDES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: permissions are not root's


def obey_permissions() -> None:
    """From now on this process is refused what others are; it cannot go back."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: of each the low half first
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    for number in range(3):
        sets[number] &= ~_OVERRIDES
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


@pytest.fixture
def user(tmp_path) -> Callable[..., tuple[int, str, str]]:
    """Run a command in a copy of this process that obeys permissions, root or not."""
    if not hasattr(ctypes.CDLL(None), "capset") and os.geteuid() == 0:
        pytest.skip("root, and no way to give up what root may")
    files = tmp_path / "out", tmp_path / "err"

    def run(command: Callable[[], object], *arguments: object) -> tuple[int, str, str]:
        child = os.fork()
        if child == 0:
            status = 99
            try:
                signal.alarm(20)
                sys.stdout, sys.stderr = (open(file, "w") for file in files)  # noqa: SIM115
                sys.argv = ["oso", *map(str, arguments)]
                obey_permissions()
                status = int(command() or 0)  # type: ignore[call-overload]
            except SystemExit as ended:
                status = ended.code if isinstance(ended.code, int) else 98
            except BaseException as error:
                print(f"traceback: {error!r}", file=sys.stderr)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return status, *(file.read_text() for file in files)

    return run


@pytest.fixture
def closed(place) -> Iterator[Path]:
    """`place` with a report, a campaign's folder and data in it; nothing in it may be changed."""
    (place / "parts/.progress").mkdir(parents=True)
    (place / "empty").mkdir()
    (place / "progress").mkdir()
    folders = [place, *(path for path in place.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield place
    for folder in folders:
        folder.chmod(0o755)


COMMANDS = {
    "data": ("data", "glyphs", "--output", "empty/glyphs.npz"),
    "data in a new folder": ("data", "glyphs", "--output", "new/glyphs.npz"),
    "plan": ("plan", "--config", "study.yaml", "--output", "empty/plan.json"),
    "train": ("train", "--plan", "plan.json", "--cohort", COHORT, "--data", "glyphs.npz",
              "--output", "empty"),
    "train into a new folder": ("train", "--plan", "plan.json", "--cohort", COHORT, "--data",
                                "glyphs.npz", "--output", "new"),
    "collect": ("collect", "part", "--store", "store"),
    "collect into a new store": ("collect", "part", "--store", "new"),
    "report": ("report", "store", "--output", "empty"),
    "report beside the store": ("report", "store"),
    "account": ("account", "store", "--plan", "plan.json", "--output", "empty/account.csv"),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_unwritable_output_rejected(name, closed, user) -> None:
    before = content(closed)
    outcome = user(main, *COMMANDS[name])
    refused(outcome, "ermission")
    assert content(closed) == before


def test_scheduler_unwritable_results_rejected(closed, user) -> None:
    before = content(closed)
    for results in ("parts", "new"):
        given = ["--minutes", "1", "--results", results, "--plan", "plan.json", "--data", "."]
        outcome = user(lambda given=given: campaign(given))
        refused(outcome, results, "ermission")
    assert content(closed) == before
