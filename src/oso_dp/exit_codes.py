"""Exit codes of all commands, and the error line on standard error.

docs/user/troubleshooting.md lists the messages and remedies.
"""

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from oso_dp.errors import InterruptedByUser, OsoError, SignalReceived, is_out_of_memory
from oso_dp.files import format_os_error

SUCCESS: Final = 0
ERROR: Final = 2  # an error that the user can fix; Python exits with 1 on a bug
INTERRUPTED: Final = 130  # by Ctrl-C, as in shells, or `InterruptedByUser`
BROKEN_PIPE: Final = 141  # the reader of the output has ended, such as `head`


def error_line(error: object) -> str:
    """The message for an error, one line."""
    return f"oso: error: {' '.join(str(error).split())}"


def run_command(command: Callable[[], int | None]) -> int:
    """Run a command, print an error line if it fails, and return the exit code.

    The command returns its exit code, None for 0. A bug's exception passes through.
    """
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # for ± and ε on a terminal without them
            stream.reconfigure(errors="replace")
    try:
        status = command() or SUCCESS
        sys.stdout.flush()
    except OsoError as error:
        return _print_error(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more
        return BROKEN_PIPE
    except OSError as error:
        return _print_error(f"{error.filename or 'standard output'}: {format_os_error(error)}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("oso_dp"):
            raise
        return _print_error(f"{error.name}: not installed for {sys.executable}; see README.md")
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return _print_error("out of memory; use fewer parallel runs or smaller batches")
    except InterruptedByUser as interrupted:
        with suppress(OSError):  # Ctrl-C may have ended the reader as well
            print(f"oso: {interrupted}", file=sys.stderr, flush=True)
        return INTERRUPTED
    except SignalReceived as came:
        with suppress(OSError):
            print(f"oso: stopped by {came}", file=sys.stderr, flush=True)
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _open_closed_streams() -> None:
    """Open standard streams that the caller closed (`>&-`, None in Python) on the null device.

    Otherwise a file that the command opens would get the stream's number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (until the process ends)


def _print_error(error: object) -> int:
    print(error_line(error), file=sys.stderr)
    return ERROR
