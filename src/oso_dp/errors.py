"""What ends a command before its end: an error that users can mend, or somebody's wish."""

_MAX_MESSAGE_LENGTH = 1400  # characters; some messages quote what a file holds


class OsoError(Exception):
    """Something the user can mend: one line that names the culprit and what is allowed.

    The command line prints the message without a traceback and exits with status 2. Of a very long
    one, the middle is left out. What no terminal prints, as a line's end that a file's key holds,
    becomes a space.
    """

    def __init__(self, message: str) -> None:
        if len(message) > _MAX_MESSAGE_LENGTH:
            message = f"{message[: _MAX_MESSAGE_LENGTH - 400]} [...] {message[-390:]}"
        super().__init__("".join(sign if sign.isprintable() else " " for sign in message))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory did not suffice: for torch on a host that is a RuntimeError like any other."""
    if isinstance(error, RuntimeError):
        return any(words in str(error) for words in ("out of memory", "DefaultCPUAllocator"))
    return isinstance(error, MemoryError)


class InterruptedByUser(Exception):  # noqa: N818 (no error)
    """Somebody wants work to end: it is kept as far as it is, and goes on from there next time.

    The command line prints the message and exits with status 130.
    """


class SignalReceived(BaseException):
    """A signal, by name. No handler of errors takes it for one; nor does typer, for Ctrl-C's."""
