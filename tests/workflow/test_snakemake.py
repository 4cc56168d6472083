"""The study through Snakemake itself, in a folder of its own."""

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pandas as pd
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


def lines_of(process) -> list[str]:
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


@pytest.mark.parametrize("further", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_snakemake_smallest_study_makes_page(
    snakemake, prices, tmp_path, monkeypatch, further
) -> None:
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
    assert len(lines_of(second)) == 1
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

    if not further:
        return
    # A store that is gone, or lacks a file, is collected again, from the parts.
    for lose in (shutil.rmtree, _remove_a_file):
        lose(store)
        assert study("--until", "collect").returncode == 0
    assert len(read_results(store).runs) == 4

    # Another seed trains what is new and keeps what is there.
    folders += ("seeds=[0,1]",)
    more = study("--until", "collect")
    assert more.returncode == 0, more.stdout
    assert len(read_results(store).runs) == 8
    parts = tmp_path / "build/smoke/parts/glyphs.online.k2.eps3/shard0"
    assert set(read_results(parts).runs["seed"]) == {1}

    # The jobs' outputs are of seed 1 alone now: what is lost of seed 0 is trained again.
    _remove_a_file(store)
    lacking = study("--until", "collect")
    assert lacking.returncode == 1
    assert "neither there nor in the named shards" in lacking.stdout
    assert study("--until", "collect", "--forcerun", "train").returncode == 0
    assert len(read_results(store).runs) == 8


def _remove_a_file(store: Path) -> None:
    min((store / "runs.parquet").iterdir()).unlink()


@pytest.mark.nightly
def test_snakemake_paper_dry_run_takes_seconds(snakemake) -> None:
    before = os.times()
    ahead = snakemake("paper", "--dry-run", "--quiet")
    after = os.times()
    assert ahead.returncode == 0, ahead.stdout
    assert "18,120 private runs in 144 cohorts and 315 NoDP runs in 9" in ahead.stdout
    used = after.children_user + after.children_system
    assert used - before.children_user - before.children_system < 30  # 4 to 8 s


NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("methods={onlin: {}}", r"--config: methods.onlin: unknown method; did you mean online\?"),
        pytest.param("report=taken/below", "report: taken/below; ", marks=NIGHTLY),
        pytest.param("results=cut", ".*runs.parquet: not a readable Parquet file", marks=NIGHTLY),
    ],
)
def test_snakemake_mistake_rejected_before_work(snakemake, tmp_path, change, said) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut/runs.parquet").write_bytes(b"PAR1 and no more")
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    done = snakemake("ci/smoke", "--config", change)
    assert done.returncode == 1
    (line,) = lines_of(done)
    assert re.match(f"oso: error: {said}", line), line
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


@NIGHTLY
def test_snakemake_missing_data_named(snakemake, tmp_path) -> None:
    done = snakemake("headline", "--config", f"data_dir={tmp_path}/nowhere", "--until", "data")
    assert done.returncode == 1
    error = [line for line in done.stdout.splitlines() if line.startswith("oso: error:")][-1]
    assert error.startswith(f"oso: error: data_dir: {tmp_path}/nowhere")
    assert "Traceback" not in done.stdout


# Long enough to be interrupted; its jobs keep what they have at each fifth step.
LONG = ("--until", "train", "--config", "epochs=1000", "evaluate_every=5")


def jobs(folder: Path) -> list[str]:
    """Command lines of processes that train for the study in this folder."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_text().replace("\0", " ")
            if "train --plan" in line and (process / "cwd").readlink() == folder:
                lines.append(line)
        except OSError:  # it ended meanwhile
            continue
    return lines


@pytest.mark.skipif(not os.path.exists("/proc/self/cwd"), reason="needs /proc")
@pytest.mark.parametrize(
    "numbers",
    [
        [signal.SIGKILL],
        pytest.param([signal.SIGKILL, signal.SIGINT, signal.SIGTERM], marks=pytest.mark.nightly),
    ],
    ids=["killed", "each signal"],
)
def test_snakemake_killed_study_ends_jobs(snakemake, tmp_path, numbers) -> None:
    for number in numbers:
        for kept in tmp_path.rglob("state.pt"):
            kept.unlink()
        study = snakemake("ci/smoke", *LONG, "--cores", "1", start=True)
        try:
            wait_for(tmp_path / "build", "state.pt")
            assert jobs(tmp_path)
        finally:
            os.kill(study.pid, number)  # it alone
        began = time.monotonic()
        while jobs(tmp_path) and time.monotonic() < began + 30:
            time.sleep(0.1)
        took = time.monotonic() - began
        output = study.communicate(timeout=60)[0]
        assert took < 10, output
        assert "the study that started this job has ended: stopped at step" in output
        assert "Traceback" not in output
        assert any(tmp_path.rglob("state.pt"))


SNAKEFILE = """\
configfile: "config/config.yaml"

