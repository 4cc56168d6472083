"""What the study's networks score before their first step, and how long their gradients are.

    python benchmarks/untrained.py --model autoencoder --data build/data/fashion_mnist.npz

Prints the test value of each seed's starting weights, their mean and standard deviation, and the
median norm of 512 training examples' gradients there, seed by seed. Compare runs that hardly learn
(docs/reproduction/findings.md) with the first, the paper's C (docs/reproduction/ambiguities.md)
with the second.
"""

import argparse
import statistics
from pathlib import Path

import numpy as np
import torch

from oso_dp.data.arrays import Arrays
from oso_dp.labels import display_factor, metric_unit
from oso_dp.methods import find_method
from oso_dp.models import MODELS
from oso_dp.study.cohort import Run
from oso_dp.training.loop import study_training
from oso_dp.training.task import StudyTask

_EXAMPLES = 512


def untrained(model: str, data: Path, seeds: int) -> tuple[list[float], list[float]]:
    """Of each seed's starting weights: test value, in the report's unit; median gradient length."""
    metric = MODELS[model].metric
    method = find_method("no_dp")
    task = StudyTask(
        method=method(method.Options(), 0.0),
        model=model,
        metric=metric,
        noise_multiplier=0.0,
        batch_size=1,
        steps=1,
        evaluate_every=1,
    )
    with np.load(data, allow_pickle=False) as held:
        names = ("train_inputs", "train_targets", "test_inputs", "test_targets")
        arrays = Arrays(*(held[name] for name in names))
    runs = [Run(f"seed {seed}", seed, 0.0, None, None) for seed in range(seeds)]
    training = study_training(task, runs, arrays)
    training.evaluate()
    values = [
        display_factor(metric)
        * next(row["value"] for row in one.evaluations if row["split"] == "test")
        for one in training.outcomes
    ]
    first = torch.arange(min(_EXAMPLES, len(training.problem.examples)))
    batch = training.problem.examples.batch(first.expand(seeds, -1))
    norms = training.engine(training.state.parameters, *batch).norms()
    return values, norms.median(dim=1).values.tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_RAW)
    parser.add_argument("--model", choices=sorted(MODELS), required=True)
    parser.add_argument("--data", type=Path, required=True, help="what `oso data` wrote")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    values, lengths = untrained(options.model, options.data, options.seeds)
    unit = metric_unit(MODELS[options.model].metric)
    print(" ".join(f"{value:.2f}" for value in values), unit)
    print(f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}")
    print("gradients' median length:", " ".join(f"{length:.3g}" for length in lengths))


_RAW = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    main()
