"""Before Snakemake works on a study: nobody else does, and no receipt is for what is gone."""

import platform
import re
from pathlib import Path

import pytest

from oso_dp.errors import OsoError
from oso_dp.snakemake_support.preflight import check_before_start, check_folders
from oso_dp.snakemake_support.study_lock import is_locked

ONLY_LOOKING = (
    *("-n", "-np", "--dry-run", "--dryrun"),
    *("--lint", "--unlock", "--report", "--report=page.html", "--dag", "--summary"),
    *("--d3dag", "--rulegraph", "--filegraph", "--detailed-summary", "-S", "-D"),
    *("-l", "--list", "--list-rules", "--list-untracked", "--list-input-changes"),
)


@pytest.fixture
def study(tmp_path: Path) -> tuple[Path, Path]:
    """Folders of a study that was collected: build, Snakemake's locks."""
    build, locks = (tmp_path / name for name in ("build/mine", "locks"))
    for folder in (build, locks):
        folder.mkdir(parents=True)
    (build / "collected.txt").write_text("2 runs")
    return build, locks


def test_check_before_start_stored_receipt_kept(study) -> None:
    build, locks = study
    check_before_start(build, locks, ["snakemake", "--cores", "2"])
    assert (build / "collected.txt").exists()


def test_check_before_start_stale_receipt_removed(study) -> None:
    build, locks = study
    for only_looking in ONLY_LOOKING:
        check_before_start(build, locks, ["snakemake", only_looking], is_stored=False)
    assert (build / "collected.txt").exists()
    check_before_start(build, locks, ["snakemake", "--cores", "2"], is_stored=False)
    assert not (build / "collected.txt").exists()


def test_check_before_start_running_study_rejected(study) -> None:
    build, locks = study
    first = check_before_start(build, locks, ["snakemake"])
    (locks / "0.output.lock").write_text(f"{build}/plan.json\n")
    with pytest.raises(OsoError, match="another snakemake works on this study"):
        check_before_start(build, locks, ["snakemake"])
    for only_looking in ONLY_LOOKING:
        assert check_before_start(build, locks, ["snakemake", only_looking]) is None
    assert is_locked(first.path)
    first.release()
    assert not is_locked(first.path)


def test_check_before_start_stale_locks_removed(study) -> None:
    build, locks = study
    check_before_start(build, locks, ["snakemake"]).release()  # as the system does
    ours, other = locks / "0.output.lock", locks / "1.output.lock"
    ours.write_text(f"{build}/plan.json\n")
    other.write_text(f"{build.parent}/other/plan.json\n")
    check_before_start(build, locks, ["snakemake"])
    assert not ours.exists()
    assert other.exists()


@pytest.mark.parametrize("state", ["ended", "running", "elsewhere"])
def test_check_before_start_lock_of_other_study(study, state) -> None:
    """Only one that ended on this machine has left its lock behind, and that of the shared data."""
    build, locks = study
    other = build.parent / "other"
    running = check_before_start(other, locks, ["snakemake"])
    if state != "running":
        running.release()
    if state == "elsewhere":
        (other / ".leader-host").write_text("elsewhere")
    lock = locks / "0.output.lock"
    lock.write_text(f"{other}/plan.json\n{build.parent}/data/mnist.npz\n")
    check_before_start(build, locks, ["snakemake"])
    assert lock.exists() is (state != "ended")


@pytest.mark.parametrize("host", ["elsewhere", None])
def test_check_before_start_foreign_lock_rejected(study, host) -> None:
    build, locks = study
    if host is not None:
        (build / ".leader-host").write_text(host)
    lock = locks / "0.output.lock"
    lock.write_text(f"{build}/plan.json\n")
    for _ in range(2):  # the first refusal must not make it ours
        with pytest.raises(OsoError, match=f"a snakemake on {host or 'another machine'}.*--unlock"):
            check_before_start(build, locks, ["snakemake"])
    assert lock.exists()


def test_check_before_start_published_receipt_removed(study, tmp_path) -> None:
    build, locks = study
    page = tmp_path / "reports/index.html"
    page.parent.mkdir()
    page.touch()
    (build / "published.txt").touch()
    assert check_before_start(build, locks, ["snakemake"], page)
    assert (build / "published.txt").exists()
    page.unlink()
    assert not check_before_start(build, locks, ["snakemake", "-n"], page)
    assert (build / "published.txt").exists()
    check_before_start(build, locks, ["snakemake"], page)
    assert not (build / "published.txt").exists()


@pytest.mark.parametrize("name", ["mine2", "mine_again", "mine.old", "not/mine2"])
def test_check_before_start_similar_name_kept(study, name: str) -> None:
    build, locks = study
    check_before_start(build, locks, ["snakemake"]).release()
    other = locks / "0.output.lock"
    other.write_text(f"{build.parent / name}/plan.json\n")
    check_before_start(build, locks, ["snakemake"]).release()
    assert other.exists()


@pytest.mark.parametrize("before", ["elsewhere", None, "here"])
def test_check_before_start_host_updated(study, before) -> None:
    build, locks = study
    if before is not None:
        (build / ".leader-host").write_text(before.replace("here", platform.node()))
    check_before_start(build, locks, ["snakemake"]).release()
    assert (build / ".leader-host").read_text() == platform.node()
    lock = locks / "0.output.lock"
    lock.write_text(f"{build}/plan.json\n")
    check_before_start(build, locks, ["snakemake"]).release()
    assert not lock.exists()


@pytest.mark.parametrize("kind", ["results", "report"])
@pytest.mark.parametrize("place", ["build/mine/parts", "build/data", "link"])
def test_check_folders_working_folder_rejected(kind, place, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("build/mine/benchmarks").mkdir(parents=True)
    Path("link").symlink_to("build/mine/benchmarks")
    folders = {"results": Path("results"), "report": Path("reports"), kind: Path(place)}
    with pytest.raises(OsoError, match=f"^{kind}: {place}; must not be in build/"):
        check_folders(Path("build/mine"), **folders)


@pytest.mark.parametrize(
    ("results", "report", "held"),
    [
        ("reports/x", "reports", "reports/x"),
        ("kept", "build/mine", "build/mine/parts"),
        ("kept", ".", "kept"),
    ],
)
def test_check_folders_enclosing_report_rejected(
    results, report, held, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OsoError, match=f"^report: {re.escape(report)}; must not contain {held},"):
        check_folders(Path("build/mine"), Path(results), Path(report))


@pytest.mark.parametrize(
    ("results", "report"),
    [
        ("results", "reports"),
        ("build/mine/results", "build/mine/published"),
        ("build/other", "build/other/report"),
        ("build", "reports"),
    ],
)
def test_check_folders_apart_passes(results, report, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_folders(Path("build/mine"), Path(results), Path(report))
