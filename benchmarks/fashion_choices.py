"""Ambiguities of the paper's autoencoder: one run for each choice, in bfloat16.

    python benchmarks/fashion_choices.py                     # each choice, AdamWOSM at epsilon = 4
    python benchmarks/fashion_choices.py --methods online    # and another method; adds to the table
    python benchmarks/fashion_choices.py --choices as_chosen --epochs 2    # stops after two of ten

A choice changes the network, its initial weights or the images, at the paper's best point for
k = 9. These runs are not stored in the results, which do not record such changes. A run that stops
early has the noise of all ten epochs: its steps are the first of the full run.
`results/fashion_choices.csv` has a row for each run: the best, the last and all test values, mean
squared error x 100 in the unit of the images, [0, 1], independent of the network's input scaling.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from precisions import read, train_one, write
from torch import Tensor, nn

from oso_dp.data.arrays import Arrays, load_arrays
from oso_dp.errors import OsoError
from oso_dp.methods import find_method
from oso_dp.models import networks
from oso_dp.study.cohort import PlannedCohort, Run
from oso_dp.study.config import load_config
from oso_dp.study.plan import make_plan
from oso_dp.training.job import make_task
from oso_dp.training.provenance import code_hash, commit, device_name

REPO = Path(__file__).resolve().parents[1]
OUTPUT = REPO / "benchmarks" / "results" / "fashion_choices.csv"
DATASET, MODEL, K = "fashion_mnist", "autoencoder", 9
AS_CHOSEN = networks.autoencoder


def _with_layers(change: Callable[[nn.Module], nn.Module | None]) -> nn.Module:
    """The study's network, each layer as `change` leaves it or what it returns instead."""
    return nn.Sequential(*(change(layer) or layer for layer in AS_CHOSEN(False)))


def _pad(layer: nn.Module) -> None:
    """Images keep their size, 28 x 28, from layer to layer."""
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
        layer.padding = (1, 1)


def _strided(sizes: tuple[int, ...], padding: int = 1) -> nn.Module:
    """Images of these sizes after each of the four layers that narrow, and back again."""
    network = AS_CHOSEN(False)
    layers = [each for each in network if isinstance(each, nn.Conv2d | nn.ConvTranspose2d)]
    steps = [*pairwise((28, *sizes))]
    for layer, (wide, narrow) in zip(layers, [*steps, *reversed(steps)], strict=True):
        stride = 1 if narrow == wide - 2 + 2 * padding else 2
        layer.stride, layer.padding = (stride, stride), (padding, padding)
        if isinstance(layer, nn.ConvTranspose2d):
            layer.output_padding = (wide - ((narrow - 1) * stride + 3 - 2 * padding),) * 2
    return network


def _start(weights: Callable[[Tensor], Tensor], layer: nn.Module) -> None:
    """From other weights, and biases of zero."""
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
        weights(layer.weight.data)
        if layer.bias is not None:
            layer.bias.data.zero_()


def _like_keras(layer: nn.Module) -> nn.Module | None:
    """LeakyReLU's slope is 0.3 there, and Glorot's uniform weights the default."""
    _start(nn.init.xavier_uniform_, layer)
    return nn.LeakyReLU(0.3) if isinstance(layer, nn.LeakyReLU) else None


def _instead_of_sigmoid(last: nn.Module, layer: nn.Module) -> nn.Module | None:
    return last if isinstance(layer, nn.Sigmoid) else None


@dataclass(frozen=True)
class Choice:
    """How the network is made, and of which images: scale (x - shift), in the study just x."""

    network: Callable[[], nn.Module] = field(default=lambda: AS_CHOSEN(False))
    scale: float = 1.0
    shift: float = 0.0


CHOICES = {
    "as_chosen": Choice(),
    "padding": Choice(lambda: _with_layers(_pad)),
    # A bottleneck, which strides of 1 do not make: at the narrowest 784, 256, 512 and 256 numbers.
    "stride_2_twice": Choice(lambda: _strided((14, 7, 7, 7))),
    "stride_2_twice_unpadded": Choice(lambda: _strided((13, 6, 4, 2), padding=0)),
    "stride_2_thrice": Choice(lambda: _strided((14, 7, 4, 4))),
    "stride_2": Choice(lambda: _strided((14, 7, 4, 2))),
    # Halved later, at more channels, images hold more numbers: 1568, 3136, 1024 at the narrowest.
    "stride_2_alternate": Choice(lambda: _strided((14, 14, 7, 7))),
    "stride_2_inner_twice": Choice(lambda: _strided((28, 28, 14, 7))),
    "stride_2_inner_thrice": Choice(lambda: _strided((28, 14, 7, 4))),
    "glorot": Choice(lambda: _with_layers(partial(_start, nn.init.xavier_uniform_))),
    "kaiming": Choice(lambda: _with_layers(partial(_start, nn.init.kaiming_normal_))),
    "keras": Choice(lambda: _with_layers(_like_keras)),
    "no_sigmoid": Choice(lambda: _with_layers(partial(_instead_of_sigmoid, nn.Identity()))),
    # Images from -1 to 1, and a network that ends in as much.
    "tanh": Choice(
        lambda: _with_layers(partial(_instead_of_sigmoid, nn.Tanh())), scale=2.0, shift=0.5
    ),
}


