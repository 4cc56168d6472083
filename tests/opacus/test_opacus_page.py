"""docs/user/opacus.md: its defaults are the method's, its accuracies those that were measured."""

import csv
import dataclasses
import json
import re
from pathlib import Path

from oso_dp.methods import find_method


def test_the_defaults_are_the_methods(repo: Path) -> None:
    text = (repo / "docs/user/opacus.md").read_text()
    stated = dict(re.findall(r"^\| `(\w+)` \| .+ \| ([0-9.]+) \|$", text, flags=re.M))
    fields = dataclasses.fields(find_method("online").Options)
    defaults = {field.name: field.default for field in fields if field.name != "initial_threshold"}
    assert {name: float(value) for name, value in stated.items()} == defaults


def test_the_accuracies_are_those_that_were_measured(repo: Path) -> None:
    text = (repo / "docs/user/opacus.md").read_text()
    folder = repo / "docs/opacus"
    rows = list(csv.DictReader((folder / "mnist_runs.csv").read_text().splitlines()))
    runs = list(dict.fromkeys(row["run"] for row in rows))
    assert runs == list(json.loads((folder / "mnist_runs.json").read_text()))
    for run in runs:
        own = [row for row in rows if row["run"] == run]
        scores = ", ".join(f"{100 * float(r['accuracy']):.1f}" for r in own if r["accuracy"])
        last = f"{float(own[-1]['threshold']):.3g} | {float(own[-1]['factor']):.3g}"
        assert f"| {' | '.join(run.split())} | {scores} | {last} |" in text
