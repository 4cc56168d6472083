"""Raw files from a local folder or downloaded from mirrors, verified by size and SHA-256.

The uncompressed content is verified, so a recompressed or already decompressed copy is accepted.
"""

import gzip
import hashlib
import io
import logging
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from oso_dp import __version__
from oso_dp.errors import OsoError
from oso_dp.files import format_os_error
from oso_dp.locks import only_writer

ROUNDS = 2  # attempts per mirror
TIMEOUT_SECONDS = 10.0  # without data
SPEED_SECONDS, MIN_SPEED = 60.0, 10e3  # minimum bytes per second, checked after this time
MAX_EXTRA_BYTES = 1 << 20  # a compressed file may be larger than its content by this
_CHUNK_BYTES = 4096  # small, since progress is checked per full chunk
_GZIP = b"\x1f\x8b"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceFile:
    """One raw file: its name, size in bytes and SHA-256, all uncompressed."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class DatasetSource:
    """A data set's files, and the URLs of mirrors, which have `<name><suffix>`."""

    dataset: str
    files: tuple[SourceFile, ...]
    mirrors: tuple[str, ...]
    suffix: str = ".gz"


@dataclass(frozen=True)
class Fetched:
    """Verified, uncompressed content and the path that it was read from."""

    content: bytes
    origin: str


class WrongContentError(Exception):
    """The content is not the requested file."""


def obtain(
    source: DatasetSource,
    data_dir: Path | None,
    cache: Path,
    check: Callable[[bytes, str], object] = lambda content, name: None,
) -> dict[str, Fetched]:
    """Return every file of `source` by its name, verified.

    Args:
        source: The files and their mirrors.
        data_dir: Folder with all files, directly or in its subfolder of the data set's name, each
            as `<name>.gz` or `<name>`; nothing is downloaded. None: download missing files to
            `cache`.
        cache: Folder for downloaded files.
        check: Called with each content and its path before the checksum is verified; may raise a
            more specific OsoError.

    Raises:
        OsoError: A local file is missing or wrong (it is not changed), or no mirror has a file.
    """
    if data_dir is None:
        download(source, cache)
    folder = cache if data_dir is None else _local_folder(source, data_dir)
    return {file.name: _read_local(folder, file, source, check) for file in source.files}


def download(source: DatasetSource, cache: Path) -> None:
    """Download missing files to `cache` and verify them; one process at a time."""
    if all(_find(cache, file) for file in source.files):
        return
    with only_writer(cache):
        for leftover in cache.glob(".download-*"):  # of a killed process
            shutil.rmtree(leftover, ignore_errors=True)
        for file in source.files:
            if _find(cache, file) is None:
                _download(source, file, cache)


def _download(source: DatasetSource, file: SourceFile, cache: Path) -> None:
    import pooch  # not needed by training jobs
    import requests

    pooch.get_logger().setLevel("WARNING")
    failures = {}
    for mirror in source.mirrors * ROUNDS:
        url = f"{mirror.rstrip('/')}/{file.name}{source.suffix}"
        _log.info("downloading %s", url)
        try:
            with tempfile.TemporaryDirectory(prefix=".download-", dir=cache) as folder:
                fetch = pooch.HTTPDownloader(
                    progressbar=_Limit(Path(folder), file.size + MAX_EXTRA_BYTES),
                    chunk_size=_CHUNK_BYTES,
                    timeout=TIMEOUT_SECONDS,
                    headers={"User-Agent": f"oso/{__version__}", "Accept-Encoding": "identity"},
                )
                path = Path(pooch.retrieve(url, None, "file", folder, downloader=fetch))
                name = f"{file.name}.gz" if _verify_file(path, file) else file.name
                with open(path, "rb") as handle:
                    os.fsync(handle.fileno())
                os.replace(path, cache / name)
                return
        except (requests.RequestException, WrongContentError, ValueError) as error:
            response = getattr(error, "response", None)
            failed = (
                format_os_error(error)
                if response is None
                else f"HTTP status {response.status_code}"
            )
            failures[mirror] = failed[:200]
            _log.info("%s: %s", url, failures[mirror])
        except OSError as error:
            raise OsoError(
                f"{cache}: cannot write {file.name} ({format_os_error(error)})"
            ) from error
    why = "; ".join(f"{mirror}: {failed}" for mirror, failed in failures.items()) or "no mirror"
    raise OsoError(
        f"{source.dataset}: cannot download {file.name}{source.suffix} ({why}); put "
        f"{_list_names(source)} into a folder, and set data_dir or the environment variable "
        "OSO_DATA_DIR to it"
    )


