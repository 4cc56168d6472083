"""The command line `oso`: thin, each command in a few lines over the rooms below.

Errors that users can mend end with one line on standard error and exit status 2.
"""

import sys

from oso_dp.errors import OsoError


def main() -> None:
    """Entry point: run the command; one line and status 2 for a user's mistake."""
    from typer.exceptions import Abort, TyperException

    from oso_dp.cli.commands import app

    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        status = app(standalone_mode=False)
    except OsoError as error:
        _complain(str(error))
    except TyperException as error:
        _complain(error.format_message())
    except (Abort, KeyboardInterrupt):
        sys.exit(130)
    else:
        sys.exit(status or 0)


def _complain(message: str) -> None:
    print(f"oso: error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
