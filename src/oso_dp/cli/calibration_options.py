"""What `oso calibrate` and `oso epsilon` are told of a search, and how they answer."""

from __future__ import annotations

import math
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oso_dp.accounting.formatting import (
    format_large_delta_warning,
    format_noise_multiplier,
    format_spent_epsilon,
)
from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.accounting.trial_fractions import TRIAL_FRACTIONS, find_fraction_error
from oso_dp.errors import OsoError
from oso_dp.files import json_text
from oso_dp.study.identity import DEFAULT_STOPPING_DISTRIBUTION

if TYPE_CHECKING:
    from oso_dp.accounting.linear_scaling import LinearScalingSearch
    from oso_dp.accounting.tuning_cost import Search

SPLIT = ("gradient_noise_multiplier", "query_noise_multiplier")
DELTA, BATCH_SIZE, EPOCHS, RUNS, RATIO = 1e-5, 512, 10.0, 1, 7.124  # unless they are given


class Accountant(StrEnum):
    RDP = "rdp"
    PLD = "pld"


class SearchAccounting(StrEnum):
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


def _parse_search_accounting(text: str) -> SearchAccounting:
    """With - or with _, as configurations have it."""
    name = str(text).replace("_", "-")
    if name not in list(SearchAccounting):
        raise OsoError(f"--search-accounting {text}: allowed are {', '.join(SearchAccounting)}")
    return SearchAccounting(name)


