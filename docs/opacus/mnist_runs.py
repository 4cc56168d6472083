"""Train the scripts of examples/ on MNIST, and keep what the page of this folder shows.

    python docs/opacus/mnist_runs.py DATA [RUN ...]

DATA: a folder with the four files of MNIST. RUN: of RUNS, all by default. Runs that are kept
already are not trained again. Writes mnist_runs.csv (a row each EVERY steps and at the end of each
epoch) and mnist_runs.json (of each run: arguments, seed, commit, versions, CPU seconds).
"""

import csv
import importlib.util
import io
import json
import platform
import sys
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from oso_dp.files import atomic_write
from oso_dp.training.provenance import commit

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parents[1] / "examples"
TABLE, PROVENANCE = FOLDER / "mnist_runs.csv", FOLDER / "mnist_runs.json"
COLUMNS = ["run", "step", "threshold", "factor", "accuracy"]
EPOCHS, BATCH, SEED, EVERY = 6, 256, 0, 39
# Script, epsilon, C_0 (of plain Opacus: C), and rho_0; noise moves the weights by rho_0 times C_0.
RUNS: dict[str, tuple[str, float, float, float]] = {
    f"{script} {epsilon} {threshold:g} {rate:g}": (script, epsilon, threshold, rate)
    for script, epsilon, threshold, rate in [
        ("online", 3, 0.1, 0.5),
        ("opacus", 3, 0.1, 0.5),
        ("online", 3, 10.0, 0.5),
        ("online", 3, 0.01, 0.5),
        ("online", 3, 1.0, 0.5),
        ("online", 9, 0.1, 0.5),
        ("opacus", 9, 0.1, 0.5),
        ("online", 3, 10.0, 0.005),
        ("online", 3, 1.0, 0.05),
        ("online", 3, 0.01, 5.0),
        ("opacus", 3, 10.0, 0.005),
        ("opacus", 3, 1.0, 0.05),
    ]
}


def example(name: str) -> Any:
    path = EXAMPLES / f"mnist_{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def watched(kind: Any, factors: list[float], engines: list[Any]) -> Any:
    """The engine, which notes itself and, after each step, the factor of the rate."""

    class Watched(kind):
        def make_private_with_epsilon(self, **arguments: Any) -> Any:
            made = super().make_private_with_epsilon(**arguments)
            optimizer = made[1]
            step = optimizer.step

            def noted() -> None:
                step()
                factors.append(getattr(optimizer, "learning_rate_factor", 1.0))

            optimizer.step = noted
            engines.append(self)
            return made

    return Watched


def train(run: str, data: Path) -> tuple[list[list[str]], dict[str, Any]]:
    """The run's rows, and its provenance."""
    name, epsilon, threshold, rate = RUNS[run]
    script = example(name)
    factors: list[float] = []
    engines: list[Any] = []
    script.PrivacyEngine = watched(script.PrivacyEngine, factors, engines)
    torch.manual_seed(SEED)
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.csv"
        numbers = {"epsilon": epsilon, "epochs": EPOCHS, "batch-size": BATCH}
        options = numbers | {"threshold": threshold, "rate": rate, "log": log}
        script.main([str(data), *(f"--{key}={value}" for key, value in options.items())])
        logged = list(csv.DictReader(log.read_text().splitlines()))
    rows = [
        [run, row["step"], f"{float(row['threshold']):.5g}", f"{factor:.5g}", row["accuracy"]]
        for row, factor in zip(logged, factors, strict=True)
        if row["accuracy"] or int(row["step"]) % EVERY == 0
    ]
    (engine,) = engines
    return rows, {
        "script": f"examples/mnist_{name}.py",
        **{key: value for key, value in options.items() if key != "log"},
        "seed": SEED,
        "epsilon_spent": round(engine.get_epsilon(script.DELTA), 4),
        "delta": script.DELTA,
        "noise_multiplier": engine.accountant.history[0][0],
        "commit": commit(),
        "versions": {name: version(name) for name in ("torch", "opacus")}
        | {"python": platform.python_version()},
        "cpu_seconds": round(time.process_time() - began),
    }


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the noise is not cryptographic, and the like
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