class _Limit:
    """A pooch progress bar that aborts a download that is too large or too slow."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit, self.began, self.total = folder, limit, time.monotonic(), 0

    def update(self, count: int) -> None:
        size = sum(path.stat().st_size for path in self.folder.iterdir())
        elapsed = time.monotonic() - self.began
        if max(size, self.total) > self.limit:
            raise WrongContentError(f"wrong file (longer than {self.limit} bytes)")
        if elapsed > SPEED_SECONDS and size < MIN_SPEED * elapsed:
            raise WrongContentError(f"too slow ({size} bytes in {elapsed:.0f} s)")

    def reset(self) -> None:
        """Called at the end, like `close`."""

    close = reset


def _find(folder: Path, file: SourceFile) -> Path | None:
    for name in (f"{file.name}.gz", file.name):
        if os.path.exists(folder / name):  # Path.exists raises without permission
            return folder / name
    return None


def _local_folder(source: DatasetSource, data_dir: Path) -> Path:
    names = _list_names(source)
    if not os.path.isdir(data_dir):
        raise OsoError(f"data_dir: {data_dir}; folder not found; must contain {names}")
    for folder in (data_dir / source.dataset, data_dir):
        if any(_find(folder, file) for file in source.files):
            return folder
    instead = ", or leave data_dir unset to download" if source.mirrors else ""
    problem = f"no {source.dataset} file here or in {source.dataset}/"
    raise OsoError(f"data_dir: {data_dir}; {problem}; add {names}{instead}")


def _read_local(
    folder: Path, file: SourceFile, source: DatasetSource, check: Callable[[bytes, str], object]
) -> Fetched:
    path = _find(folder, file)
    if path is None:
        names = _list_names(source)
        raise OsoError(f"{folder / file.name}.gz: missing; the folder must contain {names}")
    limit = file.size + MAX_EXTRA_BYTES
    try:
        raw = read_up_to(path, limit)
        content = unpacked(raw[:limit], limit)
        check(content, str(path))
        verify([content], file)
        return Fetched(content, str(path))
    except OSError as error:
        raise OsoError(f"{path}: cannot read file ({format_os_error(error)})") from error
    except WrongContentError as error:
        raise OsoError(
            f"{path}: {error}; must be the {source.dataset} file of {file.size} bytes "
            f"uncompressed, sha256 {file.sha256}; replace or remove it (it was not changed)"
        ) from error


def _list_names(source: DatasetSource) -> str:
    names = ", ".join(f"{file.name}.gz" for file in source.files)
    return f"{names} (or the same without .gz)"


def read_up_to(path: Path, limit: int) -> bytes:
    """A regular file's first `limit` + 1 bytes at most; OSError for another kind of file."""
    if not path.is_file():
        raise OSError("not a regular file")
    with open(path, "rb") as handle:
        return handle.read(min(limit, os.fstat(handle.fileno()).st_size) + 1)


def unpacked(raw: bytes, limit: int) -> bytes:
    """The content of a gzip file (at most `limit` bytes) or of a plain file."""
    if not raw.startswith(_GZIP):  # browsers and servers may decompress
        return raw
    try:
        return gzip.GzipFile(fileobj=io.BytesIO(raw)).read(limit)
    except (EOFError, OSError, zlib.error) as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> WrongContentError:
    return WrongContentError(f"truncated or damaged gzip file ({format_os_error(error)})")


def verify(chunks: Iterable[bytes], file: SourceFile) -> None:
    """WrongContentError unless the chunks are the content of `file`; stops at the first excess."""
    size, digest = 0, hashlib.sha256()
    for chunk in chunks:
        size += len(chunk)
        if size > file.size:
            raise WrongContentError(f"wrong file (longer than {file.size} bytes)")
        digest.update(chunk)
    if size < file.size:
        raise WrongContentError(f"truncated file ({size} of {file.size} bytes)")
    if digest.hexdigest() != file.sha256:
        raise WrongContentError(f"wrong file (sha256 {digest.hexdigest()})")


def _verify_file(path: Path, file: SourceFile) -> bool:
    """Whether the file is compressed; WrongContentError unless its content is that of `file`."""
    try:
        with open(path, "rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if packed else raw as stream:
                verify(iter(partial(stream.read, 1 << 20), b""), file)
        return packed
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(error) from error
