"""Raw files from a local folder or from mirrors, none of them trusted before its checksum.

A file counts by its uncompressed content alone: size and sha256. So a recompressed copy, or
one that was unpacked on the way, is as good as the original, and no mirror need be trusted.
"""

import gzip
import hashlib
import io
import logging
import os
import time
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError

from oso_dp import __version__
from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, reason

TRIES = 3  # rounds over the mirrors
PAUSE = 1.0  # seconds before the second round, doubled before each further one
TIMEOUT = 15.0  # seconds without an answer or without a byte
PATIENCE = 600.0  # seconds for one file from one mirror, however steadily it drips
LARGE = 200e6  # bytes; larger files have more time in proportion
_GZIP = b"\x1f\x8b"
_SLACK = 1 << 20  # bytes that a compressed file may be longer than its content
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceFile:
    """One raw file: its name when uncompressed, and its uncompressed size in bytes and sha256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """Where a data set comes from: its files, and URLs below which mirrors hold `<name>.gz`.

    `suffix` is the mirrors' way to call them; a source without mirrors is local only.
    """

    dataset: str
    files: tuple[SourceFile, ...]
    mirrors: tuple[str, ...]
    suffix: str = ".gz"


@dataclass(frozen=True)
class Fetched:
    """Verified, uncompressed content and where it was found (a path or a URL)."""

    content: bytes
    origin: str


Check = Callable[[bytes, str], object]


class WrongContentError(Exception):
    """What was read is not the file that was asked for."""


def obtain(
    source: Source, data_dir: Path | None, cache: Path, check: Check | None = None
) -> dict[str, Fetched]:
    """Return every file of `source` by its name, verified.

    With `data_dir`, all files must lie in that folder or in its subfolder named like the data
    set, each as `<name>.gz` or `<name>`; nothing is downloaded. Without it, what `cache` lacks
    is downloaded, and stored there once verified. `check` gets a local file's content and name
    before its checksum is taken, and may raise an OsoError that says more of what is wrong.

    Raises OsoError for a missing, truncated or wrong local file (which is left as it is), and
    if a file cannot be had from any mirror.
    """
    if data_dir is not None:
        folder = _local_folder(source, data_dir)
        return {file.name: _read_local(folder, file, source, check) for file in source.files}
    download(source, cache)
    return {file.name: _read_local(cache, file, source, check) for file in source.files}


def download(source: Source, cache: Path) -> None:
    """Store in `cache` what it lacks of `source`, verified; OsoError if no mirror has it."""
    for file in source.files:
        if _find(cache, file) is None:
            _download(source, file, cache)


def _find(folder: Path, file: SourceFile) -> Path | None:
    for name in (f"{file.name}.gz", file.name):
        if os.path.exists(folder / name):  # Path.exists raises where a folder is closed to us
            return folder / name
    return None


def _local_folder(source: Source, data_dir: Path) -> Path:
    if not os.path.isdir(data_dir):
        raise OsoError(f"data_dir {data_dir}: no such folder; it is to hold {_wanted(source)}")
    for folder in (data_dir / source.dataset, data_dir):
        if any(_find(folder, file) for file in source.files):
            return folder
    instead = ", or leave data_dir unset to download" if source.mirrors else ""
    raise OsoError(
        f"data_dir {data_dir}: no {source.dataset} file here or in {source.dataset}/; put there "
        f"{_wanted(source)}{instead}"
    )


def _read_local(folder: Path, file: SourceFile, source: Source, check: Check | None) -> Fetched:
    path = _find(folder, file)
    if path is None:
        raise OsoError(f"{folder / file.name}.gz: missing; the folder is to hold {_wanted(source)}")
    try:
        # Some more than the file's size, for a check to see what was added.
        content = unpacked(path.read_bytes(), file.size + (_SLACK if check else 1))
        if check is not None:
            check(content, str(path))
        return Fetched(verified(content, file), str(path))
    except OSError as error:
        raise OsoError(f"{path}: cannot read this file ({reason(error)})") from error
    except WrongContentError as error:
        raise OsoError(
            f"{path}: {error}; replace or remove it, it was left untouched (needed: the "
            f"{source.dataset} file of {file.size} bytes uncompressed, sha256 {file.sha256})"
        ) from error


def _wanted(source: Source) -> str:
    names = ", ".join(f"{file.name}.gz" for file in source.files)
    return f"{names} (or the same without .gz)"


def unpacked(raw: bytes, limit: int) -> bytes:
    """Return the content of a gzip file, or of a plain one; of the former, `limit` bytes at most.

    One byte more than expected is enough to know, whatever the file claims to hold.
    """
    if not raw.startswith(_GZIP):  # by its first bytes: browsers and servers unpack unasked
        return raw
    try:
        return gzip.GzipFile(fileobj=io.BytesIO(raw)).read(limit)
    except (EOFError, OSError, zlib.error) as error:
        raise WrongContentError(f"truncated or damaged gzip file ({reason(error)})") from error


def verified(content: bytes, file: SourceFile) -> bytes:
    """Return `content` if it is that of `file`."""
    if len(content) < file.size:
        raise WrongContentError(f"truncated file ({len(content)} of {file.size} bytes)")
    if len(content) > file.size:
        raise WrongContentError(f"wrong file (longer than {file.size} bytes)")
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise WrongContentError(f"wrong file (sha256 {digest})")
    return content


def _download(source: Source, file: SourceFile, cache: Path) -> None:
    """Store `file` in `cache` from the first mirror that has it."""
    failures: dict[str, str] = {}
    for attempt in range(TRIES if source.mirrors else 0):
        if attempt > 0:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        for mirror in source.mirrors:
            url = f"{mirror.rstrip('/')}/{file.name}{source.suffix}"
            _log.info("downloading %s", url)
            try:
                raw = _read_url(url, limit=file.size + _SLACK)
                verified(unpacked(raw, file.size + 1), file)
            except HTTPError as error:
                error.close()
                failures[mirror] = f"HTTP status {error.code}"
            except (WrongContentError, OSError, HTTPException) as error:
                failures[mirror] = reason(error)
            else:
                name = f"{file.name}.gz" if raw.startswith(_GZIP) else file.name
                with atomic_write(cache / name) as handle:
                    handle.write(raw)
                return
    why = "; ".join(f"{mirror}: {failure}" for mirror, failure in failures.items()) or "no mirror"
    raise OsoError(
        f"{source.dataset}: cannot download {file.name}{source.suffix} ({why}); put "
        f"{_wanted(source)} into a folder and name that folder with data_dir or the environment "
        "variable OSO_DATA_DIR"
    )


def _read_url(url: str, limit: int) -> bytes:
    """Return at most `limit` bytes of a URL; more than that is never the file asked for."""
    patience = PATIENCE * max(1, limit / LARGE)
    end = time.monotonic() + patience
    content = io.BytesIO()
    with open_url(url, TIMEOUT) as response:
        while chunk := response.read(min(1 << 16, limit - content.tell())):
            content.write(chunk)
            if time.monotonic() > end:
                raise TimeoutError(f"not finished after {patience:.0f} seconds")
    return content.getvalue()


def open_url(url: str, timeout: float) -> BinaryIO:
    """Open a URL for reading; the only way from this package to the network."""
    request = urllib.request.Request(url, headers={"User-Agent": f"oso/{__version__}"})
    return urllib.request.urlopen(request, timeout=timeout)
