"""One file from one URL into a partial file on disk: resumed where it was cut, left when it hangs.

A partial file is only ever appended to. Nothing in it is trusted: its reader takes its checksum.
"""

import re
import threading
import time
import urllib.request
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any
from urllib.error import HTTPError

from oso_dp import __version__
from oso_dp.errors import OsoError
from oso_dp.files import reason

WINDOW = 60.0  # seconds over which a mirror's speed is taken
SLOWEST = 10e3  # bytes per second; a mirror that is slower drips, and another one may be faster
_PIECE = 1 << 16  # bytes taken at once, at most
_AHEAD = 64  # pieces that are read before they are written, at most
_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)")
_LENGTH = re.compile(r"\d{1,18}")
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416


class WrongContentError(Exception):
    """What was read is not the file that was asked for."""


class BrokenError(Exception):
    """The transfer ended early; what came so far is worth keeping."""

    waited = 0.0  # seconds without a byte before that


@dataclass(frozen=True)
class _Answer:
    """What a server says before the content: where that starts and how long the whole is."""

    status: int | None  # None where the protocol has none
    length: str | None
    range: str | None


def transfer(url: str, partial: Path, limit: int, silence: float) -> None:
    """Bring the file `partial` up to the whole of `url`, from where it ends, if it exists.

    limit: bytes; a file that is longer is never the one asked for.
    silence: seconds without a byte (of the content; an answer's head that drips is none).

    Returns once the server says that no more follows. Raises BrokenError if it did not come that
    far, WrongContentError if the server sends something else (the partial file is to go, then),
    and OsoError if the partial file cannot be written.
    """
    try:
        with open(partial, "ab") as file:
            held = file.tell()
            with closing(_pieces(url, held, limit, silence)) as pieces:
                for position, content in pieces:
                    if position != held:  # the server starts again
                        file.truncate(position)
                        held = position
                    file.write(content)
                    held += len(content)
    except OSError as error:  # of the file: the network's are BrokenErrors
        raise OsoError(f"{partial}: cannot write this file ({reason(error)})") from error


def _pieces(
    url: str, held: int, limit: int, silence: float
) -> Generator[tuple[int, bytes], None, None]:
    """The content from byte `held` on, or from 0 if the server will not, each with its place."""
    with closing(_arrivals(url, held, silence)) as arrivals:
        answer = next(arrivals)
        if answer.status == _RANGE_NOT_SATISFIABLE:
            return  # all of it was there
        position, whole = _start(answer, held)
        if whole is not None and whole > limit:
            raise WrongContentError(f"wrong file ({whole} bytes long, {limit} at most)")
        yield position, b""
        since, came = time.monotonic(), 0
        for content in arrivals:
            if position + len(content) > limit:
                raise WrongContentError(f"wrong file (longer than {limit} bytes)")
            yield position, content
            position, came = position + len(content), came + len(content)
            now = time.monotonic()
            if now - since > WINDOW:
                if came < SLOWEST * (now - since):
                    raise BrokenError(f"too slow ({came} bytes in {now - since:.0f} s)")
                since, came = now, 0
        if whole is not None and position < whole:
            raise BrokenError(f"cut off after {position} of {whole} bytes")


def _start(answer: _Answer, held: int) -> tuple[int, int | None]:
    """Where the content starts, and the length of the whole, as far as the server says."""
    stated = answer.length or ""
    length = int(stated) if _LENGTH.fullmatch(stated) else None
    if answer.status != _PARTIAL_CONTENT:
        return 0, length
    match = _RANGE.fullmatch(answer.range or "")
    if match is None or int(match[1]) != held or not held:
        raise WrongContentError(f"another part than was asked for ({str(answer.range)[:40]})")
    if match[2] != "*":
        return held, int(match[2])
    return held, None if length is None else held + length


def _arrivals(url: str, start: int, silence: float) -> Generator[Any, None, None]:
    """An _Answer, then pieces of content; BrokenError if the next one takes too long.

    A thread waits for the network: there is no other way to stop waiting for a name server, or for
    a server that sends one letter of its answer now and then.
    """
    arrived: Queue[Any] = Queue(_AHEAD)
    left = threading.Event()

    def hand_over(item: Any) -> None:
        while not left.is_set():
            with suppress(Full):
                return arrived.put(item, timeout=1)

    def read() -> None:
        try:
            # Twice as long: who waits here is to be the one who gives up.
            with open_url(url, 2 * silence, start) as response:
                headers = response.headers
                status = getattr(response, "status", None)
                hand_over(_Answer(status, headers["Content-Length"], headers["Content-Range"]))
                while not left.is_set() and (content := response.read1(_PIECE)):
                    hand_over(content)
            hand_over(None)
        except HTTPError as error:
            error.close()
            if start and error.code == _RANGE_NOT_SATISFIABLE:
                hand_over(_Answer(error.code, None, None))
            else:
                hand_over(BrokenError(f"HTTP status {error.code}"))
        except (OSError, HTTPException, ValueError) as error:  # ValueError: an address that is none
            hand_over(BrokenError(reason(error)))
        except Exception as error:  # to be raised where somebody listens
            hand_over(error)

    threading.Thread(target=read, daemon=True, name=f"download {url}").start()
    try:
        while True:
            since = time.monotonic()
            try:
                item = arrived.get(timeout=silence)
            except Empty:
                item = BrokenError(f"no byte for {silence:.1f} s")
            if item is None:
                return
            if isinstance(item, BrokenError):
                item.waited = time.monotonic() - since
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        left.set()


def open_url(url: str, timeout: float, start: int = 0) -> Any:
    """Open a URL for reading from byte `start` on; the only way from this package to the network.

    A server may begin at 0 all the same: its status says so.
    """
    headers = {"User-Agent": f"oso/{__version__}"}
    if start:
        headers["Range"] = f"bytes={start}-"
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
