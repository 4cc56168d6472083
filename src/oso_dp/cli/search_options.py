"""What `oso calibrate` and `oso epsilon` are told of a search, and how they answer."""

from __future__ import annotations

import math
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oso_dp.accounting.formatting import epsilon_text, large_delta_text, noise_text
from oso_dp.accounting.trial_shares import TRIAL_SHARES, shares_complaint
from oso_dp.accounting.tuning import COMPOSITION, RANDOM_STOPPING
from oso_dp.errors import OsoError
from oso_dp.files import json_text
from oso_dp.study.identity import STOPPING_SHAPE

if TYPE_CHECKING:
    from oso_dp.accounting.scaled_search import ScaledSearch
    from oso_dp.accounting.search import Search

SPLIT = ("gradient_noise_multiplier", "query_noise_multiplier")
DELTA, BATCH_SIZE, EPOCHS, RUNS, RATIO = 1e-5, 512, 10.0, 1, 7.124  # unless they are given


class Accountant(StrEnum):
    RDP = "rdp"
    PLD = "pld"


class TuningAccounting(StrEnum):
    COMPOSITION = "composition"
    RANDOM_STOPPING = "random-stopping"
    LINEAR_SCALING = "linear-scaling"


Epsilon = Annotated[float | None, typer.Option(help="Budget for all runs together.")]
NoiseMultiplier = Annotated[float | None, typer.Option(help="nu of a step, all its sums together.")]
Delta = Annotated[float | None, typer.Option(help=f"Delta of the budget [{DELTA:g}].")]
Examples = Annotated[int | None, typer.Option(help="Training examples n.")]
BatchSize = Annotated[
    int | None, typer.Option(help=f"Expected size B of a Poisson batch [{BATCH_SIZE}].")
]
Epochs = Annotated[
    float | None,
    typer.Option(help=f"Epochs of a run, T = ceil(epochs n / B) steps [{EPOCHS:g}]."),
]
Runs = Annotated[
    int | None, typer.Option(help=f"Runs of the search; their mean if it stops at random [{RUNS}].")
]
AccountantOption = Annotated[Accountant, typer.Option("--accountant", help="Accountant.")]


def _tuning_accounting(text: str) -> TuningAccounting:
    """With - or with _, as configurations have it."""
    name = str(text).replace("_", "-")
    if name not in list(TuningAccounting):
        raise OsoError(f"--selection {text}: allowed are {', '.join(TuningAccounting)}")
    return TuningAccounting(name)


