"""`oso budget`: what a hyperparameter search costs, before anything runs."""

import json
import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from oso_dp.errors import OsoError

_SPLIT = ("gradient_noise_multiplier", "query_noise_multiplier")


class Accountant(StrEnum):
    RDP = "rdp"
    PLD = "pld"


class Selection(StrEnum):
    COMPOSITION = "composition"
    RANDOM_STOPPING = "random-stopping"


def budget(
    epsilon: Annotated[float | None, typer.Option(help="Budget for all runs together.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Instead of --epsilon: say what this noise costs.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Delta of the budget [1e-5].")] = None,
    examples: Annotated[int | None, typer.Option(help="Training examples n.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Expected size B of a Poisson batch [512].")
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Epochs of a run, T = ceil(epochs n / B) steps [10].")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Runs of the search; their mean if it stops at random [1].")
    ] = None,
    accountant: Annotated[Accountant, typer.Option(help="Accountant.")] = Accountant.RDP,
    selection: Annotated[
        Selection | None,
        typer.Option(
            help="composition: all runs are paid for. random-stopping: candidates are drawn a "
            "random number of times and only the best is released (Papernot and Steinke 2022). "
            "[composition, or what --config says]"
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            help="Distribution of the random number of runs: geometric, logarithmic, poisson, or "
            "the shape of a truncated negative binomial. [geometric, or what --config says]"
        ),
    ] = None,
    query_noise: Annotated[
        bool, typer.Option("--query-noise", help="Show the split of Proposition 1, too.")
    ] = False,
    query_noise_ratio: Annotated[
        float, typer.Option(help="nu_q / nu of that split; 7.124 costs 1 % more gradient noise.")
    ] = 7.124,
    config: Annotated[
        Path | None, typer.Option(help="Price every grid of this study instead.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Price a search: the noise multiplier of each run from epsilon, or epsilon from the noise."""
    facts = {
        "epsilon": epsilon,
        "noise-multiplier": noise_multiplier,
        "delta": delta,
        "examples": examples,
        "batch-size": batch_size,
        "epochs": epochs,
        "runs": runs,
    }
    rule = None if selection is None else selection.value.replace("-", "_")
    distribution = None if shape is None else _shape(shape)
    if config is not None:
        given = [f"--{name}" for name, value in facts.items() if value is not None]
        if given:
            raise OsoError(f"{', '.join(given)}: --config {config} brings its own; leave it out")
        entries = _study(config, accountant.value, rule, distribution, query_noise)
        print(json.dumps(entries, indent=2)) if as_json else _print_study(entries)
    else:
        entry = _search(
            facts,
            accountant.value,
            rule or "composition",
            _shape("geometric") if distribution is None else distribution,
            query_noise_ratio if query_noise else None,
        )
        print(json.dumps(entry, indent=2)) if as_json else _print_search(entry)


def _shape(text: str) -> float:
    from oso_dp.accounting.search import SHAPES

    try:
        return SHAPES[text] if text in SHAPES else float(text)
    except ValueError:
        raise OsoError(
            f"--shape {text}: allowed are {', '.join(sorted(SHAPES))}, or a number from 0"
        ) from None


def _search(
    facts: dict[str, Any], accountant: str, selection: str, shape: float, ratio: float | None
) -> dict[str, Any]:
    """One search, from the options."""
    from oso_dp.accounting.search import Search
    from oso_dp.privacy.noise_split import gradient_noise_multiplier
    from oso_dp.privacy.sampling import PoissonSampling

    epsilon, nu, examples = facts["epsilon"], facts["noise-multiplier"], facts["examples"]
    if (epsilon is None) == (nu is None):
        raise OsoError("give one of --epsilon and --noise-multiplier (or a study's --config)")
    if examples is None:
        raise OsoError("--examples: must be given")
    if examples < 1:
        raise OsoError(f"--examples {examples}: must be at least 1")
    defaults = {"delta": 1e-5, "batch-size": 512, "epochs": 10.0, "runs": 1}
    known = {key: facts[key] if facts[key] is not None else defaults[key] for key in defaults}
    batch_size, epochs = known["batch-size"], known["epochs"]
    if not 1 <= batch_size <= examples:
        raise OsoError(f"--batch-size {batch_size}: must be between 1 and the {examples} examples")
    if not 0 < epochs <= 1e6:
        raise OsoError(f"--epochs {epochs:g}: must be above 0 and at most 1e6")
    if ratio is not None and not ratio < math.inf:
        raise OsoError(f"--query-noise-ratio {ratio:g}: must be finite")
    sampling = PoissonSampling(batch_size / examples)
    steps = math.ceil(epochs * examples / batch_size)
    search = Search(sampling, steps, int(known["runs"]), selection, shape)
    if nu is None:
        nu = search.noise_multiplier(epsilon, known["delta"], accountant)
    else:
        epsilon = search.epsilon(nu, known["delta"], accountant)
    entry = _entry(search, nu, epsilon, known["delta"], accountant)
    if ratio is not None:
        entry |= dict(
            zip(_SPLIT, (gradient_noise_multiplier(nu, ratio * nu), ratio * nu), strict=True)
        )
    return entry


def _study(
    config: Path, accountant: str, selection: str | None, shape: float | None, split: bool
) -> list[dict[str, Any]]:
    """One entry per private cohort of a study, with its method's own split if `split`."""
    from oso_dp.study.calibrated import calibrated_grids
    from oso_dp.study.config import load_config

    study = load_config(config)
    entries = []
    for grid in calibrated_grids(study, accountant, selection, shape):
        cohort, nu = grid.cohort, grid.noise_multiplier
        entry = {"dataset": cohort.dataset, "method": cohort.method, "k": cohort.k}
        entry |= _entry(grid.search, nu, cohort.epsilon, cohort.delta, accountant)
        if split:
            noise = cohort.trained_by().split_noise(nu, cohort.batch_size)
            entry |= dict(zip(_SPLIT, noise, strict=True))
        entries.append(entry)
    return entries


def _entry(search: Any, nu: float, epsilon: Any, delta: Any, accountant: str) -> dict[str, Any]:
    entry = {
        "noise_multiplier": nu,
        "epsilon": epsilon,
        "delta": delta,
        "runs": search.runs,
        "steps": search.steps,
        "sampling_rate": search.sampling.rate,
        "accountant": accountant,
        "selection": search.selection,
    }
    if search.selection == "random_stopping":
        # JSON knows no infinity.
        entry["shape"] = search.shape if math.isfinite(search.shape) else "poisson"
    return entry


def _print_search(entry: dict[str, Any]) -> None:
    runs = f"{entry['runs']} run" + "s" * (entry["runs"] != 1)
    if entry["selection"] == "random_stopping":
        runs = f"a random number of runs (mean {entry['runs']}), of which one is released,"
    print(
        f"noise multiplier {entry['noise_multiplier']:.4f} for {runs} of {entry['steps']} steps "
        f"at sampling rate {entry['sampling_rate']:.5f}: "
        f"epsilon {entry['epsilon']:.4g}, delta {entry['delta']!r} ({entry['accountant']})"
    )
    if "query_noise_multiplier" in entry:
        print(
            f"split between two queries (Proposition 1): gradient "
            f"{entry['gradient_noise_multiplier']:.4f}, second query "
            f"{entry['query_noise_multiplier']:.4f}"
        )


def _print_study(entries: list[dict[str, Any]]) -> None:
    from oso_dp.cli.tables import print_table

    if not entries:
        print("no private method in this study")
        return
    columns = {
        "data set": "dataset",
        "method": "method",
        "k": "k",
        "epsilon": "epsilon",
        "runs": "runs",
        "steps": "steps",
        "sampling rate": "sampling_rate",
        "noise multiplier": "noise_multiplier",
        "gradient": _SPLIT[0],
        "query": _SPLIT[1],
    }
    columns = {title: key for title, key in columns.items() if key in entries[0]}
    cells = ([entry[key] for key in columns.values()] for entry in entries)
    print_table(columns, cells, left=2)
    first = entries[0]
    print(f"delta {first['delta']:g}, {first['accountant']}, {first['selection']}")
