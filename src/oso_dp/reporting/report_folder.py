"""Write a report into a folder without overwriting other files.

`manifest.json` names the report's results folder (store) and lists the written files with their
checksums. A report is written only to a new folder, or to one that contains only the previous
report of the same store, which it replaces. Hidden files, and subfolders with their own report,
are kept.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, check_regular, format_os_error, make_folder, parse_json
from oso_dp.locks import only_writer

MANIFEST = "manifest.json"
_BESIDE = "-report"
_REMEDY = "pass another folder, or move this one away first"


def default_folder(store: Path) -> Path:
    """The default folder of a store's report: next to the store, with the suffix `-report`."""
    named = store if store.name not in ("", "..") else Path(os.path.abspath(store))
    return named.with_name(f"{named.name}{_BESIDE}")


@dataclass(frozen=True)
class Manifest:
    """The manifest of a report's folder."""

    store: str  # path of the results relative to the folder, so that both can be moved together
    # Each file's checksum; old and new ones while a report is being written.
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        files = {name: sums[0] if len(sums) == 1 else sums for name, sums in self.files.items()}
        content = {"store": self.store, "files": dict(sorted(files.items()))}
        with atomic_write(folder / MANIFEST) as file:
            file.write((json.dumps(content, indent=1) + "\n").encode())


class ReportFolder:
    """Collects a report's files until all are made, then writes them below one folder.

    Each file is written atomically: a reader sees the old or the new one.
    """

    def __init__(self, folder: Path, store: Path) -> None:
        """Raise OsoError if the folder is not writable or contains other files than the previous
        report of the store."""
        self.folder = Path(folder)
        self.store = _relative_path(self.folder, store)
        self.content: dict[str, bytes] = {}
        _previous_files(self.folder, self.store)
        make_folder(self.folder)

    def write(self, name: str, content: str | bytes) -> Path:
        """Add the file `name` (relative, with `/`), which `finish` writes; returns its path.

        Raises OsoError for a name outside the folder.
        """
        path = self.folder / name
        if not os.path.abspath(path).startswith(os.path.abspath(self.folder) + os.sep):
            raise OsoError(f"{name}: not the name of a file below {self.folder}")
        self.content[name] = content.encode("utf-8") if isinstance(content, str) else content
        return path

    def finish(self) -> None:
        """Write the report and remove files that only the previous one had.

        The next report can continue after an interruption here.
        """
        with only_writer(self.folder):
            last = _previous_files(self.folder, self.store)
            new = {name: (_checksum(content),) for name, content in self.content.items()}
            for name in new.keys() - last.keys():
                if os.path.lexists(self.folder / name):
                    raise OsoError(
                        f"{self.folder}: {name} is not a file of the report in it; {_REMEDY}"
                    )
            both = {name: last.get(name, ()) + new.get(name, ()) for name in last | new}
            Manifest(self.store, both).write(self.folder)
            for name, content in self.content.items():
                with atomic_write(self.folder / name) as file:
                    file.write(content)
            for name in last.keys() - new.keys():
                (self.folder / name).unlink(missing_ok=True)
            Manifest(self.store, new).write(self.folder)


def check_place(folder: Path, store: Path) -> None:
    """Raise OsoError if a report of this store must not be written to the folder."""
    _previous_files(Path(folder), _relative_path(Path(folder), store))


def publish(source: Path, target: Path) -> None:
    """Copy the report in `source` to `target`; raises OsoError like `ReportFolder`."""
    last = _read(source)
    if last is None:
        raise OsoError(f"{source}: contains no report; `oso report` writes one")
    folder = ReportFolder(target, source / last.store)
    for name in last.files:
        folder.write(name, _content(source / name))
    folder.finish()


def _relative_path(folder: Path, store: Path) -> str:
    path = os.path.relpath(os.path.realpath(store), os.path.realpath(folder))
    return Path(path).as_posix()


def _previous_files(folder: Path, store: str) -> dict[str, tuple[str, ...]]:
    """Files of the store's previous report; raises OsoError if the folder contains others."""
    if not folder.is_dir():
        return {}
    last = _read(folder)
    other = next((name for name in _files(folder) if name != MANIFEST), None)
    if other is None:
        return {}  # nothing to lose
    if last is None:
        raise OsoError(f"{folder}: contains other files ({other}) and no report of oso; {_REMEDY}")
    present = sorted(_files(folder))
    if last.store != store:
        of = os.path.normpath(folder / last.store)
        raise OsoError(f"{folder}: contains the report of {of}; {_REMEDY}")
    for name in present:
        if name == MANIFEST:
            continue
        if name not in last.files:
            raise OsoError(f"{folder}: {name} is not a file of the report in it; {_REMEDY}")
        if _checksum(_content(folder / name)) not in last.files[name]:
            raise OsoError(f"{folder}: {name} was changed since the report was written; {_REMEDY}")
    return {name: last.files[name] for name in present if name in last.files}


def _files(folder: Path, below: str = "") -> Iterator[str]:
    """Names of all files except hidden ones and those of reports in subfolders."""
    for entry in sorted(os.scandir(folder / below), key=lambda entry: entry.name):
        name = f"{below}{entry.name}"
        if entry.name.startswith("."):
            continue
        if not entry.is_dir(follow_symlinks=False):
            yield name
        elif not (folder / name / MANIFEST).is_file():
            yield from _files(folder, f"{name}/")


def _read(folder: Path) -> Manifest | None:
    """The manifest; None if it is missing or malformed."""
    check_regular(folder / MANIFEST)
    try:
        stored = parse_json((folder / MANIFEST).read_text(encoding="utf-8"))
        files = stored["files"].items()
        sums = {n: (s,) if isinstance(s, str) else tuple(map(str, s)) for n, s in files}
        return Manifest(str(stored["store"]), sums)
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        return None


def _content(path: Path) -> bytes:
    check_regular(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise OsoError(f"{path}: cannot be read ({format_os_error(error)})") from None


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