SearchAccountingOption = Annotated[
    SearchAccounting | None,
    typer.Option(
        "--search-accounting",
        parser=_parse_search_accounting,
        metavar=f"[{'|'.join(SearchAccounting)}]",
        help="composition: all runs are paid for. random-stopping: candidates are drawn a random "
        "number of times and only the best is released (Papernot and Steinke 2022). "
        "linear-scaling: trials of all runs at small budgets, and one final run (Panda et al. "
        "2024), whose noise is meant. [composition, or what --config says]",
    ),
]
TrialFractionsOption = Annotated[
    str | None,
    typer.Option(
        "--trial-fractions",
        help="Share of epsilon of each trial under linear-scaling, such as 0.1,0.2 (the usual), or "
        "what --config says.",
    ),
]
StoppingDistribution = Annotated[
    str | None,
    typer.Option(
        help="Distribution of the random number of runs: geometric, logarithmic, poisson, or the "
        f"shape of a truncated negative binomial. [{DEFAULT_STOPPING_DISTRIBUTION}, or what "
        "--config says]"
    ),
]
QueryNoise = Annotated[
    bool, typer.Option("--show-noise-split", help="Show the split of Proposition 1, too.")
]
QueryNoiseRatio = Annotated[
    float | None,
    typer.Option(help=f"nu_q / nu of that split; {RATIO} costs 1 % more gradient noise. [{RATIO}]"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def stored_search_accounting(search_accounting: SearchAccounting | None) -> str | None:
    """As the results call it."""
    return None if search_accounting is None else search_accounting.value.replace("-", "_")


def parse_trial_fractions(text: str | None) -> tuple[float, ...] | None:
    """The shares, between them a comma or a blank; OsoError for what they cannot be."""
    if text is None:
        return None
    try:
        fractions = tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError:
        raise OsoError(f"--trial-fractions {text}: must be numbers, such as 0.1,0.2") from None
    if wrong := find_fraction_error(fractions):
        raise OsoError(f"--trial-fractions {text}: {wrong}")
    return fractions


def parse_stopping_distribution(text: str | None) -> float | None:
    """OsoError for a name or a number that it cannot be."""
    from oso_dp.accounting.tuning_cost import STOPPING_ETA

    if text is None:
        return None
    try:
        return STOPPING_ETA[text] if text in STOPPING_ETA else float(text)
    except ValueError:
        raise OsoError(
            f"--stopping-distribution {text}: allowed are {', '.join(sorted(STOPPING_ETA))}, "
            "or a number from 0"
        ) from None


def parse_query_noise_ratio(show_noise_split: bool, ratio: float | None) -> float | None:
    """nu_q / nu if the split is wanted; OsoError for a ratio that nobody would look at."""
    if show_noise_split:
        return RATIO if ratio is None else ratio
    if ratio is not None:
        raise OsoError(f"--query-noise-ratio {ratio:g}: needs --show-noise-split")
    return None


def make_search(
    examples: int | None,
    batch_size: int | None,
    epochs: float | None,
    runs: int | None,
    search_accounting: SearchAccounting | None,
    stopping_distribution: str | None,
    trial_fractions: str | None = None,
) -> Search | LinearScalingSearch:
    """The search that the options describe; OsoError names one out of range."""
    from oso_dp.accounting.linear_scaling import LinearScalingSearch
    from oso_dp.accounting.tuning_cost import STOPPING_ETA, Search
    from oso_dp.privacy.sampling import PoissonSampling, count_steps

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
    given = parse_stopping_distribution(stopping_distribution)
    if given is not None and search_accounting is not SearchAccounting.RANDOM_STOPPING:
        raise OsoError(
            f"--stopping-distribution {stopping_distribution}: "
            "needs --search-accounting random-stopping"
        )
    size = (
        PoissonSampling.of(batch_size, examples),
        count_steps(epochs, examples, batch_size),
        RUNS if runs is None else runs,
    )
    fractions = parse_trial_fractions(trial_fractions)
    if search_accounting is SearchAccounting.LINEAR_SCALING:
        return LinearScalingSearch(*size, TRIAL_FRACTIONS if fractions is None else fractions)
    if fractions is not None:
        raise OsoError(
            f"--trial-fractions {trial_fractions}: needs --search-accounting linear-scaling"
        )
    return Search(
        *size,
        stored_search_accounting(search_accounting) or COMPOSITION,
        STOPPING_ETA[DEFAULT_STOPPING_DISTRIBUTION] if given is None else given,
    )


def make_answer(
    search: Search | LinearScalingSearch,
    nu: float,
    epsilon: float | None,
    delta: float | None,
    accountant: str,
) -> dict[str, Any]:
    """The answer, as JSON has it; runs: of each trial under linear scaling."""
    from oso_dp.accounting.linear_scaling import LinearScalingSearch

    entry: dict[str, Any] = {
        "noise_multiplier": nu,
        "epsilon": epsilon,
        "delta": delta,
        "runs": search.runs,
        "steps": search.steps,
        "sampling_rate": search.sampling.rate,
        "accountant": accountant,
        "search_accounting": search.search_accounting,
    }
    if isinstance(search, LinearScalingSearch):
        entry["trial_fractions"] = [*search.trial_fractions]
    elif search.search_accounting == RANDOM_STOPPING:
        # JSON knows no infinity.
        entry["shape"] = search.stopping_eta if math.isfinite(search.stopping_eta) else "poisson"
    return entry


def add_trial_noise(entry: dict[str, Any], search: Search | LinearScalingSearch) -> None:
    """To one search's answer, under linear scaling, each trial's epsilon and noise."""
    from oso_dp.accounting.linear_scaling import LinearScalingSearch

    if isinstance(search, LinearScalingSearch):
        known = entry["epsilon"], entry["delta"], entry["accountant"]
        entry["trials"] = [
            {"epsilon": fraction * entry["epsilon"], "noise_multiplier": nu}
            for fraction, nu in zip(
                search.trial_fractions, search.noise_multipliers(*known), strict=False
            )
        ]


def warn_large_delta(delta: float | None, examples: int | None, where: str = "") -> None:
    """On standard error, where a delta of so many examples is worth little."""
    if (
        delta is not None
        and examples is not None
        and (warning := format_large_delta_warning(delta, examples))
    ):
        print(f"oso: {where}{warning}", file=sys.stderr)


def print_answer(entry: dict[str, Any], ratio: float | None, as_json: bool) -> None:
    """One search's answer; `ratio`: nu_q / nu, if the split of Proposition 1 is wanted."""
    from oso_dp.privacy.noise_composition import gradient_noise_multiplier

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
    if entry["search_accounting"] == RANDOM_STOPPING:
        runs = f"a random number of runs (mean {entry['runs']}), of which one is released,"
    if "trials" in entry:
        runs = f"one final run, after {len(entry['trials'])} trials of {runs},"
    print(
        f"noise multiplier {format_noise_multiplier(entry['noise_multiplier'])} for {runs} of "
        f"{steps} "
        f"at sampling rate {entry['sampling_rate']:.5g}: "
        f"epsilon {format_spent_epsilon(entry['epsilon'])}, "
        f"delta {entry['delta']!r} ({entry['accountant']})"
    )
    for number, trial in enumerate(entry.get("trials", [])):
        print(
            f"trial {number + 1}: noise multiplier "
            f"{format_noise_multiplier(trial['noise_multiplier'])}, "
            f"epsilon {format_spent_epsilon(trial['epsilon'])}"
        )
    if ratio is not None:
        print(
            f"split between two queries (Proposition 1): gradient "
            f"{format_noise_multiplier(entry['gradient_noise_multiplier'])}, second query "
            f"{format_noise_multiplier(entry['query_noise_multiplier'])}"
        )
