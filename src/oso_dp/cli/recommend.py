"""`oso recommend`: what to do with one privacy budget, by what was measured."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oso_dp.accounting.said import noise_text
from oso_dp.accounting.tuning import LINEAR_SCALING, RANDOM_STOPPING
from oso_dp.cli import search_options as options
from oso_dp.errors import OsoError
from oso_dp.files import json_text

if TYPE_CHECKING:
    from oso_dp.accounting.search import Search
    from oso_dp.choosing.known import Measured


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
    from oso_dp.accounting.search import Search
    from oso_dp.choosing.known import measured
    from oso_dp.choosing.recommend import recommend as best_of

    if epsilon is None:
        raise OsoError("--epsilon: must be given")
    if not epsilon > 0:
        raise OsoError(f"--epsilon {epsilon:g}: must be above 0")
    if model_size is None:
        raise OsoError("--model-size: must be given, the number of the model's parameters")
    if model_size < 1:
        raise OsoError(f"--model-size {model_size}: must be at least 1")
    one = options.search_of(examples, batch_size, epochs, None, None, None)  # or an error
    assert examples is not None
    assert isinstance(one, Search)
    best = best_of(measured(), examples, model_size, epsilon)
    delta = options.DELTA if delta is None else delta
    noise = _noise(best.way, one, epsilon, delta)
    if as_json:
        said: dict[str, Any] = {
            "way": best.way.way,
            "method": best.way.name,
            "start": best.way.start,
            "runs": best.way.runs,
            "noise_multipliers": noise,
            "rests_on": [asdict(line) for line in best.rests_on],
        }
        print(json_text(said))
        return
    start = f", from {best.way.start}" if best.way.start else ""
    print(f"{best.way.name}: {best.way.way}{start}")
    said_noise = ", ".join(
        f"{noise_text(nu)} ({part})" if part else noise_text(nu) for part, nu in noise.items()
    )
    print(
        f"  noise multiplier {said_noise}, runs of {one.steps} step{'s' * (one.steps != 1)}, "
        f"epsilon {epsilon:g} at delta {delta!r}"
    )
    print("It rests on these runs; gains are over Online's searched grid under the same budget:")
    for line in best.rests_on:
        print(f"  {_evidence(line)}")


def _noise(way: Measured, one: Search, epsilon: float, delta: float) -> dict[str, float]:
    """The noise multiplier of each part of this way to spend the budget, by the part's name."""
    from oso_dp.accounting.scaled_search import ScaledSearch
    from oso_dp.accounting.search import SHAPES

    if way.selection == LINEAR_SCALING:
        shares = tuple(map(float, way.trial_shares.split(",")))
        trial = (way.runs - 1) // len(shares)
        scaled = ScaledSearch(one.sampling, one.steps, trial, shares)
        noise = scaled.noise_multipliers(epsilon, delta)
        return dict(zip(scaled.parts, noise, strict=True))
    if way.selection == RANDOM_STOPPING:
        shape = SHAPES[way.distribution]
        stopped = replace(one, runs=way.runs, tuning_accounting=RANDOM_STOPPING, shape=shape)
        return {f"{way.runs} runs in the mean": stopped.noise_multiplier(epsilon, delta)}
    return {
        f"{way.runs} runs" if way.runs > 1 else "": replace(one, runs=way.runs).noise_multiplier(
            epsilon, delta
        )
    }


def _evidence(line: Measured) -> str:
    low, high = line.gain - line.gain_half, line.gain + line.gain_half
    gain = (
        f"gain {line.gain:+.2f} [{low:.2f}, {high:.2f}]"
        if not line.reference
        else "that grid itself"
    )
    return (
        f"{line.dataset}, {line.examples:,} examples, {line.parameters:,} parameters, epsilon "
        f"{line.epsilon:g}: {line.metric} {line.mean:.2f} ± {line.std:.2f} ({line.seeds} seeds), "
        + gain
        + ("; the default was chosen by looking at these data" if line.seen else "")
    )
