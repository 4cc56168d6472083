"""The command line `oso`: thin, each command in a few lines over the rooms below."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from oso_dp.errors import OsoError
from oso_dp.exits import ended
from oso_dp.extras import needed_by
from oso_dp.interrupts import ended_by_signals
from oso_dp.spinning import spin_briefly

if TYPE_CHECKING:
    from typer.exceptions import TyperException


def main() -> None:
    """Entry point: run the command that the arguments name, and exit (`oso_dp.exits`)."""
    spin_briefly()
    sys.exit(ended(_stoppable))


def _stoppable() -> int:
    with ended_by_signals():
        return _command()


def _command() -> int:
    from typer.exceptions import Abort, TyperException

    from oso_dp.cli.commands import app

    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        with needed_by(" ".join(["oso", *sys.argv[1:2]])):
            status: int | None = app(standalone_mode=False)
    except TyperException as error:
        raise OsoError(_said(error)) from None
    except Abort as error:
        if isinstance(error.__cause__, EOFError):  # which typer takes for the user's wish
            raise error.__cause__ from None
        raise KeyboardInterrupt from None
    return status or 0


def _said(error: TyperException) -> str:
    """Typer's message, with the value that it is about."""
    text = error.format_message().replace("Value error, ", "")
    complaints: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()  # pydantic's
    value = str(complaints[0]["input"])[:80] if complaints else ""
    return text if value in text else f"{text} (found {value!r})"
