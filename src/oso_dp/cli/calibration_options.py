"""Options and output that `oso calibrate` and `oso epsilon` share."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any

import typer

from oso_dp.accounting.accountants import CALIBRATING
from oso_dp.accounting.formatting import (
    format_large_delta_warning,
    format_noise_multiplier,
    format_spent_epsilon,
)
from oso_dp.accounting.search_accounting import (
    COMPOSITION,
    AnySearch,
    find_foreign_option,
    find_search_accounting,
    search_accounting_names,
)
from oso_dp.defaults import BATCH_SIZE, DELTA, EPOCHS, QUERY_NOISE_RATIO, STOPPING_DISTRIBUTION
from oso_dp.errors import OsoError
from oso_dp.files import json_text
from oso_dp.privacy.promise import EXAMPLE

SPLIT = ("gradient_noise_multiplier", "query_noise_multiplier")
RUNS = 1  # default


def as_option(name: str) -> str:
    """The spelling of options."""
    return name.replace("_", "-")


Epsilon = Annotated[float | None, typer.Option(help="Privacy budget of all runs together.")]
NoiseMultiplier = Annotated[
    float | None, typer.Option(help="Noise multiplier nu of a step, all queries together.")
]
Delta = Annotated[float | None, typer.Option(help=f"Delta of the privacy budget [{DELTA:g}].")]
Examples = Annotated[int | None, typer.Option(help="Number of training examples n.")]
BatchSize = Annotated[
    int | None, typer.Option(help=f"Expected batch size B under Poisson sampling [{BATCH_SIZE}].")
]
Epochs = Annotated[
    float | None,
    typer.Option(help=f"Epochs of a run, of T = ceil(epochs n / B) steps [{EPOCHS:g}]."),
]
Runs = Annotated[
    int | None,
    typer.Option(help=f"Number of runs of the search; with random stopping, its mean [{RUNS}]."),
]


def _parse_accountant(text: str) -> str:
    if text not in CALIBRATING:
        raise OsoError(f"--accountant: {text}; must be one of {', '.join(CALIBRATING)}")
    return text


AccountantOption = Annotated[
    str,
    typer.Option(
        "--accountant",
        parser=_parse_accountant,
        metavar=f"[{'|'.join(CALIBRATING)}]",
        help="Accountant.",
    ),
]


_SEARCH_ACCOUNTINGS = {as_option(name): name for name in search_accounting_names()}


def _parse_search_accounting(text: str) -> str:
    """The name as in configurations, which is accepted as well: random_stopping."""
    if as_option(text) not in _SEARCH_ACCOUNTINGS:
        allowed = ", ".join(_SEARCH_ACCOUNTINGS)
        raise OsoError(f"--search-accounting: {text}; must be one of {allowed}")
    return _SEARCH_ACCOUNTINGS[as_option(text)]


SearchAccountingOption = Annotated[
    str | None,
    typer.Option(
        "--search-accounting",
        parser=_parse_search_accounting,
        metavar=f"[{'|'.join(_SEARCH_ACCOUNTINGS)}]",
        help=" ".join(
            f"{text}: {find_search_accounting(name).summary}."
            for text, name in _SEARCH_ACCOUNTINGS.items()
        )
        + " [composition, or as in --config]",
    ),
]
TrialFractionsOption = Annotated[
    str | None,
    typer.Option(
        "--trial-fractions",
        help="Fraction of epsilon of each trial, with linear-scaling. [0.1,0.2, or as in --config]",
    ),
]
StoppingDistribution = Annotated[
    str | None,
    typer.Option(
        help="Distribution of the number of runs, with random-stopping: geometric, logarithmic, "
        "poisson, or eta of a truncated negative binomial distribution. "
        f"[{STOPPING_DISTRIBUTION}, or as in --config]"
    ),
]
QueryNoise = Annotated[
    bool, typer.Option("--show-noise-split", help="Also print the noise split of Proposition 1.")
]
QueryNoiseRatio = Annotated[
    float | None,
    typer.Option(
        help="nu_q / nu of that split; the default adds 1 % to the gradient noise. "
        f"[{QUERY_NOISE_RATIO}]"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def parse_trial_fractions(text: str | None) -> tuple[float, ...] | None:
    """The fractions, separated by commas or blanks; OsoError for invalid ones."""
    from oso_dp.accounting.search_accounting.linear_scaling import find_fraction_error

    if text is None:
        return None
    try:
        fractions = tuple(float(number) for number in text.replace(",", " ").split())
    except ValueError:
        raise OsoError(f"--trial-fractions: {text}; must be numbers, such as 0.1,0.2") from None
    if wrong := find_fraction_error(fractions):
        raise OsoError(f"--trial-fractions: {text}; {wrong}")
    return fractions


def parse_stopping_distribution(text: str | None) -> float | None:
    """Eta of the distribution; OsoError for an unknown name."""
    from oso_dp.accounting.search_accounting.random_stopping import STOPPING_ETA

    if text is None:
        return None
    try:
        return STOPPING_ETA[text] if text in STOPPING_ETA else float(text)
    except ValueError:
        raise OsoError(
            f"--stopping-distribution: {text}; must be one of {', '.join(sorted(STOPPING_ETA))}, "
            "or a number >= 0"
        ) from None


def parse_query_noise_ratio(show_noise_split: bool, ratio: float | None) -> float | None:
    """nu_q / nu if the split is printed, else None; OsoError for a ratio without the split."""
    if show_noise_split:
        return QUERY_NOISE_RATIO if ratio is None else ratio
    if ratio is not None:
        raise OsoError(f"--query-noise-ratio: {ratio:g}; needs --show-noise-split; set both")
    return None


def make_search(
    examples: int | None,
    batch_size: int | None,
    epochs: float | None,
    runs: int | None,
    search_accounting: str | None,
    stopping_distribution: str | None,
    trial_fractions: str | None = None,
) -> AnySearch:
    """The search that the options describe; OsoError names an invalid option."""
    from oso_dp.privacy.sampling import PoissonSampling, count_steps

    if examples is None:
        raise OsoError("--examples: missing; must be set")
    if examples < 1:
        raise OsoError(f"--examples: {examples}; must be >= 1")
    batch_size = BATCH_SIZE if batch_size is None else batch_size
    epochs = EPOCHS if epochs is None else epochs
    if not 1 <= batch_size <= examples:
        raise OsoError(
            f"--batch-size: {batch_size}; must be 1 to {examples}, the number of examples"
        )
    if not 0 < epochs <= 1e6:
        raise OsoError(f"--epochs: {epochs:g}; must be > 0 and <= 1e6")
    name = search_accounting or COMPOSITION
    given = {"stopping_distribution": stopping_distribution, "trial_fractions": trial_fractions}
    if foreign := find_foreign_option(name, given):
        option, owner = foreign
        raise OsoError(
            f"--{as_option(option)}: {given[option]}; needs --search-accounting {as_option(owner)}"
        )
    options = {
        "stopping_distribution": parse_stopping_distribution(stopping_distribution),
        "trial_fractions": parse_trial_fractions(trial_fractions),
    }
    sampling = PoissonSampling.of(batch_size, examples)
    steps = count_steps(epochs, examples, batch_size)
    runs = RUNS if runs is None else runs
    return find_search_accounting(name).search(sampling, steps, runs, options)


def make_answer(
    search_accounting: str,
    search: AnySearch,
    nu: float,
    epsilon: float | None,
    delta: float | None,
    accountant: str,
) -> dict[str, Any]:
    """The answer as a JSON object; runs: of each trial under linear scaling."""
    from oso_dp.accounting.search_accounting.linear_scaling import LinearScalingSearch
    from oso_dp.accounting.search_accounting.random_stopping import (
        STOPPING_ETA,
        RandomStoppingSearch,
    )

    entry: dict[str, Any] = {
        "noise_multiplier": nu,
        "epsilon": epsilon,
        "delta": delta,
        "runs": search.runs,
        "steps": search.steps,
        "sampling_rate": search.sampling.rate,
        "accountant": accountant,
        "search_accounting": search_accounting,
    }
    if isinstance(search, LinearScalingSearch):
        entry["trial_fractions"] = [*search.trial_fractions]
    elif isinstance(search, RandomStoppingSearch):
        eta = search.stopping_eta
        names = {value: name for name, value in STOPPING_ETA.items()}
        entry["stopping_distribution"] = names.get(eta, eta)
    return entry


def add_trial_noise(entry: dict[str, Any], search: AnySearch) -> None:
    """Under linear scaling, add each trial's epsilon and noise multiplier to the answer."""
    from oso_dp.accounting.search_accounting.linear_scaling import LinearScalingSearch

    if isinstance(search, LinearScalingSearch):
        known = entry["epsilon"], entry["delta"], entry["accountant"]
        entry["trials"] = [
            {"epsilon": fraction * entry["epsilon"], "noise_multiplier": nu}
            for fraction, nu in zip(
                search.trial_fractions, search.noise_multipliers(*known), strict=False
            )
        ]


def warn_large_delta(delta: float | None, examples: int | None, where: str = "") -> None:
    """Warn on standard error where delta is too large for the number of examples."""
    if (
        delta is not None
        and examples is not None
        and (warning := format_large_delta_warning(delta, examples, EXAMPLE.plural))
    ):
        print(f"oso: {where}{warning}", file=sys.stderr)


def print_answer(entry: dict[str, Any], ratio: float | None, as_json: bool) -> None:
    """Print an answer; ratio: nu_q / nu to also print the split of Proposition 1, or None."""
    from oso_dp.privacy.noise_composition import gradient_noise_multiplier

    if ratio is not None:
        if not ratio < math.inf:
            raise OsoError(f"--query-noise-ratio: {ratio:g}; must be finite")
        nu, query = entry["noise_multiplier"], ratio * entry["noise_multiplier"]
        entry |= dict(zip(SPLIT, (gradient_noise_multiplier(nu, query), query), strict=True))
    if as_json:
        print(json_text(entry))
        return
    runs = f"{entry['runs']} run" + "s" * (entry["runs"] != 1)
    steps = f"{entry['steps']} step" + "s" * (entry["steps"] != 1)
    if "stopping_distribution" in entry:
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
