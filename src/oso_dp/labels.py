"""Labels and formats of names, units and numbers in tables and figures."""

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from oso_dp.data.catalogue import DATASETS as CATALOGUE
from oso_dp.methods import AXES, PAPER_METHODS, find_method, method_names
from oso_dp.metrics import METRICS
from oso_dp.paper.tables import PAPER_EPOCHS

DATASETS = {name: info.title for name, info in CATALOGUE.items()}  # in the paper's order

# Shown wherever the data set is.
DATASET_NOTES = {name: spec.note for name, spec in CATALOGUE.items() if spec.note}

SYMBOLS = {"learning_rate": "ρ", "threshold": "C", "quantile": "γ"}

DASH = "–"


def sort_methods(methods: Iterable[str]) -> list[str]:
    """The methods in the paper's order, then others alphabetically."""
    names = set(methods)
    return [m for m in PAPER_METHODS if m in names] + sorted(names - set(PAPER_METHODS))


def sort_datasets(datasets: Iterable[str]) -> list[str]:
    """The data sets in the paper's order, then others alphabetically."""
    names = set(datasets)
    return [d for d in DATASETS if d in names] + sorted(names - set(DATASETS))


def method_label(method: str) -> str:
    return find_method(method).title if method in method_names() else method


def dataset_label(dataset: str) -> str:
    return DATASETS.get(dataset, dataset)


def dataset_short(dataset: str) -> str:
    """The data set's label without its explanation in parentheses."""
    return dataset_label(dataset).split(" (")[0]


def display_factor(metric: str) -> float:
    """Factor from the stored unit (fraction, MSE per pixel) to the paper's unit."""
    return METRICS[metric].scale if metric in METRICS else 1.0


def variant_method_label(method: str, variant: str) -> str:
    """A method with its variant (schedule, averaging), if any."""
    return method_label(method) + (f", {variant}" if variant else "")


def metric_label(metric: str) -> str:
    return METRICS[metric].label if metric in METRICS else f"test {metric}"


def metric_unit(metric: str) -> str:
    return METRICS[metric].unit if metric in METRICS else metric


def difference_unit(metric: str) -> str:
    """The unit of a difference of two values: points where the values are in %."""
    unit = metric_unit(metric)
    return "points" if unit == "%" else unit


def is_missing(value: object) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def format_number(value: Any, digits: str = ".4g") -> str:
    """A number as text, or a dash if it is missing."""
    return DASH if is_missing(value) else format(float(value), digits)


def format_signed(value: Any) -> str:
    """A difference with its sign, two decimals."""
    text = format_number(value, "+.2f").replace("-", "−")
    return "0.00" if text in ("+0.00", "−0.00") else text


def format_epochs_note(epochs: Iterable[Any]) -> str:
    """A sentence if runs have other numbers of epochs than the paper's, else empty."""
    lengths = sorted({int(value) for value in epochs if not is_missing(value)} - {PAPER_EPOCHS})
    if not lengths:
        return ""
    listed = " and ".join(str(value) for value in lengths)
    unit = "epoch" if lengths == [1] else "epochs"
    return f"Runs of {listed} {unit}; the paper's have {PAPER_EPOCHS}."


def format_budget(epsilon: Any) -> str:
    return "none" if is_missing(epsilon) else f"{epsilon:g}"


def format_delta(delta: float) -> str:
    return repr(float(delta)).replace("e-0", "e-")


def format_mean_std(mean: Any, std: Any) -> str:
    """`93.62 ± 0.91`, or only the mean if there is one seed."""
    if is_missing(mean):
        return DASH
    return f"{mean:.2f}" if is_missing(std) else f"{mean:.2f} ± {std:.2f}"


def searched_axes(method: str) -> tuple[str, ...]:
    """The hyperparameters that a method's grid searches; all three for an unknown method.

    The others are constants of the method (such as C_0 = 0.1 of Online and FixedQuantile).
    """
    known = method in method_names()
    return find_method(method).search if known else AXES


def format_point(method: str, learning_rate: Any, threshold: Any, quantile: Any) -> str:
    """The tuned hyperparameters with their symbols: `ρ 0.316, γ 0.5`."""
    values = {"learning_rate": learning_rate, "threshold": threshold, "quantile": quantile}
    parts = [
        f"{SYMBOLS[name]} {values[name]:.4g}"
        for name in searched_axes(method)
        if not is_missing(values[name])
    ]
    return ", ".join(parts) or DASH


def format_duration(seconds: Any) -> str:
    """A wall time, human-readable: `34 s`, `12 min`, `3.4 h`."""
    if is_missing(seconds):
        return DASH
    if round(seconds) < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
