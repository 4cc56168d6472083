"""The study through Snakemake itself, in a folder of its own."""

import csv
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from oso_dp.analysis import search_costs
from oso_dp.results.read import read_results
from oso_dp.study.config import StudyConfig, load_config
from oso_dp.study.plan import make_plan_with_noise, write_plan

BIN = Path(sys.executable).parent


@pytest.fixture
def snakemake(repo, tmp_path):
    """Run Snakemake on this repository's Snakefile in an empty folder: the finished process."""

    def run(config: str, *arguments: str, start: bool = False):
        command = [
            str(BIN / "snakemake"), "--cores", "2", "--snakefile", str(repo / "Snakefile"),
            "--directory", str(tmp_path), "--configfile", str(repo / "config" / f"{config}.yaml"),
            *arguments,
        ]  # fmt: skip
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        if start:
            return subprocess.Popen(command, start_new_session=True, **pipes)
        return subprocess.run(command, check=False, **pipes)

    return run


def our_lines(process) -> list[str]:
    return [line for line in process.stdout.splitlines() if line.startswith("oso: error:")]


def said(process) -> list[str]:
    """The lines of a process, without Snakemake's own about the profile that it reads."""
    lines = process.stdout.splitlines()
    profile = [line for line in lines if line.startswith("Using workflow specific profile")]
    assert len(profile) == 1
    return [line for line in lines if line not in profile]


def files(folder: Path) -> list[str]:
    """Everything below the folder but Snakemake's own, and locks."""
    every = (path for path in folder.rglob("*") if path.is_file() and path.name != ".leader")
    paths = [path.relative_to(folder) for path in every]
    return sorted(str(path) for path in paths if path.parts[0] != ".snakemake")


def wait_for(folder: Path, pattern: str) -> None:
    deadline = time.monotonic() + 300
    while not any(path.is_file() for path in folder.rglob(pattern)):
        assert time.monotonic() < deadline, f"no {pattern} in {folder}"
        time.sleep(0.02)


def made_up_prices(config: StudyConfig, folder: Path, monkeypatch) -> Path:
    """A file of what each search of a study costs, for its store: 42.5."""
    write_plan(make_plan_with_noise(config, defaultdict(lambda: 1.5)), folder / "plan.json")
    monkeypatch.setattr(search_costs, "_noise_multiplier", lambda *_: 42.5)
    search_costs.write_costs(folder / "plan.json", folder / "search_noise.csv")
    return folder / "search_noise.csv"


RESULTS = "a  b $(touch ran) `touch ran` ; touch ran & 'x' \"y\" --plan *"
REPORT = "my $HOME report's"  # in the home folder


@pytest.fixture
def prices(repo, tmp_path, monkeypatch) -> Path:
    """What the smallest study's searches cost, made up: computing them takes half a minute."""
    config = load_config(repo / "config/ci/smoke.yaml")
    return made_up_prices(config, tmp_path / "prices", monkeypatch)


