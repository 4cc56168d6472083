"""How every command ends: its exit status and, where it failed, one line on standard error.

docs/user/troubleshooting.md says what a user can do about each.
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
ERROR: Final = 2  # something that the user can mend; Python itself ends a fault of ours with 1
INTERRUPTED: Final = 130  # by Ctrl-C, as shells have it, or a wish for work to end
BROKEN_PIPE: Final = 141  # whoever read the output has gone, as `head` does


def error_line(error: object) -> str:
    """What a user is told of an error."""
    return f"oso: error: {' '.join(str(error).split())}"


def run_command(command: Callable[[], int | None]) -> int:
    """The exit status of this command, with its one line said if it failed.

    What the command returns is its status. A fault of the program goes through with its traceback.
    """
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # ± and ε on a terminal that has neither
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
        return _print_error("out of memory: fewer runs at once, or smaller batches, need less")
    except InterruptedByUser as interrupted:
        with suppress(OSError):  # Ctrl-C may have ended whoever reads, too
            print(f"oso: {interrupted}", file=sys.stderr, flush=True)
        return INTERRUPTED
    except SignalReceived as came:
        with suppress(OSError):
            print(f"oso: {came}: stopped before its end", file=sys.stderr, flush=True)
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _open_closed_streams() -> None:
    """Python has None for one that its caller closed (`>&-`); what is said then goes nowhere.

    Nor may a file that the command opens get that stream's number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (until the process ends)


def _print_error(error: object) -> int:
    print(error_line(error), file=sys.stderr)
    return ERROR
