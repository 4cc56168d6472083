"""The one exception that users are meant to read."""


class OsoError(Exception):
    """Something the user can mend: one line that names the culprit and what is allowed.

    The command line prints the message without a traceback and exits with status 2.
    """