# Whose best points a method takes for which the paper prints none: one that searches the same.
POINTS_OF = {"dp_adam": "adam_wosm"}


def planned(
    methods: list[str], epsilons: list[float], seeds: int
) -> list[tuple[PlannedCohort, Run]]:
    """The paper's best points, with the noise of the whole grids."""
    return [pair for method in methods for pair in _planned(method, epsilons, seeds)]


def _planned(method: str, epsilons: list[float], seeds: int) -> list[tuple[PlannedCohort, Run]]:
    config, printed = (
        load_config(REPO / "config/paper/best_points.yaml"),
        POINTS_OF.get(method, method),
    )
    section = config.datasets[DATASET]
    section = section.model_copy(update={"epsilons": epsilons, "precision": "bfloat16"})
    change = {
        "datasets": {DATASET: section},
        "methods": {printed: config.methods[printed]},
        "values_per_axis": [K],
        "seeds": list(range(seeds)),
    }
    cohorts = make_plan(config.model_copy(update=change)).cohorts
    if printed != method:
        own = {"method": method, "method_options": asdict(find_method(method).Options())}
        cohorts = [replace(each, **own).with_runs(each.points, each.seeds) for each in cohorts]
    return [(cohort, run) for cohort in cohorts for run in cohort.runs]


def run_one(name: str, cohort: PlannedCohort, run: Run, arrays: Arrays) -> dict[str, Any]:
    """One row."""
    choice = CHOICES[name]
    networks.autoencoder = lambda final_activation: choice.network()
    changed = {
        part: (choice.scale * (getattr(arrays, part) - choice.shift)).astype(np.float32)
        for part in ("train_inputs", "test_inputs")
    }
    checkpoint = REPO / "build" / "fashion_choices" / f"{name}.{run.run_id}.pt"
    outcome = train_one(make_task(cohort), run, replace(arrays, **changed), checkpoint)
    values = {
        each["step"]: 100 * each["value"] / choice.scale**2
        for each in outcome.evaluations
        if each["split"] == "test"
    }
    return {
        "dataset": DATASET,
        "choice": name,
        **{key: getattr(cohort, key) for key in ("method", "k", "epsilon", "epochs", "momentum")},
        "seed": run.seed,
        "status": outcome.status,
        "best": min(values.values(), default=None),
        "last": next(reversed(values.values()), None),
        "values": " ".join(f"{step}:{value:.4g}" for step, value in values.items()),
        "seconds": round(outcome.wall_seconds, 1),
        "device": device_name("cpu"),
        "commit": commit(),
        "code_hash": code_hash(),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--choices", nargs="+", choices=CHOICES, default=list(CHOICES))
    parser.add_argument("--methods", nargs="+", default=["adam_wosm"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[4.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=10, help="stop then; 10 in the paper")
    parser.add_argument("--data", type=Path, default=REPO / "build" / "data")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    key = ("choice", "method", "epsilon", "epochs", "seed")
    try:
        rows = read(options.output)
        known = {tuple(str(row[name]) for name in key) for row in rows}
        todo = [
            (replace(cohort, epochs=options.epochs), run)
            for cohort, run in planned(options.methods, options.epsilons, options.seeds)
        ]
        arrays, _ = load_arrays(options.data / todo[0][0].data_file)
        for name in options.choices:
            for cohort, run in todo:
                facts = (name, cohort.method, cohort.epsilon, cohort.epochs, run.seed)
                if tuple(map(str, facts)) in known:
                    continue
                rows.append(run_one(name, cohort, run, arrays))
                write(options.output, rows)
                print(*(rows[-1][column] for column in (*key, "best", "last")), flush=True)
    except OsoError as error:
        print(f"fashion_choices: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
