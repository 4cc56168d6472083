"""The command line `oso`: entry point, and its errors as one line each."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from oso_dp.errors import OsoError
from oso_dp.exit_codes import run_command
from oso_dp.openmp import spin_briefly
from oso_dp.optional_dependencies import describe_missing
from oso_dp.signals import exit_on_signals

if TYPE_CHECKING:
    from typer.exceptions import TyperException


def main() -> None:
    """Entry point: run the command that the arguments name, and exit (`oso_dp.exit_codes`)."""
    spin_briefly()
    sys.exit(run_command(_with_signal_handling))


def _with_signal_handling() -> int:
    with exit_on_signals():
        return _command()


def _command() -> int:
    from typer.exceptions import Abort, TyperException

    from oso_dp.cli.commands import app, diagnose, pate

    if sys.argv[1:] in ([], [diagnose.info.name], [pate.info.name]):
        sys.argv.append("--help")
    try:
        with describe_missing(" ".join(["oso", *sys.argv[1:2]])):
            status: int | None = app(standalone_mode=False)
    except TyperException as error:
        raise OsoError(_report_error(error)) from None
    except Abort as error:
        if isinstance(error.__cause__, EOFError):  # typer treats it as an abort by the user
            raise error.__cause__ from None
        raise KeyboardInterrupt from None
    return status or 0


def _report_error(error: TyperException) -> str:
    """Typer's message, with the invalid value."""
    text = error.format_message().replace("Value error, ", "")
    errors: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()  # pydantic's
    value = str(errors[0]["input"])[:80] if errors else ""
    return text if value in text else f"{text} (found {value!r})"
