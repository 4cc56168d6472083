"""The Slurm profile as Snakemake itself reads it, with what stands in it as a comment, too."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("uncommented", [False, True])
def test_the_slurm_profile_is_read(repo, tmp_path, uncommented: bool) -> None:
    profile = (repo / "workflow/profiles/slurm/config.yaml").read_text()
    if uncommented:
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
    assert sum("gpu=1" in line for line in asked) == 2 * uncommented
    assert sum("slurm_partition=gpu" in line for line in asked) == len(asked) * uncommented
