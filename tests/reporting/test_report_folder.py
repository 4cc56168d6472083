"""A report's folder: only the last report of the same store is ever replaced."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from oso_dp.errors import OsoError
from oso_dp.reporting.report_folder import (
    MANIFEST,
    ReportFolder,
    check_place,
    default_folder,
    publish,
)


def write(folder: Path, store: Path, **texts: str) -> None:
    """A report of these files."""
    report = ReportFolder(folder, store)
    for name, text in texts.items():
        report.write(f"tables/{name}.md", text)
    report.finish()


def content(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in (MANIFEST, ".lock")
    }


@pytest.fixture
def report(tmp_path) -> Path:
    write(tmp_path / "report", tmp_path / "store", a="one", b="two")
    return tmp_path / "report"


def refuses(folder: Path, store: Path, *parts: str) -> None:
    """In one line, and nothing is changed."""
    before = content(folder)
    for place in (check_place, ReportFolder):
        with pytest.raises(OsoError) as error:
            place(folder, store)
        for part in (str(folder), *parts):
            assert part in str(error.value)
        assert "\n" not in str(error.value)
    assert content(folder) == before


def test_report_folder_replaces_previous_report(report, tmp_path) -> None:
    write(report, tmp_path / "store", b="three", c="four")
    assert content(report) == {"tables/b.md": "three", "tables/c.md": "four"}
    assert list(json.loads((report / MANIFEST).read_text())["files"]) == [
        *("tables/b.md", "tables/c.md"),
    ]


def test_report_folder_other_store_rejected(report, tmp_path) -> None:
    refuses(report, tmp_path / "other", "contains the report of", str(tmp_path / "store"))


def test_report_folder_manifest_without_store_rejected(report, tmp_path) -> None:
    files = json.loads((report / MANIFEST).read_text())["files"]
    (report / MANIFEST).write_text(json.dumps(files))
    refuses(report, tmp_path / "store", "no report of oso")


@pytest.mark.parametrize("name", ["index.html", "notes.txt", "tables/mine.md", "deep/er/x"])
def test_report_folder_foreign_file_rejected(report, tmp_path, name) -> None:
    for folder in (report, tmp_path / "elsewhere"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
        refuses(folder, tmp_path / "store", name)


def test_report_folder_changed_file_rejected(report, tmp_path) -> None:
    (report / "tables/a.md").write_text("mine")
    refuses(report, tmp_path / "store", "tables/a.md was changed")


@pytest.mark.parametrize("manifest", ["[]", "{", '{"files": 3}', '{"store": 1}', "", "[1, 2]"])
def test_report_folder_invalid_manifest_rejected(report, tmp_path, manifest) -> None:
    (report / MANIFEST).write_text(manifest)
    refuses(report, tmp_path / "store")


def test_report_folder_outside_file_kept(tmp_path) -> None:
    outside = tmp_path / "outside.md"
    write(tmp_path / "report", tmp_path / "store", a="one")
    outside.write_text("precious")
    stored = json.loads((tmp_path / "report" / MANIFEST).read_text())
    stored["files"]["../outside.md"] = hashlib.sha256(b"precious").hexdigest()
    (tmp_path / "report" / MANIFEST).write_text(json.dumps(stored))
    write(tmp_path / "report", tmp_path / "store", b="two")
    assert outside.read_text() == "precious"


@pytest.mark.parametrize("name", ["../x", "tables/../../x", "/tmp/oso-x", ".", "a/.."])
def test_report_folder_outside_name_rejected(tmp_path, name) -> None:
    with pytest.raises(OsoError, match="not the name of a file below"):
        ReportFolder(tmp_path / "report", tmp_path).write(name, "x")


def test_report_folder_hidden_and_nested_kept(report, tmp_path) -> None:
    (report / ".gitkeep").write_text("")
    write(report / "demo", tmp_path / "other", a="demo's")
    write(report, tmp_path / "store", d="new")
    assert content(report) == {"tables/d.md": "new", ".gitkeep": "", "demo/tables/a.md": "demo's"}


def test_report_folder_moved_with_store_accepted(report, tmp_path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "moved").mkdir()
    for name in ("report", "store"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    write(tmp_path / "moved/report", tmp_path / "moved/store", c="new")


def test_report_folder_interrupted_report_accepted(report, tmp_path, monkeypatch) -> None:
    """A report that is interrupted at any of its writes can be written again."""
    real = os.replace
    for moment in range(6):
        left = iter(range(moment))

        def replace(*names, left=left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            real(*names)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            try:
                write(report, tmp_path / "store", b=f"new {moment}", c="more")
            except KeyboardInterrupt:
                pass
            else:
                break
        check_place(report, tmp_path / "store")
    assert moment == 4  # manifest, b, c, manifest
    write(report, tmp_path / "store", b="last")
    assert content(report) == {"tables/b.md": "last"}


def test_publish_copies_same_store_only(report, tmp_path) -> None:
    publish(report, tmp_path / "deep/er/public")
    assert content(tmp_path / "deep/er/public") == content(report)
    check_place(tmp_path / "deep/er/public", tmp_path / "store")
    publish(report, tmp_path / "deep/er/public")
    write(tmp_path / "others", tmp_path / "other", a="one")
    with pytest.raises(OsoError, match="contains the report of"):
        publish(report, tmp_path / "others")
    with pytest.raises(OsoError, match="contains no report"):
        publish(tmp_path / "store", tmp_path / "new")


@pytest.mark.parametrize(
    ("store", "folder"),
    [("results", "results-report"), ("a/b/results/", "a/b/results-report"), ("/x", "/x-report")],
)
def test_default_folder_beside_store(store, folder) -> None:
    assert default_folder(Path(store)) == Path(folder)


def test_default_folder_dot_path_resolved(tmp_path, monkeypatch) -> None:
    (tmp_path / "store/in").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "store")
    assert default_folder(Path(".")) == tmp_path / "store-report"
    monkeypatch.chdir(tmp_path / "store/in")
    assert default_folder(Path("..")) == tmp_path / "store-report"


def test_check_place_repository_report_accepted(repo) -> None:
    """`reports/` is a valid place for the report of `results/`."""
    check_place(repo / "reports", repo / "results")
