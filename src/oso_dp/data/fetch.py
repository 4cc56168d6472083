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
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from oso_dp.data.transfer import BrokenError, WrongContentError, transfer
from oso_dp.errors import OsoError
from oso_dp.files import reason
from oso_dp.locks import only_writer

TRIES = 3  # rounds over the mirrors
PAUSE = 1.0  # seconds before the second round, doubled before each further one
# Seconds without a byte after which a file is given up, for all its mirrors together: with a rest
# for all else, a network that hangs is known in 20 s. It starts anew whenever a mirror got further.
SILENCE = 18.0
_GZIP = b"\x1f\x8b"
_PIECE = 1 << 20  # bytes of which a checksum is taken at once
_PARTIAL = ".part"  # ends the names of files that are not yet whole
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
    """Store in `cache` what it lacks of `source`, verified; OsoError if no mirror has it.

    What came of a file before it was cut off stays in the cache, as a hidden file that no reader
    takes, and is continued. One process at a time downloads to a cache; others wait for it.
    """
    if all(_find(cache, file) for file in source.files):
        return
    with only_writer(cache):
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
        raw = read_up_to(path, file.size + _SLACK)
        if len(raw) > file.size + _SLACK:
            raise WrongContentError(f"wrong file (longer than {file.size} bytes)")
        # Some more than the file's size, for a check to see what was added.
        content = unpacked(raw, file.size + (_SLACK if check else 1))
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


def read_up_to(path: Path, limit: int) -> bytes:
    """A regular file's first `limit` bytes, and one more if it has any; OSError otherwise."""
    if not path.is_file():
        raise OSError("not a regular file")
    with open(path, "rb") as handle:
        return handle.read(min(limit, os.fstat(handle.fileno()).st_size) + 1)


def unpacked(raw: bytes, limit: int) -> bytes:
    """Return the content of a gzip file, or of a plain one; of the former, `limit` bytes at most.

    One byte more than expected is enough to know, whatever the file claims to hold.
    """
    if not raw.startswith(_GZIP):  # by its first bytes: browsers and servers unpack unasked
        return raw
    try:
        return gzip.GzipFile(fileobj=io.BytesIO(raw)).read(limit)
    except (EOFError, OSError, zlib.error) as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> WrongContentError:
    return WrongContentError(f"truncated or damaged gzip file ({reason(error)})")


def verified(content: bytes, file: SourceFile) -> bytes:
    """Return `content` if it is that of `file`."""
    _verify([content], file)
    return content


def _verify(pieces: Iterable[bytes], file: SourceFile) -> None:
    """WrongContentError unless the pieces are the content of `file`; reads no more than needed."""
    size, digest = 0, hashlib.sha256()
    for piece in pieces:
        size += len(piece)
        if size > file.size:
            raise WrongContentError(f"wrong file (longer than {file.size} bytes)")
        digest.update(piece)
    if size < file.size:
        raise WrongContentError(f"truncated file ({size} of {file.size} bytes)")
    if digest.hexdigest() != file.sha256:
        raise WrongContentError(f"wrong file (sha256 {digest.hexdigest()})")


def _download(source: Source, file: SourceFile, cache: Path) -> None:
    """Store `file` in `cache` from the first mirror that has it."""
    failures: dict[str, str] = {}
    silence = SILENCE  # what is left of it
    for attempt in range(TRIES if source.mirrors else 0):
        if attempt > 0:
            pause = PAUSE * 2 ** (attempt - 1)
            time.sleep(pause)
            silence -= pause
        for number, mirror in enumerate(source.mirrors):
            url = _url(source, file, mirror)
            path = partial_path(cache, file, url)
            held = _size(path)
            share = silence / (len(source.mirrors) - number)
            if held:
                _log.info("downloading %s, from byte %d on", url, held)
            else:
                _log.info("downloading %s", url)
            try:
                transfer(url, path, file.size + _SLACK, share)
                packed = _verify_file(path, file)
            except BrokenError as error:
                failures[mirror] = str(error)
                if _size(path) > held:
                    silence = SILENCE
                silence -= min(error.waited, share)
            except WrongContentError as error:
                failures[mirror] = str(error)
                path.unlink(missing_ok=True)
            else:
                _store(path, cache / (f"{file.name}.gz" if packed else file.name))
                for other in source.mirrors:
                    partial_path(cache, file, _url(source, file, other)).unlink(missing_ok=True)
                return
            if not _size(path):
                path.unlink(missing_ok=True)
            _log.info("%s: %s", url, failures[mirror])
        if silence <= PAUSE * 2**attempt:
            break
    why = "; ".join(f"{mirror}: {failure}" for mirror, failure in failures.items()) or "no mirror"
    raise OsoError(
        f"{source.dataset}: cannot download {file.name}{source.suffix} ({why}); put "
        f"{_wanted(source)} into a folder and name that folder with data_dir or the environment "
        "variable OSO_DATA_DIR"
    )


def _url(source: Source, file: SourceFile, mirror: str) -> str:
    return f"{mirror.rstrip('/')}/{file.name}{source.suffix}"


def partial_path(cache: Path, file: SourceFile, url: str) -> Path:
    """Where the parts of a file lie until it is whole: two mirrors' bytes need not be the same."""
    return cache / f".{file.name}.{hashlib.sha256(url.encode()).hexdigest()[:8]}{_PARTIAL}"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _verify_file(path: Path, file: SourceFile) -> bool:
    """Whether the file is packed; WrongContentError unless its content is that of `file`."""
    try:
        with open(path, "rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if packed else raw as stream:
                _verify(iter(partial(stream.read, _PIECE), b""), file)
        return packed
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(error) from error
    except OSError as error:
        raise OsoError(f"{path}: cannot read this file ({reason(error)})") from error


def _store(path: Path, name: Path) -> None:
    """Give a verified file its name."""
    try:
        with open(path, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(path, name)
    except OSError as error:
        raise OsoError(f"{name}: cannot write this file ({reason(error)})") from error
