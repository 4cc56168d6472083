"""`python -m oso_dp.campaign` with real training, and one clear line for what it cannot do."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from oso_dp.campaign.__main__ import main
from oso_dp.cli import main as oso
from oso_dp.data.arrays import load_arrays, save_arrays
from oso_dp.results.read import read_results
from oso_dp.study.plan import read_plan
from oso_dp.training.job import run_job

# Everything this package declares beside torch, numpy, pandas and pyarrow.
REFUSED = [
    *("yaml", "pydantic", "pydantic_core", "dp_accounting", "opacus", "scipy", "matplotlib"),
    *("seaborn", "snakemake", "typer", "rich", "PIL", "absl", "attr"),
]
BARE = f"""
import runpy, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {REFUSED!r}:
            raise ImportError(f"{{name}} is not installed")

sys.meta_path.insert(0, Refuse())
KILL
sys.argv[0] = "oso_dp.campaign"
runpy.run_module("oso_dp.campaign", run_name="__main__")
"""
KILL = """
import os, signal
from oso_dp.campaign.deadline import Deadline
Deadline.__call__ = lambda self, done, step: step == 5 and os.kill(os.getpid(), signal.SIGKILL)
"""


def bare(folder: Path, *arguments: object, kill: str = "") -> subprocess.CompletedProcess[str]:
    """The command where the rest of the declared packages is missing."""
    known = ["--plan", folder / "plan.json", "--data", folder / "data", "--device", "cpu"]
    known += ["--threads", 1]
    return subprocess.run(
        [sys.executable, "-c", BARE.replace("KILL", kill), *map(str, (*arguments, *known))],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def rows(*folders: Path) -> pd.DataFrame:
    """All evaluations below these folders."""
    parts = [part for folder in folders for part in sorted(folder.glob("[!.]*"))]
    every = pd.concat([read_results(part).evaluations for part in parts], ignore_index=True)
    return every.sort_values(["run_id", "step", "split"], ignore_index=True)


@pytest.fixture(scope="module")
def truth(folder, tmp_path_factory) -> pd.DataFrame:
    """What the study's own job, with the checked configuration, makes of Online's four runs."""
    plan = read_plan(folder / "plan.json")
    cohort = plan.cohort("glyphs.online.k2.eps3")
    arrays, _ = load_arrays(folder / "data/glyphs.npz")
    scratch = tmp_path_factory.mktemp("job")
    job = run_job(cohort, cohort.runs, arrays, scratch)
    every = pd.DataFrame(job.evaluations).astype({"fraction_clipped": float})
    return every.sort_values(["run_id", "step", "split"], ignore_index=True)


def test_it_needs_four_packages_only_and_survives_a_kill(folder, tmp_path, truth, call) -> None:
    """Killed at step 5 of 10, it goes on from the checkpoint to the numbers of the study's job."""
    out = tmp_path / "out"
    wanted = ["--minutes", 5, "--results", out, "--only", "online/*"]
    killed = bare(folder, *wanted, "--runs-at-once", 3, kill=KILL)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(list(out.glob(".progress/*/state.pt"))) == 1
    assert list(out.glob("[!.]*")) == []
    again = bare(folder, *wanted)
    assert (again.returncode, again.stderr) == (0, "")
    lines = again.stdout.splitlines()
    # On a slow machine a line about the first minute stands between them.
    lines = [line for line in lines[:-2] if "runs done;" not in line] + lines[-2:]
    assert len(lines) == 5
    assert lines[0].endswith(": 4 runs of mini to do")
    assert re.search(r": 3 runs of 10 steps, [0-9.]+ s per step, ", lines[1])
    assert re.search(r": 1 run of 10 steps, [0-9.]+ s per step, ", lines[2])
    assert lines[3] == "4 runs done; 0 left, about 0.0 hours at the measured speed"
    assert lines[4].startswith("ended after ")
    close = {"rtol": 1e-4, "atol": 1e-6}
    pd.testing.assert_frame_equal(rows(out)[truth.columns], truth, **close)
    status, lines, _ = call(*wanted)
    assert (status, len(lines)) == (0, 3)  # nothing to do


def test_two_folders_are_merged_by_oso_collect(
    folder, tmp_path, truth, call, monkeypatch, capsys
) -> None:
    """Also where both hold a run, because the second did not know of the first."""
    wanted = ["--minutes", 5, "--runs-at-once", 4, "--only", "online/*"]
    assert call(*wanted, "--results", tmp_path / "a")[0] == 0
    assert call(*wanted, "no_dp/*", "--results", tmp_path / "b")[0] == 0
    parts = [str(part) for name in "ab" for part in (tmp_path / name).glob("[!.]*")]
    assert len(parts) == 3
    store = tmp_path / "store"
    monkeypatch.setattr(sys, "argv", ["oso", "collect", *parts, "--store", str(store)])
    with pytest.raises(SystemExit) as end:
        oso()
    assert end.value.code == 0
    assert "8 runs" in capsys.readouterr().out
    status, lines, _ = call(*wanted, "--results", tmp_path / "c", "--have", store)
    assert (status, "0 runs of mini" in lines[0]) == (0, True)


