"""The archive: every file of the commit, described, with its checksum, the same each time."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

FILES = {
    "Snakefile": "rule all:\n",
    "LICENSE": "free\n",
    "results/runs.parquet": "PAR1",
    "run me": "#!/bin/sh\n",
}


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def commit(repo, tmp_path) -> Path:
    """A repository of five files and the script that packs it."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "run me").chmod(0o755)
    shutil.copy(repo / "CITATION.cff", tmp_path)
    (tmp_path / "scripts").mkdir()
    shutil.copy(repo / "scripts" / "artifact.py", tmp_path / "scripts")
    (tmp_path / ".gitignore").write_text("build/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "all", "--date", "2026-01-02T03:04:05+00:00")
    return tmp_path


def pack(folder: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "scripts/artifact.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def packed(folder: Path) -> Path:
    done = pack(folder)
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = (folder / "build" / "artifact").iterdir()
    assert done.stdout.startswith(f"build/artifact/{path.name}: ")
    return path


def test_artifact_contains_commit_with_checksums(commit, tmp_path_factory) -> None:
    (commit / "build").mkdir()
    (commit / "build" / "ignored").touch()
    path, out = packed(commit), tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(out)
    root = out / path.stem
    names = {str(one.relative_to(root)) for one in root.rglob("*") if one.is_file()}
    more = {"CITATION.cff", ".gitignore", "scripts/artifact.py"}
    assert names == {*FILES, *more, "SHA256SUMS", "ro-crate-metadata.json"}
    for name, text in FILES.items():
        assert (root / name).read_text() == text
    checked = ["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"]
    subprocess.run(checked, cwd=root, check=True)
    sums = (root / "SHA256SUMS").read_text().splitlines()
    assert {line.split("  ", 1)[1] for line in sums} == names - {"SHA256SUMS"}


def test_artifact_reproducible_and_keeps_modes(commit) -> None:
    path = packed(commit)
    first = path.read_bytes()
    modes = {
        entry.filename.split("/", 1)[1]: entry.external_attr >> 16 & 0o777
        for entry in zipfile.ZipFile(path).infolist()
    }
    assert modes["run me"] == 0o755
    assert modes["LICENSE"] == 0o644
    assert packed(commit).read_bytes() == first


def test_artifact_uncommitted_changes_rejected(commit) -> None:
    (commit / "LICENSE").write_text("changed\n")
    done = pack(commit)
    assert done.returncode == 1
    assert done.stderr == ("artifact: the checkout has uncommitted changes; commit them first\n")
    assert not (commit / "build").exists()
