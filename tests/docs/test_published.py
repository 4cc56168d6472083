"""validation.md has what its runs measured, at the published settings."""

import csv
import importlib.util
import json
import statistics
from pathlib import Path
from types import ModuleType

import pytest

from oso_dp.labels import dataset_label, method_label

PUBLISHED = {"mnist": (1.23, 0.5, 512), "fashion_mnist": (2.15, 4.0, 2048)}


@pytest.fixture(scope="module")
def folder(repo: Path) -> Path:
    return repo / "docs/published"


@pytest.fixture(scope="module")
def script(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("published_runs", folder / "runs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def kept(folder: Path) -> dict[str, dict[str, object]]:
    return json.loads((folder / "runs.json").read_text())


def test_each_row_is_made_of_its_runs(folder: Path, script: ModuleType, repo: Path) -> None:
    accuracies: dict[str, list[float]] = {}
    for row in csv.DictReader((folder / "runs.csv").read_text().splitlines()):
        accuracies.setdefault(row["run"], []).append(100 * float(row["accuracy"]))
    assert set(accuracies) == set(script.RUNS)
    assert {len(values) for values in accuracies.values()} == {script.EPOCHS}
    page = (repo / "docs/reproduction/validation.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith(("| MNIST", "| Fashion"))]
    expected = []
    for dataset, method in dict.fromkeys(run[:2] for run in script.RUNS.values()):
        seeds = [accuracies[f"{dataset} {method} {seed}"] for seed in range(3)]
        shown = [
            f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"
            for values in ([seed[-1] for seed in seeds], [max(seed) for seed in seeds])
        ]
        names = [dataset_label(dataset), method_label(method)]
        expected.append(f"| {' | '.join([*names, *shown])} |")
    assert [row.rsplit("|", 2)[0] + "|" for row in rows] == expected


def test_each_run_has_the_published_settings(
    script: ModuleType, kept: dict[str, dict[str, object]]
) -> None:
    assert set(kept) == set(script.RUNS)
    for run, (dataset, method, seed) in script.RUNS.items():
        own = kept[run]
        noise, rate, batch = PUBLISHED[dataset]
        assert (own["dataset"], own["method"], own["seed"]) == (dataset, method, seed)
        assert own["noise_multiplier"] == pytest.approx(noise, abs=5e-4)
        assert (own["batch_size"], own["epochs"], own["status"]) == (batch, 40, "finished")
        assert len(str(own["commit"])) == 40
        if method == "fixed_threshold":
            assert (own["learning_rate"], own["threshold"]) == (rate, 0.1)
