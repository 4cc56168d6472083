"""`python -m oso_dp.scheduler` with real training, and one clear line for what it cannot do."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from tests.planned_rows import rows_of
from tests.scheduler.conftest import list_runs, make_plan

from oso_dp.cli import main as oso
from oso_dp.data.arrays import load_arrays, save_arrays
from oso_dp.errors import OsoError
from oso_dp.results.conflicts import check_same_search_among
from oso_dp.results.read import read_results
from oso_dp.results.write import write_table
from oso_dp.scheduler.__main__ import make_parser
from oso_dp.study.plan import read_plan, write_plan
from oso_dp.training.job import make_task, run_job

# What this package declares beside torch, numpy, pandas and pyarrow.
REFUSED = ["yaml", "pydantic", "pydantic_core", "dp_accounting", "opacus", "scipy", "matplotlib"]
REFUSED += ["seaborn", "snakemake", "typer", "rich", "PIL", "absl", "attr", "pooch", "requests"]
BARE = f"""
import os, runpy, signal, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {REFUSED!r}:
            raise ImportError(f"{{name}} is not installed")

sys.meta_path.insert(0, Refuse())
from oso_dp.scheduler.scheduling import _Watch
step_of = _Watch.__call__
def watch(self, done, step):
    STEP
    step_of(self, done, step)
