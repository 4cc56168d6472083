"""How a command ends: a status and one line, whatever went wrong outside of it."""

import errno
import os
import subprocess
import sys

import pytest

from oso_dp.errors import InterruptedByUser, OsoError
from oso_dp.exit_codes import ERROR, INTERRUPTED, run_command


def raising(error: BaseException):
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OsoError("x.yaml: seeds:\n  wrong"), "x.yaml: seeds: wrong"),
        (OSError(errno.ENOSPC, "No space left on device", "a.csv"), "a.csv: No space left on dev"),
        (OSError(errno.ENOSPC, "No space left on device"), "standard output: No space left on"),
        (PermissionError(errno.EACCES, "Permission denied", "b"), "b: Permission denied"),
        (MemoryError(), "out of memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory"), "out of memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "torch: not installed for"),
    ],
)
def test_run_command_user_error_prints_line(error, said, capsys) -> None:
    assert run_command(raising(error)) == ERROR
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"oso: error: {said}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("sign", ["\n", "\r", "\x1b[2J", "\u2028", "\ud800", "\0"])
def test_oso_error_unprintable_characters_replaced(sign, capsys) -> None:
    """A key of a configuration or a ledger may contain line breaks or other control characters."""
    error = OsoError(f"a.yaml: key {sign}: unknown")
    assert str(error).isprintable()
    assert str(error).startswith("a.yaml: key ")
    assert str(error).endswith(": unknown")
    run_command(raising(error))
    assert capsys.readouterr().err.count("\n") == 1


def test_run_command_bug_propagates() -> None:
    for error in (KeyError("x"), ModuleNotFoundError("No module", name="oso_dp.nothing")):
        with pytest.raises(type(error)):
            run_command(raising(error))


def test_run_command_interrupt_prints_message(capsys) -> None:
    assert run_command(raising(InterruptedByUser("SIGTERM: stopped at step 3"))) == INTERRUPTED
    assert capsys.readouterr() == ("", "oso: SIGTERM: stopped at step 3\n")


def test_run_command_status_returned(capsys) -> None:
    assert run_command(lambda: None) == 0
    assert run_command(lambda: 1) == 1
    assert run_command(raising(KeyboardInterrupt())) == INTERRUPTED
    assert capsys.readouterr() == ("", "")


SAY = (
    "import sys; from oso_dp.exit_codes import run_command; "
    "sys.exit(run_command(lambda: print({})))"
)


def run(code: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, **options)


def test_run_command_ascii_terminal_replaces_characters() -> None:
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    ran = run(SAY.format("'0.9 ± 0.1, ε = 3'"), stdout=subprocess.PIPE, env=ascii_only)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"0.9 ? 0.1, ? = 3\n", b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_run_command_full_device_reported() -> None:
    with open("/dev/full", "wb") as full:
        ran = run(SAY.format("1"), stdout=full)
    said = b"oso: error: standard output: No space left on device\n"
    assert (ran.returncode, ran.stderr) == (ERROR, said)


def test_run_command_broken_pipe_silent() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = run(SAY.format("1"), stdout=writing)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("closed", "command", "status", "said"),
    [
        (">&-", "schema", 0, ""),
        ("<&-", "plan --config -", ERROR, "oso: error: configuration: must be a mapping of keys"),
        (">&- 2>&-", "schema", 0, ""),
    ],
)
def test_run_command_closed_stream_tolerated(closed, command, status, said) -> None:
    line = f'exec "{sys.executable}" -m oso_dp {command} {closed}'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    assert done.returncode == status
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == (said != "")