def test_priorities_for_what_only_leaves_out_are_no_mistake(tmp_path, call) -> None:
    priorities = tmp_path / "priorities.toml"
    priorities.write_text('[[first]]\nmethod = "fixed_threshold"\n[[first]]\nmethod = "online"\n')
    wanted = ["--minutes", 5, "--results", tmp_path / "out", "--priorities", priorities]
    status, lines, errors = call(*wanted, "--only", "online/*")
    assert (status, errors) == (0, [])
    assert lines[0].endswith(": 4 runs of mini to do")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "the following arguments are required: --results"),
        (["--results", "out", "--minutes", "0"], "--minutes: 0: must be a number above 0"),
        (["--results", "out", "--minutes", "many"], "--minutes: many: must be a number above 0"),
        (["--results", "out", "--device", "tpu"], "--device: invalid choice: 'tpu'"),
        (["--results", "out", "--runs-at-once", "0"], "--runs-at-once: 0: must be auto or"),
        (["--results", "out", "--only", "online/mnist"], "--only online/mnist: names nothing"),
        (["--results", "out", "--data", "elsewhere"], "elsewhere/glyphs.npz: no such file"),
        (["--results", "out", "--have", "elsewhere"], "elsewhere: holds no results"),
        (["--results", "out", "--plan", "no.json"], "no.json: cannot be read"),
        (["--results", "out", "--plan", "old.json"], "old.json: a plan of version 1; this package"),
        (["--results", "out", "--plan", "other.json"], "was changed after it was planned"),
        (["--results", "file/out"], "file/out: cannot make this folder"),
        (["--results", "store"], "store: is a results store"),
        (["--results", "out", "--data", "damaged"], "glyphs.npz: truncated, or not a data file"),
        (["--results", "out", "--data", "foreign"], "glyphs.npz: holds data set 'mnist', not"),
    ],
)
def test_a_mistake_gets_one_line(arguments, says, folder, tmp_path, call, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = json.loads((folder / "plan.json").read_text())
    plan["cohorts"][0]["momentum"] = 0.5  # other runs than those that were planned
    Path("other.json").write_text(json.dumps(plan))
    del plan["version"]
    Path("old.json").write_text(json.dumps(plan))
    Path("file").touch()
    Path("store").mkdir()
    Path("store/runs.parquet").touch()
    Path("damaged").mkdir()
    Path("damaged/glyphs.npz").write_bytes((folder / "data/glyphs.npz").read_bytes()[:1000])
    if "foreign" in arguments:
        arrays, _ = load_arrays(folder / "data/glyphs.npz")
        save_arrays(Path("foreign/glyphs.npz"), arrays, {"dataset": "mnist"})
    minutes = [] if "--minutes" in arguments else ["--minutes", 1]
    status, _, errors = call(*minutes, *arguments)
    assert status == 2
    assert len(errors) == 1
    assert errors[0].startswith("oso: error: ")
    assert says in errors[0]


def test_another_number_of_examples_is_refused(folder, tmp_path, call) -> None:
    """The noise was priced for another sampling rate."""
    arrays, _ = load_arrays(folder / "data/glyphs.npz")
    parts = (np.ascontiguousarray(getattr(arrays, one.name)[:500]) for one in fields(arrays))
    fewer = type(arrays)(*parts)
    save_arrays(tmp_path / "glyphs.npz", fewer, {"dataset": "glyphs"})
    status, _, errors = call("--minutes", 1, "--results", tmp_path / "out", "--data", tmp_path)
    assert status == 2
    assert "training examples is 500, the catalogue says 6000" in errors[0]


def test_plans_that_prepare_texts_differently_need_a_file_each(two_texts, tmp_path, call) -> None:
    """One reads 25 words, the other 15: neither may train on the other's file."""
    (tmp_path / "ag_news.npz").touch()
    options = ["--minutes", 1, "--results", tmp_path / "out", "--data", tmp_path]
    status, _, errors = call(*options, "--plan", *two_texts)
    assert status == 2
    assert f"{tmp_path}/ag_news-25.npz: no such file; `oso data ag_news --words=25" in errors[0]


def test_the_page_for_users_names_every_option(repo, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    options = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    page = (repo / "docs/campaign.md").read_text()
    assert set(re.findall(r"^\| `(--[a-z-]+)`", page, re.MULTILINE)) == options