_Watch.__call__ = watch
runpy.run_module("oso_dp.scheduler", run_name="__main__")
"""
KILL = "if step == 5: os.kill(os.getpid(), signal.SIGKILL)"
TERMINATE = "if step == 5: os.kill(os.getpid(), signal.SIGTERM)"
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)); "
FULL += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"


def run_bare(folder: Path, *arguments: object, step: str = "pass"):
    """The command where the rest of the declared packages is missing."""
    known = ["--plan", folder / "plan.json", "--data", folder / "data", "--device", "cpu"]
    known += ["--threads", 1, "--minutes", 5]
    return subprocess.run(
        [sys.executable, "-c", BARE.replace("STEP", step), *map(str, (*arguments, *known))],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def sort_rows(evaluations: pd.DataFrame) -> pd.DataFrame:
    return evaluations.sort_values(["run_id", "step", "split"], ignore_index=True)


@pytest.fixture(scope="module")
def truth(folder, tmp_path_factory) -> pd.DataFrame:
    """What the study's own job makes of Online's four runs."""
    cohort = read_plan(folder / "plan.json").cohort("glyphs.online.k2.eps3")
    arrays, _ = load_arrays(folder / "data/glyphs.npz")
    job = run_job(cohort, cohort.runs, arrays, tmp_path_factory.mktemp("job"))
    return sort_rows(pd.DataFrame(job.evaluations).astype({"fraction_clipped": float}))


def test_scheduler_killed_command_resumes(folder, tmp_path, truth, call) -> None:
    """With four packages only, the command resumes after SIGKILL and after SIGTERM."""
    out = tmp_path / "out"
    wanted = ["--results", out, "--filter", "online/*"]
    killed = run_bare(folder, *wanted, "--parallel-runs", 3, step=KILL)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len([*out.glob(".progress/*/state.pt")]) == 1
    ended = run_bare(folder, *wanted, step=TERMINATE)
    assert (ended.returncode, ended.stderr) == (130, "oso: SIGTERM: stopped\n")
    again = run_bare(folder, *wanted)
    assert (again.returncode, again.stderr) == (0, "")
    lines = again.stdout.splitlines()
    assert lines[0].endswith(": 4 runs of mini to do")
    assert any(re.search(r": 3 runs of 10 steps: finished, [0-9.]+ s per step", o) for o in lines)
    assert lines[-1].startswith("4 runs done, 0 left (about 0.0 h")
    found = pd.concat([read_results(shard).evaluations for shard in out.glob("[!.]*")])
    close = {"rtol": 1e-4, "atol": 1e-6}
    pd.testing.assert_frame_equal(sort_rows(found)[truth.columns], truth, **close)
    status, lines, _ = call(*wanted)
    assert (status, lines[-1][:20]) == (0, "0 runs done, 0 left ")


def test_scheduler_full_disk_fails(folder, tmp_path) -> None:
    done = run_bare(folder, "--results", tmp_path / "out", step=FULL)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "cannot write file" in done.stderr
    assert list_runs(tmp_path / "out") == []


def test_scheduler_folders_merged_by_collect(folder, tmp_path, call, monkeypatch, capsys) -> None:
    wanted = ["--parallel-runs", 4, "--filter", "online/*"]
    assert call(*wanted, "--results", tmp_path / "a")[0] == 0
    assert call(*wanted, "no_dp/*", "--results", tmp_path / "b")[0] == 0
    shards = [str(shard) for name in "ab" for shard in (tmp_path / name).glob("[!.]*")]
    store = tmp_path / "store"
    monkeypatch.setattr(sys, "argv", ["oso", "collect", *shards, "--store", str(store)])
    with pytest.raises(SystemExit) as end:
        oso()
    assert end.value.code == 0
    assert "8 runs" in capsys.readouterr().out
    status, lines, _ = call(*wanted, "--results", tmp_path / "c", "--existing", store)
    assert (status, "0 runs of mini" in lines[0]) == (0, True)


@pytest.mark.parametrize("stopped", ["stop file", "checkout gone"])
def test_scheduler_stop_event_ends_command(stopped, tmp_path, call, monkeypatch, machine) -> None:
    (tmp_path / "code.py").touch()
    monkeypatch.setattr("oso_dp.__file__", str(tmp_path / "code.py"))
    event = {
        "stop file": lambda: (tmp_path / "out/.progress/stop").touch(),
        "checkout gone": lambda: (tmp_path / "code.py").unlink(),
    }[stopped]
    machine.meanwhile = event
    status, _, (error,) = call("--results", tmp_path / "out")
    assert status == (130 if stopped == "stop file" else 2)
    assert ("no longer exists" in error) == (stopped == "checkout gone")
    assert len(machine.asked) == 1


def write_other_search(folder: Path, first: int, end: int):
    """A shard for each of these runs of a search over another range, and a plan of one point."""
    choices = {"methods": {"online": {}}, "values_per_axis": [9], "seeds": [0]}
    other = make_plan(**choices, grid={"log10_learning_rate": [-1.1, 0.9]})
    (cohort,) = make_plan(**choices).cohorts
    rows = rows_of(other)
    for number, run in enumerate(rows["runs"][first:end], first):
        shard = folder / f"{cohort.name}.{number:012x}"
        scores = [row for row in rows["evaluations"] if row["run_id"] == run["run_id"]]
        write_table(shard / "runs.parquet", "runs", [run])
        write_table(shard / "evaluations.parquet", "evaluations", scores)
    return replace(other, cohorts=(cohort.with_runs(cohort.points[:1], cohort.seeds),))


@pytest.mark.parametrize("inside", [9, 4, 0])
def test_scheduler_conflicting_search_skipped(inside, folder, tmp_path, call, machine) -> None:
    out, existing = tmp_path / "out", tmp_path / "existing"
    write_other_search(out, 0, inside)
    plan = write_other_search(existing, inside, 9)
    write_plan(plan, tmp_path / "plan.json")
    asked = ["--results", out, *(["--existing", existing] if inside < 9 else [])]
    asked += ["--plan", tmp_path / "plan.json", folder / "plan.json"]
    status, lines, errors = call(*asked)
    assert (status, errors) == (0, [])
    assert lines[0].startswith("glyphs.online.k9.eps3: skipped: ")
    assert "has 9 points of another search of glyphs.online.k9.eps3" in lines[0]
    assert len(machine.trained) == 16
    assert {cohort.k for cohort, _, _ in machine.asked if cohort.method == "online"} == {2}


def test_check_same_search_among_names_folder(tmp_path) -> None:
    plan = make_plan(methods={"online": {}}, values_per_axis=[9], seeds=[0])
    other, own = tmp_path / "other", tmp_path / "own"
    write_other_search(other, 0, 9)
    for kind, rows in rows_of(plan).items():
        write_table(own / plan.cohorts[0].name / f"{kind}.parquet", kind, rows)
    with pytest.raises(OsoError) as error:
        check_same_search_among({one: [*one.iterdir()] for one in (other, own)}, plan.cohorts)
    assert str(error.value).startswith(f"{other}: has 9 points")


def test_scheduler_diverged_runs_not_repeated(tmp_path, call, machine) -> None:
    gone = {"status": "diverged", "diverged_at": 10}
    machine.status = lambda run: gone if run.seed else {}
    for _ in range(2):
        assert call("--results", tmp_path / "out")[0] == 0
        assert len(machine.trained) == 16
    found = [read_results(shard).runs for shard in (tmp_path / "out").glob("[!.]*")]
    assert (pd.concat(found)["status"] == "diverged").sum() == 8


def test_scheduler_plans_keep_own_loss(tmp_path, call, machine) -> None:
    expected = {}
    for loss in ("mean", "sum"):
        section = {"model": "autoencoder", "epsilons": [3], "seconds_per_step": 1, "loss": loss}
        plan = make_plan(name=loss, datasets={"fashion_mnist": section})
        write_plan(plan, tmp_path / f"{loss}.json")
        expected |= dict.fromkeys(plan.run_ids(), loss)
    (tmp_path / "fashion_mnist.npz").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oso_dp.scheduler.__main__.load_prepared", lambda *_: None)
        plans = [tmp_path / "mean.json", tmp_path / "sum.json"]
        options = ["--results", tmp_path / "out", "--data", tmp_path]
        assert call(*options, "--plan", *plans)[0] == 0
    assert {run: make_task(c).loss for c, runs, _ in machine.asked for run in runs} == expected


def test_scheduler_missing_data_skipped(folder, tmp_path, call, machine) -> None:
    section = {"model": "bag_of_words", "epsilons": [3], "seconds_per_step": 1}
    write_plan(make_plan(name="news", datasets={"ag_news": section}), tmp_path / "news.json")
    asked = ["--results", tmp_path / "out", "--plan", folder / "plan.json", tmp_path / "news.json"]
    status, _, (error,) = call(*asked)
    assert (status, "ag_news.npz: no such file; `oso data ag_news" in error) == (2, True)
    status, lines, errors = call(*asked, "--skip-missing")
    assert (status, errors, len(machine.trained)) == (0, [], 16)
    path = folder / "data/ag_news.npz"
    assert lines[0] == f"ag_news: waits: no data for ag_news ({path}: no such file)"


@pytest.mark.parametrize("prepared", [True, False])
def test_scheduler_missing_data_prepared(
    prepared, folder, tmp_path, call, machine, monkeypatch
) -> None:
    from oso_dp.errors import OsoError

    def prepare(dataset, file, data_dir, **preparation) -> None:
        assert (dataset, data_dir, preparation) == ("glyphs", tmp_path / "raw", {})
        if not prepared:
            raise OsoError("no mirror")
        file.write_bytes((folder / "data/glyphs.npz").read_bytes())

    monkeypatch.setattr("oso_dp.scheduler.__main__.prepare_dataset", prepare)
    asked = ["--results", tmp_path / "out", "--data", tmp_path / "data", "--prepare"]
    status, lines, _ = call(*asked, "--data-dir", tmp_path / "raw")
    assert (status, len(machine.trained)) == ((0, 16) if prepared else (2, 0))
    assert prepared or lines[1].endswith("glyphs.npz: not prepared: no mirror")


@pytest.mark.parametrize(
    ("model", "given", "device", "runs"),
    [
        ("cnn", None, "cpu", 1),
        ("bag_of_words", None, "cpu", 8),
        ("cnn", None, "cuda", 64),
        ("cnn", 3, "cuda", 3),
        ("bag_of_words", 3, "cpu", 3),
    ],
)
def test_make_scheduler_parallel_runs_by_device(
    model, given, device, runs, tmp_path, monkeypatch
) -> None:
    from oso_dp.scheduler import __main__ as module
    from oso_dp.signals import SignalRecorder

    dataset = "mnist" if model == "cnn" else "ag_news"
    section = {"model": model, "epsilons": [3], "seconds_per_step": 1}
    plan = make_plan(datasets={dataset: section})
    write_plan(plan, tmp_path / "plan.json")
    (tmp_path / plan.cohorts[0].data_file).touch()
    monkeypatch.setattr(module.torch.cuda, "is_available", lambda: device == "cuda")
    monkeypatch.setattr(module, "device_name", lambda device: device)
    asked = ["--minutes", "1", "--results", tmp_path / "out", "--plan", tmp_path / "plan.json"]
    asked += ["--data", tmp_path, *(["--parallel-runs", given] if given else [])]
    options = make_parser().parse_args([*map(str, asked)])
    made = module.make_scheduler(options, 0.0, SignalRecorder())
    assert made.parallel_runs == {(dataset, model): runs}


def test_make_scheduler_times_kept_by_model(tmp_path) -> None:
    from oso_dp.scheduler import __main__ as module
    from oso_dp.signals import SignalRecorder

    asked = ["--minutes", "1", "--results", tmp_path / "out", "--data", tmp_path, "--device", "cpu"]
    asked += ["--plan"]
    for model, seconds in (("bag_of_words", 0.01), ("bag_of_words_25", 0.5)):
        section = {"model": model, "epsilons": [3], "seconds_per_step": seconds}
        plan = make_plan(datasets={"ag_news": section})
        write_plan(plan, tmp_path / f"{model}.json")
        (tmp_path / plan.cohorts[0].data_file).touch()
        asked += [tmp_path / f"{model}.json"]
    options = make_parser().parse_args([*map(str, asked)])
    made = module.make_scheduler(options, 0.0, SignalRecorder())
    assert made.planned_seconds == {
        ("ag_news", "bag_of_words"): 0.01, ("ag_news", "bag_of_words_25"): 0.5
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "the following arguments are required: --results"),
        (
            ["--results", "out", "--minutes", "0"],
            "--minutes: 0; must be a number > 0 (see python -m",
        ),
        (
            ["--results", "out", "--parallel-runs", "0"],
            "--parallel-runs: 0: must be an integer >= 1 and <= 100000",
        ),
        (["--results", "out", "--filter", "online/mnist"], "--filter: online/mnist; matches no"),
        (["--results", "out", "--data", "elsewhere"], "elsewhere/glyphs.npz: no such file"),
        (
            ["--results", "out", "--existing", "elsewhere"],
            "--existing: elsewhere; has no results; must be a store or",
        ),
        (["--results", "out", "--plan", "old.json"], "old.json: plan version 1; must be"),
        (["--results", "out", "--plan", "other.json"], "was edited after"),
        (["--results", "store"], "--results: store; must not be a results store"),
        (["--results", "out", "--data", "foreign"], "glyphs.npz: data set 'mnist'; must be"),
        (["--results", "out", "--data", "short"], "training examples: 500; must be"),
    ],
)
def test_scheduler_wrong_arguments_rejected(
    arguments, says, folder, tmp_path, call, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = json.loads((folder / "plan.json").read_text())
    plan["cohorts"][0]["momentum"] = 0.5  # other runs than the planned ones
    Path("other.json").write_text(json.dumps(plan))
    del plan["version"]
    Path("old.json").write_text(json.dumps(plan))
    Path("store").mkdir()
    Path("store/runs.parquet").touch()
    arrays, _ = load_arrays(folder / "data/glyphs.npz")
    if "foreign" in arguments:
        save_arrays(Path("foreign/glyphs.npz"), arrays, {"dataset": "mnist"})
    if "short" in arguments:
        short = {name: getattr(arrays, name)[:500].copy() for name in arrays.names}
        save_arrays(Path("short/glyphs.npz"), type(arrays)(**short), {"dataset": "glyphs"})
    status, _, errors = call(*arguments)
    assert (status, len(errors)) == (2, 1)
    assert errors[0].startswith("oso: error: ")
    assert says in errors[0]


def test_scheduler_cuda_without_gpu_rejected(tmp_path, call, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    status, _, errors = call("--results", tmp_path / "out", "--device", "cuda")
    said = "oso: error: --device: cuda; no CUDA device is visible; must be cpu"
    assert (status, errors) == (2, [said])