def test_the_smallest_study_from_nothing_to_a_page(
    snakemake, prices, tmp_path, monkeypatch
) -> None:
    """In folders named with blanks, quotes, commands, options; and ~ is home to everybody."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    store, page = tmp_path / RESULTS, tmp_path / "home" / REPORT / "index.html"
    store.mkdir()
    shutil.move(prices, store)
    folders = (f"results={RESULTS}", f"report=~/{REPORT}")

    def study(*arguments: str, **options):
        return snakemake("ci/smoke", *arguments, "--config", *folders, **options)

    first = study(start=True)
    try:
        wait_for(tmp_path / ".snakemake/incomplete", "*")
        second = study()
        looked = study("-n", "--quiet")
    finally:
        output = first.communicate(timeout=600)[0]
    assert first.returncode == 0, output
    # A second one on the same study is refused.
    assert second.returncode == 1, second.stdout
    assert len(said(second)) == 1
    assert "build/smoke: another snakemake works on" in second.stdout
    # Looking is allowed meanwhile, also while a job's files are half-written.
    assert looked.returncode == 0, looked.stdout

    assert "2 private runs in 1 cohort and 2 NoDP runs in 1" in output
    assert set(read_results(store).runs["method"]) == {"online", "no_dp"}
    assert "<html" in page.read_text()
    assert "not MNIST" in page.read_text()
    with (tmp_path / "build/smoke/report/tables/search_cost.csv").open() as file:
        assert {row["noise_multiplier"] for row in csv.DictReader(file)} == {"42.5"}
    assert not any(Path(name).name == "ran" for name in files(tmp_path))
    ours = {RESULTS, "home", "build", ".snakemake", "prices"}
    assert {path.name for path in tmp_path.iterdir()} == ours

    before = {name: (tmp_path / name).stat().st_mtime for name in files(tmp_path)}
    again = study()
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout
    assert {name: (tmp_path / name).stat().st_mtime for name in files(tmp_path)} == before

    # A store that is gone is collected again, from the parts.
    shutil.rmtree(store)
    assert study("--until", "collect").returncode == 0
    assert len(read_results(store).runs) == 4

    # Another seed trains what is new and keeps what is there.
    folders += ("seeds=[0,1]",)
    more = study("--until", "collect")
    assert more.returncode == 0, more.stdout
    assert len(read_results(store).runs) == 8
    parts = tmp_path / "build/smoke/parts/glyphs.online.k2.eps3/shard0"
    assert set(read_results(parts).runs["seed"]) == {1}


def test_the_papers_study_is_counted_in_seconds(snakemake) -> None:
    began = time.monotonic()
    ahead = snakemake("paper", "--dry-run", "--quiet")
    seconds = time.monotonic() - began
    assert ahead.returncode == 0, ahead.stdout
    assert "18,120 private runs in 144 cohorts and 315 NoDP runs in 9" in ahead.stdout
    assert seconds < 30  # 4 to 8 s alone on 2 cores; here other tests may run beside it


def test_a_spot_check_is_one_point_per_cell(snakemake) -> None:
    """On each data set four epsilons, four methods, three k, five seeds; and NoDP's three.

    Less FixedQuantile's three cells on Fashion-MNIST that the paper prints as "-".
    """
    ahead = snakemake("paper/best_points", "--dry-run", "--quiet")
    assert "705 private runs in 141 cohorts and 45 NoDP runs in 9" in ahead.stdout


def test_texts_have_a_file_for_each_way_of_preparing_them(snakemake) -> None:
    """Two studies with different words must not train on one file."""
    model = "datasets={ag_news_partial: {model: bag_of_words_25}}"
    ahead = snakemake("paper/ag_news_subset", "-np", "--until", "data", "--config", model).stdout
    assert "oso data ag_news_partial --words=25 --oov-words=zeros --output" in ahead
    assert "build/data/ag_news_partial-25.npz" in ahead


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ("epochs=0", ["epochs: 0;", "greater than or equal to 1"]),
        ("methods={onlin: {}}", ["onlin", "adam_wosm"]),
    ],
)
def test_a_bad_configuration_stops_everything_in_one_line(
    snakemake, tmp_path, change, parts
) -> None:
    done = snakemake("ci/smoke", "--config", change)
    assert done.returncode == 1
    assert len(said(done)) == 1
    assert said(done)[0].startswith("oso: error: --config: ")  # not the file's fault
    for part in parts:
        assert part in done.stdout
    assert files(tmp_path) == []


def test_missing_data_are_named_at_the_end(snakemake, tmp_path) -> None:
    done = snakemake("headline", "--config", f"data_dir={tmp_path}/nowhere", "--until", "data")
    assert done.returncode == 1
    assert our_lines(done)[-1].startswith(f"oso: error: data_dir: {tmp_path}/nowhere")
    assert "Traceback" not in done.stdout


def test_results_cut_in_half_stop_everything(snakemake, tmp_path) -> None:
    store = tmp_path / "build/smoke/results"
    store.mkdir(parents=True)
    (store / "runs.parquet").write_bytes(b"PAR1 and no more")
    done = snakemake("ci/smoke")
    assert done.returncode == 1
    assert len(said(done)) == 1
    assert "runs.parquet: not a readable Parquet file" in done.stdout
    assert (store / "runs.parquet").read_bytes() == b"PAR1 and no more"


@pytest.mark.parametrize("key", ["results", "report"])
def test_a_folder_that_cannot_be_one_is_named_before_any_work(snakemake, tmp_path, key) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    done = snakemake("ci/smoke", "--config", f"{key}=taken/below")
    assert done.returncode == 1
    assert len(said(done)) == 1
    assert said(done)[0].startswith(f"oso: error: {key}: taken/below; ")
    assert files(tmp_path) == ["taken"]
    assert (tmp_path / "taken").read_text() == "a file, not a folder"