module oso:
    snakefile: "{repo}/workflow/Snakefile"
    config: config

use rule * from oso as oso_*

rule everything:
    default_target: True
    input: rules.oso_all.input
"""


@pytest.mark.nightly
def test_snakemake_module_import_plans_jobs(repo, tmp_path) -> None:
    assert len([line for line in SNAKEFILE.splitlines() if line]) < 10
    (tmp_path / "config").mkdir()
    shutil.copy(repo / "config/ci/smoke.yaml", tmp_path / "config/config.yaml")
    (tmp_path / "Snakefile").write_text(SNAKEFILE.format(repo=repo))
    done = subprocess.run([BIN / "snakemake", "--cores", "1", "-n"], cwd=tmp_path, check=False,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    assert done.returncode == 0, done.stdout
    jobs = dict(line.split() for line in done.stdout.splitlines() if line.startswith("oso_"))
    assert jobs["oso_train"] == "2"
    assert {"oso_plan", "oso_data", "oso_collect", "oso_report_page"} <= {*jobs}


STUDY = """\
name: own
results: store
report: report
datasets:
  patients: {model: own, epsilons: [8], seconds_per_step: 0.01}
methods: {online: {}}
values_per_axis: [2]
seeds: [0, 1]
batch_size: 20
epochs: 2
randomness: system
"""


@pytest.mark.nightly
def test_snakemake_user_dataset_shares_epsilon(offer, repo, tmp_path, monkeypatch) -> None:
    paths = [str(offer()), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    (tmp_path / "study.yaml").write_text(STUDY)

    def study(*arguments: str) -> str:
        command = [str(Path(sys.executable).parent / "snakemake"), "--cores", "2"]
        where = ["--snakefile", str(repo / "Snakefile"), "--directory", str(tmp_path)]
        done = subprocess.run(
            [*command, *arguments, *where, "--configfile", str(tmp_path / "study.yaml")],
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr

    said = study("build/own/accounting.csv")
    assert "patients, version 1: (8, 1e-05)-differential privacy" in said
    assert (tmp_path / "build/data/patients-1.npz").exists()
    (account,) = pd.read_csv(tmp_path / "build/own/accounting.csv").to_dict("records")
    assert (account["grid"], account["runs"]) == ("patients.total.eps8", 4)
    assert (account["stored"], account["verdict"]) == (4, "within")
    (tmp_path / "study.yaml").write_text(STUDY.replace("[0, 1]", "[0]"))
    # The dry run says it, with all that has to change.
    said = study("-n")
    assert "oso: error: store: has 4 runs on patients that are not of this study" in said
    assert "name other folders under `results` and `report` and another study under" in said
    # The same of parts, which nobody has collected.
    (part,) = (tmp_path / "build/own/parts").glob("*/shard*/runs.parquet")
    before = part.read_bytes()
    shutil.rmtree(tmp_path / "store")
    said = study()
    assert f"{part.parent.relative_to(tmp_path)}: has 4 runs on patients that are not" in said
    assert part.read_bytes() == before


def test_slurm_profile_uncommented_sets_resources(repo, tmp_path) -> None:
    profile = (repo / "workflow/profiles/slurm/config.yaml").read_text()
    profile = re.sub(r"^# ((?:default|set)-resources:|  .*)$", r"\1", profile, flags=re.M)
    assert profile.count("\n  ") == 4
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm/config.yaml").write_text(profile)
    done = subprocess.run(
        [str(Path(sys.executable).parent / "snakemake"), "-np", "--profile", "slurm",
         "--snakefile", str(repo / "Snakefile"),
         "--configfile", str(repo / "config/ci/smoke.yaml")],
        cwd=tmp_path, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    asked = re.findall(r"^ +resources: (.*runtime.*)$", done.stdout, flags=re.M)
    # Two jobs train; the data are fetched, and the report copied, where Snakemake runs.
    assert len(asked) == 6
    assert sum("gpu=1" in line for line in asked) == 2
    assert sum("slurm_partition=gpu" in line for line in asked) == len(asked)
