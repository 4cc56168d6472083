"""`oso recommend`: what to do with one privacy budget, by what was measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oso_dp.cli import search_options as options
from oso_dp.errors import OsoError

if TYPE_CHECKING:
    from oso_dp.choosing.measured import Measured


def recommend(
    epsilon: options.Epsilon = None,
    examples: options.Examples = None,
    model_size: Annotated[int | None, typer.Option(help="Parameters of the model.")] = None,
    delta: options.Delta = None,
    batch_size: options.BatchSize = None,
    epochs: options.Epochs = None,
    as_json: options.AsJson = False,
) -> None:
    """Say which way to spend a budget did best on data like these, and what that rests on."""
    from oso_dp.choosing.measured import measured
    from oso_dp.choosing.recommend import recommend as best_of

    if epsilon is None:
        raise OsoError("--epsilon: must be given")
    if not epsilon > 0:
        raise OsoError(f"--epsilon {epsilon:g}: must be above 0")
    if model_size is None:
        raise OsoError("--model-size: must be given, the number of the model's parameters")
    if model_size < 1:
        raise OsoError(f"--model-size {model_size}: must be at least 1")
    options.search_of(examples, batch_size, epochs, None, None, None)  # or an error
    assert examples is not None
    best = best_of(measured(), examples, model_size, epsilon)
    search = options.search_of(examples, batch_size, epochs, best.way.runs, None, None)
    delta = options.DELTA if delta is None else delta
    nu = search.noise_multiplier(epsilon, delta)
    if as_json:
        said: dict[str, Any] = {
            "way": best.way.way,
            "method": best.way.name,
            "start": best.way.start,
            "runs": search.runs,
            "noise_multiplier": nu,
            "rests_on": [asdict(line) for line in best.rests_on],
        }
        print(json.dumps(said, indent=2))
        return
    start = f", from {best.way.start}" if best.way.start else ""
    print(f"{best.way.name}: {best.way.way}{start}")
    print(
        f"  noise multiplier {nu:.4g} ({search.runs} x {search.steps} steps, epsilon {epsilon:g} "
        f"at delta {delta:g})"
    )
    print("It rests on these runs; gains are over Online's searched grid under the same budget:")
    for line in best.rests_on:
        print(f"  {_evidence(line)}")


def _evidence(line: Measured) -> str:
    low, high = line.gain - line.gain_half, line.gain + line.gain_half
    gain = f"gain {line.gain:+.2f} [{low:.2f}, {high:.2f}]" if line.gain else "that grid itself"
    return (
        f"{line.dataset}, {line.examples:,} examples, {line.parameters:,} parameters, epsilon "
        f"{line.epsilon:g}: {line.metric} {line.mean:.2f} ± {line.std:.2f} ({line.seeds} seeds), "
        + gain
        + ("; the default was chosen by looking at these data" if line.seen else "")
    )
