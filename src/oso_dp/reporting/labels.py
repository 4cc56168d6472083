"""Names, units and colours, the same in every table and figure."""

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from oso_dp.data.catalogue import DATASETS as CATALOGUE
from oso_dp.methods import find_method, method_names
from oso_dp.reporting.select import DEFAULT_EPOCHS

# Order of the paper's tables; methods that a user adds follow in alphabetical order.
METHODS = ("online", "fixed_threshold", "fixed_quantile", "adam_wosm", "no_dp")

DATASETS = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "ag_news": "AG News",
    "ag_news_partial": f"AG News partial (n = {CATALOGUE['ag_news_partial'].examples:,})",
    "glyphs": "Glyphs (rendered digits, not MNIST)",
}

# What a reader must know before comparing; shown wherever the data set is.
DATASET_NOTES = {
    "glyphs": (
        "Glyphs are digits rendered on the spot from the fonts that come with matplotlib. "
        "This is not MNIST: nothing here can be compared with the paper."
    ),
    "ag_news_partial": (
        "Only a part of AG News' training examples was at hand, so these values cannot be "
        "compared with the paper's."
    ),
}

# Okabe and Ito's colour-blind safe palette; markers tell methods apart without colour.
_COLOURS = {
    "online": "#0072B2",
    "fixed_threshold": "#D55E00",
    "fixed_quantile": "#009E73",
    "adam_wosm": "#CC79A7",
    "no_dp": "#4D4D4D",
}
_MARKERS = {
    "online": "o",
    "fixed_threshold": "s",
    "fixed_quantile": "D",
    "adam_wosm": "^",
    "no_dp": "P",
}
_MORE_COLOURS = (
    *("#E69F00", "#56B4E9", "#8C6D31", "#000000"),
    *("#332288", "#882255", "#999933", "#44AA99"),  # from Tol's muted palette
    *("#AA4499", "#117733", "#CC6677", "#661100"),
)
_MORE_MARKERS = ("v", "<", ">", "h", "X", "*", "d", "p", "8", "H", "$+$", "$=$")

# metric -> (factor to the printed unit, axis label, short unit for tables)
_METRICS = {
    "accuracy": (100.0, "test accuracy, %", "%"),
    "mse": (100.0, "test mean squared error × 100", "mse × 100"),
}

SYMBOLS = {"learning_rate": "ρ", "threshold": "C", "quantile": "γ"}

NOTHING = "–"


def method_order(methods: Iterable[str]) -> list[str]:
    """The methods in the paper's order, unknown ones last and sorted."""
    given = set(methods)
    return [m for m in METHODS if m in given] + sorted(given - set(METHODS))


def dataset_order(datasets: Iterable[str]) -> list[str]:
    """The data sets in the paper's order, unknown ones last and sorted."""
    given = set(datasets)
    return [d for d in DATASETS if d in given] + sorted(given - set(DATASETS))


def method_label(method: str) -> str:
    return find_method(method).title if method in method_names() else method


def dataset_label(dataset: str) -> str:
    return DATASETS.get(dataset, dataset)


def dataset_short(dataset: str) -> str:
    """The data set's label without its explanation in brackets."""
    return dataset_label(dataset).split(" (")[0]


def colours(methods: Iterable[str]) -> dict[str, str]:
    """One colour per method, the same in every report for all that this package has."""
    return _assign(methods, _COLOURS, _MORE_COLOURS)


def markers(methods: Iterable[str]) -> dict[str, str]:
    """One marker per method, the same in every report for all that this package has."""
    return _assign(methods, _MARKERS, _MORE_MARKERS)


def _assign(methods: Iterable[str], known: dict[str, str], more: tuple[str, ...]) -> dict[str, str]:
    registered = sorted(set(method_names()) - set(known))  # whether or not this study has them
    extra = registered + sorted(set(methods) - set(known) - set(registered))
    return known | {m: more[i % len(more)] for i, m in enumerate(extra)}


def scale(metric: str) -> float:
    """Factor from the stored unit (fraction, mse per pixel) to the paper's printed unit."""
    return _METRICS[metric][0] if metric in _METRICS else 1.0


def metric_label(metric: str) -> str:
    return _METRICS[metric][1] if metric in _METRICS else f"test {metric}"


def metric_unit(metric: str) -> str:
    return _METRICS[metric][2] if metric in _METRICS else metric


def missing(value: object) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def number(value: Any, digits: str = ".4g") -> str:
    """A number as text, or a dash where there is none."""
    return NOTHING if missing(value) else format(float(value), digits)


def signed(value: Any) -> str:
    """A difference with its sign, two decimals."""
    text = number(value, "+.2f").replace("-", "−")
    return "0.00" if text in ("+0.00", "−0.00") else text


def epochs_note(epochs: Iterable[Any]) -> str:
    """A sentence where runs are not of the paper's length, else nothing."""
    found = sorted({int(value) for value in epochs if not missing(value)} - {DEFAULT_EPOCHS})
    if not found:
        return ""
    listed = " and ".join(str(value) for value in found)
    unit = "epoch" if found == [1] else "epochs"
    return f"Runs of {listed} {unit}; the paper's have {DEFAULT_EPOCHS}."


def epsilon_text(epsilon: Any) -> str:
    return "none" if missing(epsilon) else f"{epsilon:g}"


def delta_text(delta: float) -> str:
    return f"{delta:g}".replace("e-0", "e-")


def spread(mean: Any, std: Any) -> str:
    """`93.62 ± 0.91`, or the mean alone where one seed gives no deviation."""
    if missing(mean):
        return NOTHING
    return f"{mean:.2f}" if missing(std) else f"{mean:.2f} ± {std:.2f}"


def tuned(method: str) -> tuple[str, ...]:
    """The hyperparameters that a method's grid searches; all three for an unknown method.

    The others are constants of the method (C_0 = 0.1 of Online and FixedQuantile, for one).
    """
    known = method in method_names()
    return find_method(method).search if known else ("learning_rate", "threshold", "quantile")


def point_text(method: str, learning_rate: Any, threshold: Any, quantile: Any) -> str:
    """The tuned hyperparameters in the field's symbols: `ρ 0.316, γ 0.5`."""
    values = {"learning_rate": learning_rate, "threshold": threshold, "quantile": quantile}
    parts = [
        f"{SYMBOLS[name]} {values[name]:.4g}" for name in tuned(method) if not missing(values[name])
    ]
    return ", ".join(parts) or NOTHING


def duration(seconds: Any) -> str:
    """A wall time that a person can read: `34 s`, `12 min`, `3.4 h`."""
    if missing(seconds):
        return NOTHING
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
