"""`make demo`, the README's first command: its own two lines, on fewer runs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from tests.workflow.test_workflow import made_up_prices

from oso_dp.study.config import load_config

FEWER = {"values_per_axis": [2], "seeds": [0], "epochs": 1}


def test_the_demos_commands_go_from_nothing_to_its_table(repo, tmp_path, monkeypatch) -> None:
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", (repo / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    study, summary = recipe[1].splitlines()
    assert study == "\t$(STUDY) --configfile config/demo.yaml"
    config = yaml.safe_load((repo / "config/demo.yaml").read_text())
    config["datasets"]["glyphs"]["epsilons"] = [9]
    config["methods"] = {name: config["methods"][name] for name in ("online", "no_dp")}
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump({**config, **FEWER}))
    # Half a minute's work that is no command of the demo, and has tests of its own.
    prices = made_up_prices(load_config(tmp_path / "demo.yaml"), tmp_path / "prices", monkeypatch)
    (tmp_path / config["results"]).mkdir(parents=True)
    shutil.move(prices, tmp_path / config["results"])

    def done(*command: str) -> str:
        scripts = Path(sys.executable).parent
        environment = os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
        process = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    where = ["--snakefile", str(repo / "Snakefile"), "--configfile", "demo.yaml"]
    done("snakemake", "--cores", "2", *where)
    assert "glyphs" in (tmp_path / "reports/demo/index.html").read_text()
    said = done(*summary.removeprefix("\t@$(IN_VENV) ").split())
    for method in ("Online", "NoDP"):
        assert method in said
    assert "reports/demo/index.html" in said
