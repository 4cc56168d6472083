"""Before Snakemake works on a study: nobody else does, and no receipt is for what is gone."""

from pathlib import Path

import pytest

from oso_dp.errors import OsoError
from oso_dp.study.workflow import begin

TABLES = ("runs", "evaluations")


@pytest.fixture
def study(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Folders of a study that was collected: build, store, Snakemake's locks."""
    build, store, locks = (tmp_path / name for name in ("build/mine", "store", "locks"))
    for folder in (build, store, locks):
        folder.mkdir(parents=True)
    (build / "collected.txt").write_text("2 runs")
    for name in TABLES:
        (store / f"{name}.parquet").touch()
    return build, store, locks


def test_a_receipt_of_what_is_there_stays(study) -> None:
    build, store, locks = study
    begin(build, store, TABLES, locks, ["snakemake", "--cores", "2"])
    assert (build / "collected.txt").exists()


@pytest.mark.parametrize("gone", TABLES)
def test_a_receipt_goes_with_either_table(study, gone: str) -> None:
    build, store, locks = study
    (store / f"{gone}.parquet").unlink()
    for only_looking in ("-n", "-np", "--dry-run", "--dryrun", "--lint", "--unlock"):
        begin(build, store, TABLES, locks, ["snakemake", only_looking])
    assert (build / "collected.txt").exists()
    begin(build, store, TABLES, locks, ["snakemake", "--cores", "2"])
    assert not (build / "collected.txt").exists()
    begin(build, store, TABLES, locks, ["snakemake", "--cores", "2"])


def test_another_snakemake_on_this_study_is_waited_for(study) -> None:
    build, store, locks = study
    (locks / "0.input.lock").write_text(f"{build.parent}/other/plan.json\n")
    begin(build, store, TABLES, locks, ["snakemake"])
    (locks / "0.output.lock").write_text(f"{build}/plan.json\n")
    with pytest.raises(OsoError, match="another snakemake is at work on this study"):
        begin(build, store, TABLES, locks, ["snakemake"])
    begin(build, store, TABLES, locks, ["snakemake", "-n"])


def test_the_reports_receipt_goes_with_its_page(study, tmp_path) -> None:
    build, store, locks = study
    page = tmp_path / "reports/index.html"
    page.parent.mkdir()
    page.touch()
    (build / "published.txt").touch()
    assert begin(build, store, TABLES, locks, ["snakemake"], page)
    assert (build / "published.txt").exists()
    page.unlink()
    assert not begin(build, store, TABLES, locks, ["snakemake", "-n"], page)
    assert (build / "published.txt").exists()
    begin(build, store, TABLES, locks, ["snakemake"], page)
    assert not (build / "published.txt").exists()