TuningAccountingOption = Annotated[
    TuningAccounting | None,
    typer.Option(
        "--selection",
        parser=_tuning_accounting,
        metavar=f"[{'|'.join(TuningAccounting)}]",
        help="composition: all runs are paid for. random-stopping: candidates are drawn a random "
        "number of times and only the best is released (Papernot and Steinke 2022). "
        "linear-scaling: trials of all runs at small budgets, and one final run (Panda et al. "
        "2024), whose noise is meant. [composition, or what --config says]",
    ),
]
TrialSharesOption = Annotated[
    str | None,
    typer.Option(
        "--trial-shares",
        help="Share of epsilon of each trial under linear-scaling, such as 0.1,0.2 (the usual), or "
        "what --config says.",
    ),
]
Shape = Annotated[
    str | None,
    typer.Option(
        help="Distribution of the random number of runs: geometric, logarithmic, poisson, or the "
        f"shape of a truncated negative binomial. [{STOPPING_SHAPE}, or what --config says]"
    ),
]
QueryNoise = Annotated[
    bool, typer.Option("--query-noise", help="Show the split of Proposition 1, too.")
]
QueryNoiseRatio = Annotated[
    float | None,
    typer.Option(help=f"nu_q / nu of that split; {RATIO} costs 1 % more gradient noise. [{RATIO}]"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def stored_name(tuning_accounting: TuningAccounting | None) -> str | None:
    """As the results call it."""
    return None if tuning_accounting is None else tuning_accounting.value.replace("-", "_")


def shares_of(text: str | None) -> tuple[float, ...] | None:
    """The shares, between them a comma or a blank; OsoError for what they cannot be."""
    if text is None:
        return None
    try:
        shares = tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError:
        raise OsoError(f"--trial-shares {text}: must be numbers, such as 0.1,0.2") from None
    if wrong := shares_complaint(shares):
        raise OsoError(f"--trial-shares {text}: {wrong}")
    return shares


def shape_of(text: str | None) -> float | None:
    """OsoError for a name or a number that it cannot be."""
    from oso_dp.accounting.search import SHAPES

    if text is None:
        return None
    try:
        return SHAPES[text] if text in SHAPES else float(text)
    except ValueError:
        raise OsoError(
            f"--shape {text}: allowed are {', '.join(sorted(SHAPES))}, or a number from 0"
        ) from None


def ratio_of(query_noise: bool, ratio: float | None) -> float | None:
    """nu_q / nu if the split is wanted; OsoError for a ratio that nobody would look at."""
    if query_noise:
        return RATIO if ratio is None else ratio
    if ratio is not None:
        raise OsoError(f"--query-noise-ratio {ratio:g}: needs --query-noise")
    return None


def search_of(
    examples: int | None,
    batch_size: int | None,
    epochs: float | None,
    runs: int | None,
    tuning_accounting: TuningAccounting | None,
    shape: str | None,
    trial_shares: str | None = None,
) -> Search | ScaledSearch:
    """The search that the options describe; OsoError names one out of range."""
    from oso_dp.accounting.scaled_search import ScaledSearch
    from oso_dp.accounting.search import SHAPES, Search
    from oso_dp.privacy.sampling import PoissonSampling, steps_of

    if examples is None:
        raise OsoError("--examples: must be given")
    if examples < 1:
        raise OsoError(f"--examples {examples}: must be at least 1")
    batch_size = BATCH_SIZE if batch_size is None else batch_size
    epochs = EPOCHS if epochs is None else epochs
    if not 1 <= batch_size <= examples:
        raise OsoError(f"--batch-size {batch_size}: must be between 1 and the {examples} examples")
    if not 0 < epochs <= 1e6:
        raise OsoError(f"--epochs {epochs:g}: must be above 0 and at most 1e6")
    given = shape_of(shape)
    if given is not None and tuning_accounting is not TuningAccounting.RANDOM_STOPPING:
        raise OsoError(f"--shape {shape}: needs --selection random-stopping")
    size = (
        PoissonSampling.of(batch_size, examples),
        steps_of(epochs, examples, batch_size),
        RUNS if runs is None else runs,
    )
    shares = shares_of(trial_shares)
    if tuning_accounting is TuningAccounting.LINEAR_SCALING:
        return ScaledSearch(*size, TRIAL_SHARES if shares is None else shares)
    if shares is not None:
        raise OsoError(f"--trial-shares {trial_shares}: needs --selection linear-scaling")
    return Search(
        *size,
        stored_name(tuning_accounting) or COMPOSITION,
        SHAPES[STOPPING_SHAPE] if given is None else given,
    )


def entry_of(
    search: Search | ScaledSearch,
    nu: float,
    epsilon: float | None,
    delta: float | None,
    accountant: str,
) -> dict[str, Any]:
    """The answer, as JSON has it; runs: of each trial under linear scaling."""
    from oso_dp.accounting.scaled_search import ScaledSearch

    entry: dict[str, Any] = {
        "noise_multiplier": nu,
        "epsilon": epsilon,
        "delta": delta,
        "runs": search.runs,
        "steps": search.steps,
        "sampling_rate": search.sampling.rate,
        "accountant": accountant,
        "selection": search.tuning_accounting,
    }
    if isinstance(search, ScaledSearch):
        entry["trial_shares"] = [*search.shares]
    elif search.tuning_accounting == RANDOM_STOPPING:
        # JSON knows no infinity.
        entry["shape"] = search.shape if math.isfinite(search.shape) else "poisson"
    return entry


def add_trials(entry: dict[str, Any], search: Search | ScaledSearch) -> None:
    """To one search's answer, under linear scaling, each trial's epsilon and noise."""
    from oso_dp.accounting.scaled_search import ScaledSearch

    if isinstance(search, ScaledSearch):
        known = entry["epsilon"], entry["delta"], entry["accountant"]
        entry["trials"] = [
            {"epsilon": share * entry["epsilon"], "noise_multiplier": nu}
            for share, nu in zip(search.shares, search.noise_multipliers(*known), strict=False)
        ]


def say_large_delta(delta: float | None, examples: int | None, where: str = "") -> None:
    """On standard error, where a delta of so many examples is worth little."""
    if delta is not None and examples is not None and (said := large_delta_text(delta, examples)):
        print(f"oso: {where}{said}", file=sys.stderr)


def say(entry: dict[str, Any], ratio: float | None, as_json: bool) -> None:
    """One search's answer; `ratio`: nu_q / nu, if the split of Proposition 1 is wanted."""
    from oso_dp.privacy.noise_split import gradient_noise_multiplier

    if ratio is not None:
        if not ratio < math.inf:
            raise OsoError(f"--query-noise-ratio {ratio:g}: must be finite")
        nu, query = entry["noise_multiplier"], ratio * entry["noise_multiplier"]
        entry |= dict(zip(SPLIT, (gradient_noise_multiplier(nu, query), query), strict=True))
    if as_json:
        print(json_text(entry))
        return
    runs = f"{entry['runs']} run" + "s" * (entry["runs"] != 1)
    steps = f"{entry['steps']} step" + "s" * (entry["steps"] != 1)
    if entry["selection"] == RANDOM_STOPPING:
        runs = f"a random number of runs (mean {entry['runs']}), of which one is released,"
    if "trials" in entry:
        runs = f"one final run, after {len(entry['trials'])} trials of {runs},"
    print(
        f"noise multiplier {noise_text(entry['noise_multiplier'])} for {runs} of {steps} "
        f"at sampling rate {entry['sampling_rate']:.5g}: "
        f"epsilon {epsilon_text(entry['epsilon'])}, "
        f"delta {entry['delta']!r} ({entry['accountant']})"
    )
    for number, trial in enumerate(entry.get("trials", [])):
        print(
            f"trial {number + 1}: noise multiplier {noise_text(trial['noise_multiplier'])}, "
            f"epsilon {epsilon_text(trial['epsilon'])}"
        )
    if ratio is not None:
        print(
            f"split between two queries (Proposition 1): gradient "
            f"{noise_text(entry['gradient_noise_multiplier'])}, second query "
            f"{noise_text(entry['query_noise_multiplier'])}"
        )
