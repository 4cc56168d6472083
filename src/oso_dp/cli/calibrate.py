"""`oso calibrate`: the noise multiplier that keeps a hyperparameter search within a budget."""

from pathlib import Path
from typing import Annotated, Any

import typer

from oso_dp.accounting.formatting import format_noise_multiplier
from oso_dp.accounting.search_accounting import COMPOSITION, find_foreign_option
from oso_dp.cli import calibration_options as options
from oso_dp.defaults import DELTA
from oso_dp.errors import OsoError
from oso_dp.files import json_text

ConfigFile = Annotated[
    Path | None, typer.Option(help="Calibrate every grid of this study instead.")
]


def calibrate(
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    examples: options.Examples = None,
    batch_size: options.BatchSize = None,
    epochs: options.Epochs = None,
    runs: options.Runs = None,
    accountant: options.AccountantOption = "rdp",
    search_accounting: options.SearchAccountingOption = None,
    stopping_distribution: options.StoppingDistribution = None,
    trial_fractions: options.TrialFractionsOption = None,
    show_noise_split: options.QueryNoise = False,
    query_noise_ratio: options.QueryNoiseRatio = None,
    config: ConfigFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Find the least noise multiplier that keeps a hyperparameter search within its budget."""
    if config is None:
        if epsilon is None:
            raise OsoError("--epsilon: missing; must be set, or a study's --config")
        ratio = options.parse_query_noise_ratio(show_noise_split, query_noise_ratio)
        size = examples, batch_size, epochs, runs
        search = options.make_search(
            *size, search_accounting, stopping_distribution, trial_fractions
        )
        delta = DELTA if delta is None else delta
        nu = search.noise_multiplier(epsilon, delta, accountant)
        name = search_accounting or COMPOSITION
        entry = options.make_answer(name, search, nu, epsilon, delta, accountant)
        options.add_trial_noise(entry, search)
        options.print_answer(entry, ratio, as_json)
        options.warn_large_delta(delta, examples)
        return
    facts = {
        "--epsilon": epsilon,
        "--delta": delta,
        "--examples": examples,
        "--batch-size": batch_size,
        "--epochs": epochs,
        "--runs": runs,
        "--query-noise-ratio": query_noise_ratio,  # set by each method
    }
    given = [name for name, value in facts.items() if value is not None]
    if given:
        raise OsoError(f"{', '.join(given)}: set by --config {config}; leave it out")
    entries = _calibrate_study(
        config,
        accountant,
        search_accounting,
        options.parse_stopping_distribution(stopping_distribution),
        options.parse_trial_fractions(trial_fractions),
        show_noise_split,
    )
    print(json_text(entries)) if as_json else _print_study(entries)


def _calibrate_study(
    config: Path,
    accountant: str,
    search_accounting: str | None,
    stopping_distribution: float | None,
    trial_fractions: tuple[float, ...] | None,
    split: bool,
) -> list[dict[str, Any]]:
    """One entry per private cohort of a study; split: with its method's noise split."""
    from oso_dp.accounting.search_accounting.linear_scaling import FINAL_STAGE
    from oso_dp.study.calibration import calibrate_grids
    from oso_dp.study.config import load_config

    study, entries, deltas = load_config(config), [], {}
    accounting = search_accounting or study.search_accounting
    given = {"stopping_distribution": stopping_distribution, "trial_fractions": trial_fractions}
    if foreign := find_foreign_option(accounting, given):
        option, owner = map(options.as_option, foreign)
        raise OsoError(f"--{option}: needs --search-accounting {owner}, or a study with it")
    for grid in calibrate_grids(
        study, accountant, search_accounting, stopping_distribution, trial_fractions
    ):
        cohort, nu = grid.cohort, grid.noise_multiplier
        entry: dict[str, Any] = {
            "dataset": cohort.dataset,
            "method": cohort.method,
            "k": cohort.k,
        }
        if cohort.stage is not None:
            entry["stage"] = cohort.stage
        entry |= options.make_answer(
            accounting, grid.search, nu, cohort.epsilon, cohort.delta, accountant
        )
        if cohort.stage == FINAL_STAGE:
            entry["runs"] = 1
        if split:
            noise = cohort.make_method().split_noise(nu, cohort.batch_size)
            entry |= dict(zip(options.SPLIT, noise, strict=True))
        entries.append(entry)
        deltas[cohort.dataset] = cohort.delta, cohort.examples
    for dataset, known in deltas.items():
        options.warn_large_delta(*known, where=f"{dataset}: ")
    return entries


def _print_study(entries: list[dict[str, Any]]) -> None:
    from oso_dp.cli.printing import print_table

    if not entries:
        print("no private methods in this study")
        return
    columns = {
        "data set": "dataset",
        "method": "method",
        "k": "k",
        "stage": "stage",
        "epsilon": "epsilon",
        "runs": "runs",
        "steps": "steps",
        "sampling rate": "sampling_rate",
        "noise multiplier": "noise_multiplier",
        "gradient": options.SPLIT[0],
        "query": options.SPLIT[1],
    }
    columns = {title: key for title, key in columns.items() if key in entries[0]}

    def cell(key: str, value: Any) -> Any:
        is_noise = key in ("noise_multiplier", *options.SPLIT) and value is not None
        return format_noise_multiplier(value) if is_noise else value

    cells = ([cell(key, entry[key]) for key in columns.values()] for entry in entries)
    print_table(columns, cells, left=2)
    first = entries[0]
    print(f"delta {first['delta']!r}, {first['accountant']}, {first['search_accounting']}")
