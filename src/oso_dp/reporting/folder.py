"""Writing a report into a folder that may hold other people's files.

`manifest.json` lists what the last report wrote, with checksums. A file of the last report that
the new one does not write again is removed if it is unchanged; nothing else is ever deleted.
"""

import hashlib
import json
from pathlib import Path

from oso_dp.files import atomic_write, make_folder

MANIFEST = "manifest.json"


class ReportFolder:
    """Writes files below one folder, each at once: a reader sees the old or the new one."""

    def __init__(self, folder: Path) -> None:
        """Raises OsoError where the folder cannot be made or written to."""
        self.folder = Path(folder)
        self.written: dict[str, str] = {}
        make_folder(self.folder)

    def write(self, name: str, content: str | bytes) -> Path:
        """Write `name` (relative, with `/`) atomically; OsoError where that fails."""
        data = content.encode("utf-8") if isinstance(content, str) else content
        path = self.folder / name
        with atomic_write(path) as file:
            file.write(data)
        self.written[name] = hashlib.sha256(data).hexdigest()
        return path

    def finish(self) -> None:
        """Remove what only the last report wrote, and write the new manifest."""
        for name, checksum in self._last().items():
            path = self.folder / name
            inside = path.resolve().is_relative_to(self.folder.resolve())
            if name in self.written or not inside or not path.is_file():
                continue
            if hashlib.sha256(path.read_bytes()).hexdigest() == checksum:
                path.unlink()
        files = dict(sorted(self.written.items()))
        self.write(MANIFEST, json.dumps(files, indent=1) + "\n")

    def _last(self) -> dict[str, str]:
        try:
            stored = json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}  # no earlier report, or not ours to judge: delete nothing
        if not isinstance(stored, dict):
            return {}
        return {name: value for name, value in stored.items() if isinstance(value, str)}
