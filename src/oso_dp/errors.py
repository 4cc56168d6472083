"""Exceptions: errors that the user can fix, and interruptions; and warnings that are given once."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_MAX_MESSAGE_LENGTH = 1400  # characters; some messages quote what a file holds


class OsoError(Exception):
    """An error that the user can fix.

    The message is one line: the file, key or argument, its value, what is allowed, what to do. The
    command line prints it without a traceback and exits with status 2.

    Args:
        message: The message. Characters that are not printable, such as line breaks, become spaces;
            the middle of a message of more than 1400 characters is left out.

    Example:
        >>> raise OsoError("noise_multiplier: -1; must be >= 0")
    """

    def __init__(self, message: str) -> None:
        if len(message) > _MAX_MESSAGE_LENGTH:
            message = f"{message[: _MAX_MESSAGE_LENGTH - 400]} [...] {message[-390:]}"
        super().__init__("".join(char if char.isprintable() else " " for char in message))


@contextmanager
def failing_as(what: str) -> Iterator[None]:
    """Raise OsoError with this description for any exception: the user's code may raise all."""
    try:
        yield
    except OsoError:
        raise
    except Exception as error:
        line = " ".join(str(error).split()) or type(error).__name__
        raise OsoError(f"{what}: {line}") from error


@cache
def warn_once(logger: logging.Logger, text: str) -> None:
    """Log a warning, once a process: its number tells of no number of trainings."""
    logger.warning(text)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error means out of memory, which torch reports as RuntimeError on a CPU."""
    if isinstance(error, RuntimeError):
        return any(text in str(error) for text in ("out of memory", "DefaultCPUAllocator"))
    return isinstance(error, MemoryError)


class InterruptedByUser(Exception):  # noqa: N818 (not an error)
    """The user stops the work: progress is saved, and the next start resumes from it.

    The command line prints the message and exits with status 130.
    """


class SignalReceived(BaseException):
    """A signal, by name. A BaseException, so that no handler of errors catches it."""
