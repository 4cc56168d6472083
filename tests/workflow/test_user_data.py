"""A data set of a user's own through Snakemake, whose jobs each find the package by themselves."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd

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


def test_each_job_finds_the_package_and_the_runs_share_one_epsilon(
    offer, repo, tmp_path, monkeypatch
) -> None:
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
