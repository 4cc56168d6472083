"""A server on this machine that serves a file as badly as it is told to."""

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


class Answer(http.server.BaseHTTPRequestHandler):
    """One request, and what a behaviour does with it."""

    server: "Server"

    @property
    def content(self) -> bytes:
        return self.server.content

    def head(self, status: int = 200, **headers: object) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def head_of_all(self) -> bytes:
        """Answer as a good server does; returns what it would send then."""
        self.head(Content_Length=len(self.content))
        return self.content

    def wait(self, seconds: float | None = None) -> bool:
        """Until the server closes, or that long; whether it is still open."""
        return not self.server.closing.wait(seconds)

    def do_GET(self) -> None:
        number = int(self.path.split("/")[1])
        self.server.asked.append(number)
        self.server.behaviours[number](self)

    def log_message(self, *args: object) -> None:
        pass


Behaviour = Callable[[Answer], Any]


class Server(http.server.ThreadingHTTPServer):
    behaviours: tuple[Behaviour, ...]
    content: bytes
    asked: list[int]
    closing: threading.Event

    def handle_error(self, *args: object) -> None:
        """A client that has gone is what these tests are about."""


@dataclass
class Mirrors:
    """The addresses, one for each behaviour, and who was asked."""

    urls: tuple[str, ...]
    asked: list[int] = field(default_factory=list)


@contextmanager
def serving(content: bytes, *behaviours: Behaviour) -> Iterator[Mirrors]:
    """Serve `content` under any name, at one address for each behaviour."""
    with Server(("127.0.0.1", 0), Answer) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        mirrors = Mirrors(tuple(f"{address}/{number}" for number in range(len(behaviours))))
        server.behaviours, server.content = behaviours, content
        server.asked, server.closing = mirrors.asked, threading.Event()
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield mirrors
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()


# Behaviours


def sound(answer: Answer) -> None:
    answer.wfile.write(answer.head_of_all())


def cut_in_the_middle(answer: Answer) -> None:
    """Half of it."""
    rest = answer.head_of_all()
    answer.wfile.write(rest[: len(rest) // 2])


def cut_between_chunks(answer: Answer) -> None:
    answer.protocol_version = "HTTP/1.1"
    answer.head(Transfer_Encoding="chunked")
    answer.wfile.write(b"1000\r\n" + answer.content[:4096] + b"\r\n")


def too_short_by_its_length(answer: Answer) -> None:
    answer.head(Content_Length=len(answer.content) - 1)
    answer.wfile.write(answer.content)


def huge_by_its_length(answer: Answer) -> None:
    answer.head(Content_Length=10**17)
    answer.wfile.write(answer.content)


def wrong(answer: Answer) -> None:
    answer.head(Content_Length=len(answer.content))
    answer.wfile.write(bytes(len(answer.content)))


def silent_after_the_head(answer: Answer) -> None:
    answer.head(Content_Length=len(answer.content))
    answer.wait()


def silent_in_the_middle(answer: Answer) -> None:
    cut_in_the_middle(answer)
    answer.wait()


def dripping(answer: Answer) -> None:
    """Some bytes now and then."""
    rest = answer.head_of_all()
    while answer.wait(0.02):
        answer.wfile.write(rest[:64])
        rest = rest[64:]


def slow(answer: Answer) -> None:
    """A twentieth now and then."""
    rest = answer.head_of_all()
    while rest:
        answer.wfile.write(rest[: len(answer.content) // 20])
        rest = rest[len(answer.content) // 20 :]
        time.sleep(0.03)


def status(code: int) -> Behaviour:
    return lambda answer: answer.head(code, Content_Length=0)


def redirected_in_circles(answer: Answer) -> None:
    answer.head(302, Location=answer.path)


def redirected_to_a_file(answer: Answer) -> None:
    answer.head(302, Location="file:///etc/passwd")


def no_http(answer: Answer) -> None:
    answer.wfile.write(b"220 ready\r\n" * 9)


def endless(answer: Answer) -> None:
    answer.head()
    while answer.wait(0):
        answer.wfile.write(bytes(1 << 20))
