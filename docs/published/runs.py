"""Train a network of others' on images, privately, and hold it against what they published.

    python docs/published/runs.py DATA [RUN ...]

DATA: a folder with the four files of MNIST, and one with those of Fashion-MNIST. RUN: of RUNS, all
by default; those that are kept already are not trained again. Writes runs.csv (a row each epoch)
and runs.json (of each run: arguments, what was spent, commit, versions, CPU seconds).

The network, the data, the batch size, epochs, momentum, C, learning rate and noise multiplier are
those of Tramer and Boneh 2021, "Differentially Private Learning Needs Better Features (Or Much More
Data)", arXiv 2011.11660, as its public code has them (github.com/ftramer/Handcrafted-DP, README.md
and models.py); batches are Poisson's, where that code shuffles.
"""

import csv
import io
import json
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

import oso_dp
from oso_dp.data import mnist, sources
from oso_dp.data.arrays import Arrays
from oso_dp.files import atomic_write
from oso_dp.training.provenance import commit

FOLDER = Path(__file__).parent
TABLE, PROVENANCE = FOLDER / "runs.csv", FOLDER / "runs.json"
COLUMNS = ["run", "epoch", "accuracy"]
DELTA, EPOCHS = 1e-5, 40
# Epsilon is what their noise multiplier (1.23, 2.15) costs by today's conversion from Renyi
# divergences; theirs, with an older one, said 3 of the same noise.
SETUPS: dict[str, dict[str, Any]] = {
    "mnist": {"source": sources.MNIST, "batch_size": 512, "epsilon": 2.581},
    "fashion_mnist": {"source": sources.FASHION_MNIST, "batch_size": 2048, "epsilon": 2.6055},
}
# Their C is 0.1 and nearly every gradient longer: AUTO-S, whose gradients have length 1, then takes
# as long steps at a tenth of their rate. Online begins with the library's default.
METHODS: dict[str, dict[str, dict[str, float]]] = {
    "fixed_threshold": {
        "mnist": {"learning_rate": 0.5, "threshold": 0.1},
        "fashion_mnist": {"learning_rate": 4.0, "threshold": 0.1},
    },
    "auto_s": {"mnist": {"learning_rate": 0.05}, "fashion_mnist": {"learning_rate": 0.4}},
    "online": {"mnist": {}, "fashion_mnist": {}},
}
RUNS: dict[str, tuple[str, str, int]] = {
    f"{dataset} {method} {seed}": (dataset, method, seed)
    for seed in range(3)
    for dataset, methods in [
        ("mnist", tuple(METHODS)),
        ("fashion_mnist", ("fixed_threshold", "auto_s")),
    ]
    for method in methods
}


def network() -> nn.Module:
    """26,010 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


def train(run: str, data: Path) -> tuple[list[list[str]], dict[str, Any]]:
    """The run's rows, and its provenance."""
    dataset, method, seed = RUNS[run]
    setup, start = SETUPS[dataset], METHODS[method][dataset]
    arrays = images(dataset, data)
    tested, labels = map(torch.from_numpy, (arrays.test_inputs, arrays.test_targets))

    def accuracy(model: nn.Module) -> float:
        with torch.no_grad():
            right = (model(tested).argmax(dim=1) == labels).double().mean()
        return float(right)

    torch.manual_seed(seed)
    examples = len(arrays.train_inputs)
    began = time.process_time()
    trained = oso_dp.train_private(
        network(),
        nn.CrossEntropyLoss(reduction="none"),
        (arrays.train_inputs, arrays.train_targets),
        epsilon=setup["epsilon"],
        delta=DELTA,
        epochs=EPOCHS,
        batch_size=setup["batch_size"],
        method=method,
        randomness="seeded",
        seed=seed,
        evaluate=accuracy,
        evaluate_every=-(-examples // setup["batch_size"]),
        **start,
    )
    steps = zip(trained.history.score_step, trained.history.score, strict=True)
    rows = [
        [run, f"{step * setup['batch_size'] / examples:.1f}", f"{score:.4f}"]
        for step, score in steps
    ]
    return rows, {
        "dataset": dataset,
        "method": method,
        "seed": seed,
        **start,
        "batch_size": setup["batch_size"],
        "epochs": EPOCHS,
        "delta": DELTA,
        "epsilon_spent": round(trained.epsilon, 4),
        "noise_multiplier": round(trained.ledger.releases()[0][0], 4),
        "status": trained.status,
        "commit": commit(),
        "versions": {"torch": version("torch"), "python": platform.python_version()},
        "cpu_seconds": round(time.process_time() - began),
    }


def images(dataset: str, data: Path) -> Arrays:
    with tempfile.TemporaryDirectory() as cache:
        arrays, _ = mnist.build(data, Path(cache), SETUPS[dataset]["source"])
    return arrays


def kept() -> tuple[list[list[str]], dict[str, Any]]:
    if not PROVENANCE.exists():
        return [], {}
    with TABLE.open(newline="") as file:
        return list(csv.reader(file))[1:], json.loads(PROVENANCE.read_text())


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    data, runs = Path(arguments[0]), arguments[1:] or list(RUNS)
    for run in runs:
        if run in kept()[1]:
            continue
        print(run, flush=True)
        more, origin = train(run, data)
        rows, origins = kept()
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows, *more])
        with atomic_write(TABLE) as file:
            file.write(text.getvalue().encode())
        with atomic_write(PROVENANCE) as file:
            file.write((json.dumps({**origins, run: origin}, indent=1) + "\n").encode())


if __name__ == "__main__":
    main(sys.argv[1:])
