"""The study as a module of somebody else's workflow, from a local clone."""

import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.fixture
def other(repo, tmp_path):
    """Somebody's workflow of ten lines, with a configuration of the study: its dry run."""
    (tmp_path / "config").mkdir()
    smoke = (repo / "config/ci/smoke.yaml").read_text()
    (tmp_path / "config/config.yaml").write_text(smoke)

    def run(snakefile: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "Snakefile").write_text(snakefile)
        command = [str(Path(sys.executable).parent / "snakemake"), "--cores", "1", "-n"]
        return subprocess.run(command, cwd=tmp_path, check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip

    return run


def test_a_workflow_of_ten_lines_uses_the_study(other, repo) -> None:
    assert len([line for line in SNAKEFILE.splitlines() if line]) < 10
    done = other(SNAKEFILE.format(repo=repo))
    assert done.returncode == 0, done.stdout
    jobs = dict(line.split() for line in done.stdout.splitlines() if line.startswith("oso_"))
    assert jobs["oso_train"] == "2"
    assert {"oso_plan", "oso_data", "oso_collect", "oso_report_page"} <= {*jobs}


def test_the_studys_own_target_is_the_default(other, repo) -> None:
    """As snakedeploy writes it: all rules, under their names."""
    plain = SNAKEFILE.partition("rule everything")[0].replace(" as oso_*", "")
    done = other(plain.format(repo=repo))
    assert done.returncode == 0, done.stdout
    assert "publish            1" in done.stdout
