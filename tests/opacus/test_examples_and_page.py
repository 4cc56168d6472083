"""The scripts of examples/, and docs/user/opacus.md."""

import csv
import dataclasses
import gzip
import json
import re
import runpy
import warnings
from difflib import ndiff
from pathlib import Path

import numpy as np
import pytest
import torch

from oso_dp.methods import find_method


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Four small files in MNIST's format."""
    random = np.random.default_rng(0)
    for part, count in (("train", 30), ("t10k", 20)):
        labels = random.integers(0, 10, count, dtype=np.uint8)
        images = np.zeros((count, 28, 28), np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 8] = 255
        for kind, values, head in (("images-idx3", images, 16), ("labels-idx1", labels, 8)):
            with gzip.open(tmp_path / f"{part}-{kind}-ubyte.gz", "wb") as file:
                file.write(bytes(head) + values.tobytes())
    return tmp_path


def test_mnist_scripts_differ_in_import(repo: Path) -> None:
    plain, online = (
        (repo / "examples" / f"mnist_{name}.py").read_text().splitlines()
        for name in ("opacus", "online")
    )
    assert len(plain) < 100
    assert not any("mnist_opacus" in line for line in online)  # who copies its usage runs it
    changed = [line for line in ndiff(plain, online) if line[0] in "+-"]
    assert changed == [
        "- from opacus import PrivacyEngine",
        "+ from oso_dp.opacus import OnlinePrivacyEngine as PrivacyEngine",
    ]


@pytest.mark.parametrize("name", ["opacus", "online"])
def test_mnist_scripts_one_epoch_logged(repo: Path, data: Path, name, capsys, monkeypatch) -> None:
    for module in ("opacus.privacy_engine", "oso_dp.opacus.accountant_steps"):  # a long search
        monkeypatch.setattr(f"{module}.get_noise_multiplier", lambda **arguments: 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main = runpy.run_path(str(repo / "examples" / f"mnist_{name}.py"))["main"]
        torch.manual_seed(0)
        log = data / "log.csv"
        main([str(data), "--epochs", "1", "--batch-size", "10", "--log", str(log)])
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["epoch 1"]
    rows = list(csv.DictReader(log.read_text().splitlines()))
    thresholds = {row["threshold"] for row in rows}
    assert [int(row["step"]) for row in rows] == [1, 2, 3]
    assert (len(thresholds) > 1) == (name == "online")


def test_mnist_scripts_missing_data_rejected(repo: Path, tmp_path: Path) -> None:
    main = runpy.run_path(str(repo / "examples/mnist_online.py"))["main"]
    with pytest.raises(SystemExit, match=r"train-images-idx3-ubyte.gz: not found"):
        main([str(tmp_path)])


def test_opacus_page_defaults_match_options(repo: Path) -> None:
    text = (repo / "docs/user/opacus.md").read_text()
    stated = dict(re.findall(r"^\| `(\w+)` \| .+ \| ([0-9.]+) \|$", text, flags=re.M))
    fields = dataclasses.fields(find_method("online").Options)
    defaults = {field.name: field.default for field in fields if field.name != "initial_threshold"}
    assert {name: float(value) for name, value in stated.items()} == defaults


def test_opacus_page_accuracies_match_runs(repo: Path) -> None:
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
